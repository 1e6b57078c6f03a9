package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const mergePatch = types.MergePatchType

// endpoints checks that requests follow the endpoints as they come and go.
func (w *world) endpoints(t *testing.T) {
	s := w.make(t, "endpoints")
	w.try(t, "both", way{pod("c1"), s.cluster, []string{"s1", "s2"}, nil})
	if err := w.serveOnly(t.Context(), s, "s2"); err != nil {
		t.Fatal(err)
	}
	w.try(t, "one", way{pod("c1"), s.cluster, []string{"s2"}, nil})
	if err := w.serveOnly(t.Context(), s, "none"); err != nil {
		t.Fatal(err)
	}
	w.try(t, "none", way{pod("c1"), s.cluster, nil, nil})
	w.try(t, "none from outside", way{machine(lab.Outside), w.port(s, worker1), nil, nil})
	if err := w.serveOnly(t.Context(), s, "s1"); err != nil {
		t.Fatal(err)
	}
	w.try(t, "another", way{pod("c1"), s.cluster, []string{"s1"}, nil})
	w.try(t, "another from outside", way{machine(lab.Outside), w.port(s, worker1), []string{"s1"}, nil})
}

// restart restarts ovnkube on the nodes and on the control plane, and checks that nothing is
// written and no connection is cut.
func (w *world) restart(t *testing.T) {
	s := w.make(t, "restart", loadBalancer, func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "echo", Port: lab.EchoPort, Protocol: corev1.ProtocolTCP})
	})
	w.try(t, "before", way{machine(lab.Outside), w.port(s, worker1), []string{"s1", "s2"}, nil})
	var streams []string
	for name, is4 := range map[string]bool{"stream-v4": true, "stream-v6": false} {
		if _, err := w.RunStream(t.Context(), name, worker1, s.clusterIP(is4)); err != nil {
			t.Fatal(err)
		}
		w.cleanPod(t, name)
		streams = append(streams, name)
		if _, err := w.Report(t.Context(), name, true); err != nil {
			t.Fatal(err)
		}
	}
	before, err := w.traces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []struct{ node, daemon, controller string }{
		{lab.ControlPlane, "ovnkube-master", "service"},
		{lab.ControlPlane, "ovnkube-node", "service-node-write"},
		{worker1, "ovnkube-node", "service-node-write"},
	} {
		t.Run(d.daemon+" of "+d.node, func(t *testing.T) {
			w.restartDaemon(t, d.node, d.daemon, d.controller)
			var gaps []time.Duration
			for _, name := range streams {
				gaps = append(gaps, w.unnoticed(t, name))
			}
			figures.Record(t, "Services, open connections: restart of "+d.daemon, figures.Fault, gaps...)
		})
	}
	after, err := w.traces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, after) {
		t.Errorf("what is programmed has changed:\nbefore %s\nafter  %s", before, after)
	}
	w.try(t, "after", way{machine(lab.Outside), w.port(s, worker1), []string{"s1", "s2"}, nil})
}

// unnoticed waits until a stream has carried traffic again, and returns how long it stalled since
// the last reset.
func (w *world) unnoticed(t *testing.T, stream string) time.Duration {
	t.Helper()
	first := -1
	err := lab.Until(t.Context(), settle, stream+" to carry traffic", func(ctx context.Context) error {
		r, err := w.Report(ctx, stream, false)
		if err != nil {
			return err
		}
		if first < 0 {
			first = r.Echoed
		}
		if r.Echoed <= first {
			return fmt.Errorf("no echo since the first look: %+v", r)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	r, err := w.Report(t.Context(), stream, true)
	if err != nil {
		t.Fatal(err)
	}
	if r.Reconnects > 0 {
		t.Errorf("%s: %d reconnects, the last after %s", stream, r.Reconnects, r.LastError)
	}
	return r.MaxGap()
}

// restartDaemon restarts one of ovnkube's daemons and waits until one of its controllers has tried
// every key once.
func (w *world) restartDaemon(t *testing.T, node, daemon, controller string) {
	t.Helper()
	settled := func(ctx context.Context) (int, error) {
		log, err := w.Logs(ctx, node, daemon)
		return strings.Count(log, fmt.Sprintf("\"All start-up keys tried\" controller=%q", controller)), err
	}
	was, err := settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Service(t.Context(), "restart", node, daemon); err != nil {
		t.Fatal(err)
	}
	if err := lab.Until(t.Context(), time.Minute, daemon+" to settle", func(ctx context.Context) error {
		is, err := settled(ctx)
		if err != nil {
			return err
		}
		if was = min(was, is); is == was { // the log of a pod begins anew
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// traces returns the size of the northbound database, which grows with every write, and the rules
// and flows on a node.
func (w *world) traces(ctx context.Context) ([]string, error) {
	var out []string
	for _, command := range [][]string{
		{lab.ControlPlane, "stat", "-c", "%s", "/var/lib/ovn/ovnnb_db.db"},
		{worker1, "iptables-save", "-t", "nat"},
		{worker1, "ovs-ofctl", "--no-stats", "dump-flows", "breth0"},
	} {
		text, err := w.Kin.Exec(ctx, command[0], command[1:]...)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", command[0], err)
		}
		var kept []string
		for line := range strings.Lines(text) {
			timestamp, counter := strings.HasPrefix(line, "#"), strings.HasPrefix(line, ":")
			learned := strings.Contains(line, lab.LearnedFlow+",") // for clients that use UDP; it expires
			if !timestamp && !counter && !learned {
				kept = append(kept, line)
			}
		}
		if command[1] == "ovs-ofctl" { // prints flows of the same priority in any order
			slices.Sort(kept)
		}
		out = append(out, strings.Join(kept, ""))
	}
	return out, nil
}
