package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// outcome is the result of a pass.
type outcome struct {
	err     error            // concerns every contributor
	refused map[string]error // by contributor
}

// all returns the errors of everybody.
func (o outcome) all() error {
	errs := []error{o.err}
	for _, name := range slices.Sorted(maps.Keys(o.refused)) {
		errs = append(errs, o.refused[name])
	}
	return errors.Join(errs...)
}

// apply writes the contributions of a round. The programs refuse a table as a whole, if only for one rule
// whose match the kernel does not have: then the contributors are found that have changed to such rules.
// They keep what is written of theirs, and everybody else's rules are written. It returns the contributions
// that are in the tables. The error concerns everybody: the former contributions cannot be written either.
func (p *programs) apply(ctx context.Context, r round) (written map[string]host.Rules, refused map[string]error, err error) {
	err = p.reconcile(ctx, r.goals(r.want))
	changed := r.changed()
	if err == nil || ctx.Err() != nil || len(changed) == 0 {
		return r.want, nil, err
	}
	written = maps.Clone(r.written)
	if written == nil {
		written = map[string]host.Rules{}
	}
	if err := p.reconcile(ctx, r.goals(written)); err != nil {
		return nil, nil, err
	}
	refused = map[string]error{}
	// try writes the contributions of some contributors, or of as many of them as it can.
	var try func(names []string) error
	try = func(names []string) error {
		with := maps.Clone(written)
		for _, name := range names {
			if with[name] = r.want[name]; with[name] == nil {
				delete(with, name)
			}
		}
		err := p.reconcile(ctx, r.goals(with))
		switch {
		case err == nil:
			written = with
			return nil
		case ctx.Err() != nil:
			return err
		case len(names) == 1:
			refused[names[0]] = fmt.Errorf("rules of %s: %w", names[0], err)
			klog.V(2).InfoS("Rules are refused", "contributor", names[0], "family", p.family, "err", err)
			return nil
		}
		half := len(names) / 2
		if err := try(names[:half]); err != nil {
			return err
		}
		return try(names[half:])
	}
	if err := try(changed); err != nil {
		return nil, nil, err
	}
	return written, refused, nil
}

// changed returns the contributors whose rules are not those that are written, sorted.
func (r round) changed() []string {
	names := maps.Clone(r.want)
	maps.Copy(names, r.written)
	var out []string
	for name := range names {
		if differ(r.family, r.written[name], r.want[name]) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
