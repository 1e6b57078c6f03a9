package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// settle is how long it may take until a new Service is served everywhere.
const settle = 20 * time.Second

// client is what connects: a pod, a node or the outside host.
type client struct {
	name string
	pod  bool
}

func pod(name string) client     { return client{name, true} }
func machine(name string) client { return client{name, false} }

// way is one path: the client, the destination, which servers may answer, and which client address
// they see.
type way struct {
	from client
	to   func(is4 bool) netip.AddrPort
	// answers are the servers that must all be seen to answer; if empty, connections must be
	// refused at once.
	answers []string
	// seen is the client address that servers see; nil for any.
	seen func(is4 bool) netip.Addr
}

// try checks a path in both families.
func (w *world) try(t *testing.T, name string, p way) {
	t.Helper()
	w.both(t, name, func(ctx context.Context, is4 bool) error {
		if len(p.answers) == 0 {
			return w.refused(ctx, p.from, p.to(is4), soon())
		}
		return w.answered(ctx, p, is4)
	})
}

// both runs try in both families in parallel; they do not affect each other.
func (w *world) both(t *testing.T, name string, try func(ctx context.Context, is4 bool) error) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		for family, is4 := range map[string]bool{"v4": true, "v6": false} {
			t.Run(family, func(t *testing.T) {
				t.Parallel()
				if err := lab.Until(t.Context(), settle, name, func(ctx context.Context) error { return try(ctx, is4) }); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// answer is the answer of a server: its name, and the client address it sees.
type answer struct {
	server string
	seen   netip.Addr
}

// soon is the option of requests that are repeated until they are answered: an attempt from before the Service was
// served may be lost, and need not be waited for. A packet may be, and is sent again after a second.
func soon() string {
	return "-timeout=" + time.Duration(1.5*float64(time.Second)*figures.Slowness()).String()
}

// get makes one request by TCP.
func (w *world) get(ctx context.Context, from client, to netip.AddrPort, options ...string) (server string, seen netip.Addr, err error) {
	answers, err := w.gets(ctx, from, to, 1, options...)
	if err != nil {
		return "", netip.Addr{}, err
	}
	return answers[0].server, answers[0].seen, nil
}

// gets makes several requests by TCP, each over a new connection, one after the other. Every request must be answered.
func (w *world) gets(ctx context.Context, from client, to netip.AddrPort, times int, options ...string) ([]answer, error) {
	command := append([]string{"get", "-count", strconv.Itoa(times)}, options...)
	out, err := w.Call(ctx, from.name, from.pod, append(command, "http://"+to.String()+"/who")...)
	if err != nil {
		return nil, err
	}
	var answers []answer
	for line := range strings.Lines(out) {
		var a answer
		if a.server, a.seen, err = parse(strings.TrimSpace(line)); err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	if len(answers) != times {
		return nil, fmt.Errorf("%d answers, want %d: %q", len(answers), times, out)
	}
	return answers, nil
}

// ask makes one request by UDP.
func (w *world) ask(ctx context.Context, from client, to netip.AddrPort, options ...string) (server string, seen netip.Addr, err error) {
	out, err := w.Call(ctx, from.name, from.pod, append(append([]string{"ask"}, options...), to.String())...)
	if err != nil {
		return "", netip.Addr{}, err
	}
	return parse(out)
}

func parse(out string) (server string, seen netip.Addr, err error) {
	server, text, ok := strings.Cut(out, " ")
	if !ok {
		return "", netip.Addr{}, fmt.Errorf("unexpected answer %q", out)
	}
	seen, err = netip.ParseAddr(text)
	return server, seen, err
}

// answered makes requests, at most 40, until every server that should answer has.
func (w *world) answered(ctx context.Context, p way, is4 bool) error {
	const atOnce = 8 // servers are chosen at random: of two, one is missing in about one of a hundred runs
	missing := slices.Clone(p.answers)
	for range 5 {
		answers, err := w.gets(ctx, p.from, p.to(is4), atOnce, soon())
		if err != nil {
			return err
		}
		for _, a := range answers {
			if !slices.Contains(p.answers, a.server) {
				return fmt.Errorf("%s answers, not one of %v", a.server, p.answers)
			}
			if p.seen != nil && a.seen != p.seen(is4) {
				return fmt.Errorf("%s sees %s, not %s", a.server, a.seen, p.seen(is4))
			}
			missing = slices.DeleteFunc(missing, func(s string) bool { return s == a.server })
		}
		if len(missing) == 0 {
			return nil
		}
	}
	return fmt.Errorf("no answer from %v", missing)
}

// refused returns an error unless a connection is refused, rather than left without an answer.
func (w *world) refused(ctx context.Context, from client, to netip.AddrPort, options ...string) error {
	server, _, err := w.get(ctx, from, to, options...)
	switch {
	case err == nil:
		return fmt.Errorf("%s answers", server)
	case strings.Contains(err.Error(), "connection refused"):
		return nil
	}
	return fmt.Errorf("not refused: %w", err)
}

// silent returns an error unless several attempts in a row get neither an answer nor a refusal:
// each one must time out, and not fail for another reason.
func (w *world) silent(ctx context.Context, from client, to netip.AddrPort) error {
	for range 3 {
		out, err := w.Call(ctx, from.name, from.pod, "get", "-timeout", "1s", "http://"+to.String()+"/who")
		switch {
		case err == nil:
			return fmt.Errorf("answer: %s", out)
		case !lab.TimedOut(err):
			return fmt.Errorf("not a timeout: %w", err)
		}
	}
	return nil
}

func (s service) cluster(is4 bool) netip.AddrPort {
	return netip.AddrPortFrom(s.clusterIP(is4), servicePort)
}

func (s service) external(is4 bool) netip.AddrPort {
	return netip.AddrPortFrom(lab.OfFamily(external, is4), servicePort)
}

func (w *world) port(s service, node string) func(bool) netip.AddrPort {
	return func(is4 bool) netip.AddrPort { return netip.AddrPortFrom(w.address(node, is4), s.nodePort()) }
}

// of returns the address of a pod.
func (w *world) of(name string) func(bool) netip.Addr { return w.pods[name].Address }

func outside(is4 bool) netip.Addr { return lab.OfFamily(lab.OutsideAddresses, is4) }

// announce makes the outside host reach the external addresses through a node.
func (w *world) announce(t *testing.T, node string) {
	t.Helper()
	if err := w.RouteTo(t.Context(), external, node); err != nil {
		t.Fatal(err)
	}
}
