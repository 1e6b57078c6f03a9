package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/google/nftables"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Cleanup removes all our chains and the jumps to them, from all tables of both families, including
// those of earlier runs. It uses the programs of each backend that the host has: the chains may
// have been written by the iptables of a container, and the host's own only sees those of its backend.
func Cleanup(ctx context.Context) error {
	var errs []error
	for _, f := range topology.Families {
		errs = append(errs, cleanup(ctx, f), left(f), leftInLegacy(f))
	}
	return errors.Join(errs...)
}

func cleanup(ctx context.Context, f topology.Family) error {
	nothing := map[string]goal{}
	for _, t := range []string{"filter", "mangle", "nat", "raw"} {
		nothing[t] = goal{swept: true}
	}
	found, err := installed(f)
	errs := []error{err}
	for _, p := range found {
		errs = append(errs, p.reconcile(ctx, nothing))
		legacy, err := p.legacy()
		errs = append(errs, err)
		if err == nil && !legacy { // legacy iptables cannot delete built-in chains, and would create the tables
			p.dropEmpty(ctx)
		}
	}
	return errors.Join(errs...)
}

// installed finds the programs of a family: the default ones, and those with a certain backend. The
// error is about those that cannot be used, or says that there are none.
func installed(f topology.Family) (found []*programs, err error) {
	var missing, broken []error
	for _, name := range []string{basename(f), basename(f) + "-nft", basename(f) + "-legacy"} {
		switch p, err := findNamed(f, name); {
		case err == nil:
			found = append(found, p)
		case errors.Is(err, exec.ErrNotFound):
			missing = append(missing, err)
		default:
			broken = append(broken, err)
		}
	}
	if len(found)+len(broken) == 0 {
		return nil, errors.Join(missing...)
	}
	return found, errors.Join(broken...)
}

// left fails if the kernel's nftables still have chains of ours, as on a host that has only legacy iptables.
func left(f topology.Family) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("look for chains in nftables: %w", err)
	}
	family, name := nftables.TableFamilyIPv4, "ip"
	if f == topology.IPv6 {
		family, name = nftables.TableFamilyIPv6, "ip6"
	}
	chains, err := c.ListChainsOfTableFamily(family)
	if err != nil {
		return fmt.Errorf("look for chains of %s in nftables: %w", f, err)
	}
	var ours []string
	for _, chain := range chains {
		if strings.HasPrefix(chain.Name, host.ChainPrefix) {
			ours = append(ours, name+" "+chain.Table.Name+" "+chain.Name)
		}
	}
	if len(ours) == 0 {
		return nil
	}
	return fmt.Errorf("these chains are still in nftables; install %s-nft if the host does not have it: %s", basename(f), strings.Join(ours, ", "))
}

// dropEmpty deletes built-in chains that jumped to ours if they are empty: with the nftables
// backend they are created with the first rule and are ordinary objects of the kernel. A chain
// stays if it is not empty, or if its policy is not the default.
func (p *programs) dropEmpty(ctx context.Context) {
	for _, chain := range []struct{ table, name string }{
		{"filter", "INPUT"}, {"filter", "FORWARD"}, {"mangle", "PREROUTING"}, {"mangle", "INPUT"}, {"mangle", "FORWARD"},
		{"nat", "PREROUTING"}, {"nat", "OUTPUT"}, {"nat", "POSTROUTING"},
	} {
		_, err := run(ctx, "", []string{p.path, "-w", lockSeconds, "-t", chain.table, "-X", chain.name})
		klog.V(4).InfoS("Deleting built-in chain, where it is empty", "family", p.family, "table", chain.table, "chain", chain.name, "err", err)
	}
}
