package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	"github.com/ovnkube/ovnkube/go-controller/pkg/page"
)

const (
	// readHeaderTimeout is how long a client may take to send a request.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout is how long a connection stays open without a request: longer than between two refreshes of the page.
	idleTimeout = 2 * time.Minute
	// shutdownTimeout is how long answers may take when the command ends.
	shutdownTimeout = 3 * time.Second
)

// serveCommand is the command "ovnkube egress serve".
func (e *egress) serveCommand(wrong cli.OnUsageErrorFunc, flags []cli.Flag) *cli.Command {
	own := []cli.Flag{
		&cli.StringFlag{Name: "listen", Usage: "The loopback `ADDRESS:PORT` that is served; with port 0 a free one", Value: "127.0.0.1:8765", Destination: &e.listen},
		&cli.DurationFlag{Name: "interval", Usage: "How old an answer may be; all objects are read when somebody asks and it is older", Value: 10 * time.Second, Destination: &e.interval},
	}
	for _, f := range flags {
		if f.Names()[0] != "output" {
			own = append(own, f)
		}
	}
	return &cli.Command{
		Name: "serve", Usage: "show the egress map as a web page on this machine", OnUsageError: wrong, HideHelpCommand: true,
		Flags: own, Action: e.serve,
	}
}

func (e *egress) serve(c *cli.Context) error {
	at, err := netip.ParseAddrPort(e.listen)
	switch {
	case c.NArg() > 0:
		return fmt.Errorf("%s: unexpected argument; see %s --help", c.Args().First(), c.Command.HelpName)
	case err != nil || !at.Addr().IsLoopback() || at.Addr().Zone() != "":
		return fmt.Errorf("--listen=%s: no loopback address with a port; allowed: 127.0.0.1:PORT or [::1]:PORT", e.listen)
	case e.interval < shortest:
		return fmt.Errorf("--interval=%s: too short; allowed: %s or longer", e.interval, shortest)
	}
	clients, err := e.connect(e.kubeconfig, e.context)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(c.Context, "tcp", e.listen)
	if err != nil {
		return fmt.Errorf("--listen=%s: %w", e.listen, err)
	}
	token := rand.Text()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		listener.Close()
		return fmt.Errorf("listen on %s: %w", listener.Addr(), err)
	}
	server := &http.Server{ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, Handler: page.New(page.Config{
		Read:   func(ctx context.Context) (page.Facts, error) { return e.facts(ctx, clients) },
		Allow:  func(r *http.Request) error { return bearer(r, token) },
		Hosts:  append(page.LoopbackHosts(port), listener.Addr().String()),
		MaxAge: e.interval, Now: e.now,
	})}
	// In the URL's fragment, the token stays in the browser: it is not part of requests and logs.
	fmt.Fprintf(e.out, "Serving on http://%s/#token=%s\n", listener.Addr(), token)
	return e.serveUntil(c.Context, server, listener)
}

// serveUntil serves until the context ends.
func (e *egress) serveUntil(ctx context.Context, server *http.Server, listener net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(end); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop serving on %s: %w", listener.Addr(), err)
	}
	return nil
}

// bearer admits requests with the token: others on this machine can reach the port, too.
func bearer(r *http.Request, token string) error {
	has, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || subtle.ConstantTimeCompare([]byte(has), []byte(token)) != 1 {
		return fmt.Errorf("%w: open the address that the command has printed, with all that follows the #", page.ErrUnauthenticated)
	}
	return nil
}

// facts reads what the page shows.
func (e *egress) facts(ctx context.Context, clients reader.Clients) (page.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	facts, err := page.Read(ctx, clients, e.namespace, reader.FromConfigMap, e.now)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: %w", page.ErrForbidden, err)
	}
	return facts, err
}
