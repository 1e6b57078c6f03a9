package app

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// translation is a source address that the kernel gives to a pod's packets.
type translation struct{ pod, to netip.Addr }

// endedTranslations tracks the translations that an earlier run left behind. Those that nobody
// wants any more have ended while no process ran: their rules are deleted with all other leftovers,
// but connections that use them would continue with an address that may now belong to another node.
type endedTranslations struct {
	read  func(ctx context.Context) (map[translation]bool, error)
	flush func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error

	mu    sync.Mutex
	found map[translation]bool
}

// translatingChains are the iptables chains: with their leftovers, the connections go that used them.
type translatingChains struct {
	sweeper
	ended *endedTranslations
}

// Sweep implements sweeper. What could not be deleted yet, maybe of the other family, ends later.
func (c translatingChains) Sweep(ctx context.Context) error {
	err := c.sweeper.Sweep(ctx)
	return errors.Join(err, c.ended.forget(ctx, err == nil))
}

// note reads the existing translations, before anything is written.
func (e *endedTranslations) note(ctx context.Context) {
	var err error
	if e.found, err = e.read(ctx); err != nil {
		klog.ErrorS(err, "Connections whose translation has ended meanwhile are kept")
	}
}

// forget deletes the connections whose translation is no longer there. If all leftovers are deleted, what is there is wanted.
func (e *endedTranslations) forget(ctx context.Context, swept bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.found) == 0 {
		return nil
	}
	now, err := e.read(ctx)
	if err != nil {
		return err
	}
	gone, given := maps.Clone(e.found), map[netip.Addr]bool{}
	for t := range now {
		given[t.to] = true
		delete(gone, t)
		if swept {
			delete(e.found, t)
		}
	}
	var ended []netip.Addr
	for t := range gone {
		if !given[t.to] && !slices.Contains(ended, t.to) {
			ended = append(ended, t.to)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := e.flush(ctx, func(src, to netip.Addr) bool { return gone[translation{src, to}] }, ended); err != nil {
		return err
	}
	maps.DeleteFunc(e.found, func(t translation, _ bool) bool { return gone[t] })
	return nil
}

// translationsOf returns a function that reads the kernel's translations for pods.
func translationsOf(families []topology.Family) func(ctx context.Context) (map[translation]bool, error) {
	return func(ctx context.Context) (map[translation]bool, error) {
		all := map[translation]bool{}
		for _, f := range families {
			text, err := iptables.Save(ctx, f, "nat")
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(text) {
				if t, ok := parseTranslation(line); ok {
					all[t] = true
				}
			}
		}
		return all, nil
	}
}

// parseTranslation parses a rule of the egress features' chains.
func parseTranslation(line string) (t translation, ok bool) {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "-A" || words[1] != egressservice.ChainSNAT && words[1] != egressip.ChainSNAT {
		return t, false
	}
	for i, word := range words[:len(words)-1] {
		switch word {
		case "-s":
			if p, err := netip.ParsePrefix(words[i+1]); err == nil && p.IsSingleIP() {
				t.pod = p.Addr()
			}
		case "--to-source":
			if a, err := netip.ParseAddr(words[i+1]); err == nil {
				t.to = a
			}
		}
	}
	return t, t.pod.IsValid() && t.to.IsValid()
}
