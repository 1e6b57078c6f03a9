// Command demo shows an EgressService on a real cluster of three nodes: it creates the cluster,
// walks through docs/egress-service.md with real pods and an outside host, and deletes the cluster.
// It exits with 0 only if every step showed what it should. DEMO_KEEP=1 keeps the cluster;
// GATEWAY_MODE sets the gateway mode, local by default.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/walkthrough"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	if err := demo(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: FAILED: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("\ndemo: every step showed what it must (%s)\n", time.Since(began).Round(time.Second))
}

func demo(ctx context.Context) (err error) {
	mode := os.Getenv("GATEWAY_MODE")
	if mode == "" {
		mode = "local"
	}
	fmt.Printf("=== A cluster of three nodes, gateway mode %s, and a host outside\n\n", mode)
	l, err := lab.Start(ctx, lab.Options{
		Name: "demo", GatewayMode: mode, Install: "manifests", Log: os.Stdout,
		Announce: func(args []string) { fmt.Printf("$ kin %s\n", strings.Join(args, " ")) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish(l)) }()
	_, err = walkthrough.Run(ctx, l, walkthrough.ByHand{Lab: l}, os.Stdout)
	return err
}

// finish deletes the cluster, or prints how to continue with it.
func finish(l *lab.Lab) error {
	if keep := os.Getenv("DEMO_KEEP"); keep != "" && keep != "0" {
		fmt.Printf("\nThe cluster is left standing:\n\n  export KUBECONFIG=%s\n  %s exec --name %s %s -- ovn-nbctl show\n  %s delete cluster --name %s\n",
			l.Kubeconfig, l.Kin.Program, l.Kin.Name, lab.ControlPlane, l.Kin.Program, l.Kin.Name)
		return l.Release()
	}
	fmt.Printf("\n=== Removing the cluster\n\n")
	// The demo may have been interrupted, so its context cannot be used here.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return l.Close(ctx)
}
