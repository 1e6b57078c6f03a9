package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// leavingContributor sorts after the contributors of all EgressServices, so that
// an expiring rule never takes precedence over one in use.
const leavingContributor = egressservice.Feature + "~leaving"

// leaving keeps rules that are no longer used for a while.
type leaving struct {
	deps   Deps
	flush  *flusher
	passes *host.Coalescer[error]
	wake   chan struct{}

	mu sync.Mutex
	// The keys are kept until the given times. Expired ones stay here until the kernel has
	// neither their rules nor their connections any more.
	translations map[released]time.Time
	ipRules      map[host.IPRule]time.Time
	// replies are the exemptions from expiring ip rules, by EgressService.
	replies map[string]leavingReplies
	// held are the EgressServices whose translations stay even when they have expired.
	held map[string]bool
	// unwritten: the kernel may lack a change.
	unwritten bool
}

type leavingReplies struct {
	rules host.Rules
	until time.Time
}

// released is an expiring translation.
type released struct {
	key string
	translation
}

func newLeaving(deps Deps, flush *flusher) *leaving {
	return &leaving{deps: deps, flush: flush, passes: host.NewCoalescer[error](), wake: make(chan struct{}, 1),
		translations: map[released]time.Time{}, ipRules: map[host.IPRule]time.Time{}, replies: map[string]leavingReplies{},
		held: map[string]bool{}}
}

// add takes over, also in the kernel, the state in have that is not in want, so that
// the caller may drop it. State in want is no longer expiring; back are the addresses for which it was.
func (l *leaving) add(ctx context.Context, key string, have, want contribution) (back map[netip.Addr]bool, err error) {
	until := time.Now().Add(l.deps.Linger)
	back = map[netip.Addr]bool{}
	l.mu.Lock()
	changed := false
	for addr, to := range want.translations {
		// It is in use; the expiring rule is the same, or comes after it.
		d := released{key, translation{addr, to}}
		if _, was := l.translations[d]; was {
			delete(l.translations, d)
			back[addr] = true
		}
	}
	// The kernel may have made those of an incomplete write as well.
	for _, translations := range []egressservice.Translations{have.translations, have.pending} {
		for addr, to := range translations {
			// An address with another translation now need not keep the previous one.
			if _, still := want.translations[addr]; !still {
				l.translations[released{key, translation{addr, to}}] = until
				changed = true
			}
		}
	}
	replaced := want.replaces()
	for r := range have.ipRules {
		if _, still := want.ipRules[r]; !still && !replaced(r) {
			l.ipRules[r] = until
			changed = true
			if len(have.replies) > 0 {
				l.replies[key] = leavingReplies{have.replies, until}
			}
		}
	}
	l.mu.Unlock()
	if !changed {
		return back, nil
	}
	l.poke()
	return back, l.write(ctx)
}

// dropReplaced removes the expiring ip rules that want replaces, once want is in place. Not earlier: in between, packets would take
// the main table.
func (l *leaving) dropReplaced(ctx context.Context, want contribution) error {
	replaced := want.replaces()
	l.mu.Lock()
	for r := range l.ipRules {
		if _, still := want.ipRules[r]; !still && replaced(r) {
			delete(l.ipRules, r)
			l.unwritten = true
		}
	}
	unwritten := l.unwritten
	l.mu.Unlock()
	if !unwritten {
		return nil
	}
	return l.write(ctx)
}

// matchOf returns an ip rule without its table. Of two rules with the same match and priority, the kernel uses
// the older one: a rule that expires beside one in use would take precedence.
func matchOf(r host.IPRule) host.IPRule {
	r.Table = 0
	return r
}

// replaces returns a function that reports whether an ip rule of former traffic would take the traffic of c elsewhere: it has the match
// of one of c's rules, or leads pods whose traffic c translates into another network.
func (c contribution) replaces() func(host.IPRule) bool {
	matches := make(map[host.IPRule]bool, len(c.ipRules))
	for r := range c.ipRules {
		matches[matchOf(r)] = true
	}
	return func(r host.IPRule) bool {
		_, translates := c.translations[r.Src.Addr()]
		return matches[matchOf(r)] || translates && r.Src.IsSingleIP() && r.Protocol == "" && r.Priority == topology.RuleEgressServiceNetwork
	}
}

// write contributes the expiring state.
func (l *leaving) write(ctx context.Context) error {
	failed, err := l.passes.Do(ctx, l.passes.Request(), l.pass)
	if err != nil {
		return err
	}
	return failed
}

func (l *leaving) pass(ctx context.Context) error {
	rules, ipRules := l.contribution(time.Now())
	err := l.deps.Chains.Apply(ctx, leavingContributor, rules)
	if err == nil {
		err = l.deps.IPRules.Apply(ctx, leavingContributor, ipRules)
	}
	if err != nil {
		l.mu.Lock()
		l.unwritten = true
		l.mu.Unlock()
		return fmt.Errorf("apply rules that are leaving: %w", err)
	}
	return nil
}

func (l *leaving) contribution(now time.Time) (host.Rules, map[host.IPRule]struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unwritten = false
	rules := host.Rules{}
	order, pods := l.lastFirst(now)
	for _, together := range order {
		for chain, list := range pods[together].Rules(together.key) {
			rules[chain] = append(rules[chain], list...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(l.replies)) {
		if kept := l.replies[key]; kept.until.After(now) {
			for chain, list := range kept.rules {
				rules[chain] = append(rules[chain], list...)
			}
		}
	}
	ipRules := map[host.IPRule]struct{}{}
	for r, until := range l.ipRules {
		if until.After(now) {
			ipRules[r] = struct{}{}
		}
	}
	return rules, ipRules
}

// leavingTranslations are the translations of an EgressService to an address that expire at the same time.
type leavingTranslations struct {
	key   string
	to    netip.Addr
	until time.Time
}

// lastFirst returns the expiring translations in the order in which they take precedence: if a pod has several,
// the one that was in use last. l.mu is held.
func (l *leaving) lastFirst(now time.Time) (order []leavingTranslations, pods map[leavingTranslations]egressservice.Translations) {
	pods = map[leavingTranslations]egressservice.Translations{}
	for d, until := range l.translations {
		if l.over(d, until, now) {
			continue
		}
		together := leavingTranslations{d.key, d.to, until}
		if pods[together] == nil {
			pods[together] = egressservice.Translations{}
		}
		pods[together][d.addr] = d.to
	}
	return slices.SortedFunc(maps.Keys(pods), func(a, b leavingTranslations) int {
		return cmp.Or(b.until.Compare(a.until), cmp.Compare(a.key, b.key), a.to.Compare(b.to))
	}), pods
}

// run removes expired state, until ctx is done.
func (l *leaving) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
			err := panics.Catch("egressservice-node", func() error { return l.expire(ctx) })
			if err != nil && ctx.Err() == nil {
				klog.ErrorS(err, "Cannot remove rules that are not used any more, will retry")
				timer.Reset(time.Second)
				continue
			}
		}
		timer.Reset(l.next(time.Now()))
	}
}

// next returns the time until the next expiry.
func (l *leaving) next(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := time.Hour
	for d, until := range l.translations {
		if until.After(now) || l.over(d, until, now) {
			wait = min(wait, until.Sub(now))
		}
	}
	for _, until := range l.ipRules {
		wait = min(wait, until.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// rest returns for how long the translations of an EgressService are still kept, or 0 if there are none.
func (l *leaving) rest(key string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := time.Duration(0)
	for r, until := range l.translations {
		if r.key == key {
			rest = max(rest, until.Sub(now))
		}
	}
	return rest
}

// hold keeps the translations of an EgressService even when they have expired, until the call of let.
func (l *leaving) hold(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[key] = true
}

// holds reports whether hold was called and let was not.
func (l *leaving) holds(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[key]
}

// let ends hold.
func (l *leaving) let(key string) {
	l.mu.Lock()
	was := l.held[key]
	delete(l.held, key)
	l.mu.Unlock()
	if was {
		l.poke()
	}
}

// over reports whether a translation that is kept until a time is to be removed; l.mu is held.
func (l *leaving) over(d released, until, now time.Time) bool {
	return !until.After(now) && !l.held[d.key]
}

// poke makes run look again when the next state expires.
func (l *leaving) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// expire removes expired state, and then the connections that still use it.
func (l *leaving) expire(ctx context.Context) error {
	now := time.Now()
	l.mu.Lock()
	translations, ipRules := expired(l.translations, now), expired(l.ipRules, now)
	maps.DeleteFunc(translations, func(d released, until time.Time) bool { return !l.over(d, until, now) })
	l.mu.Unlock()
	if err := l.write(ctx); err != nil {
		return err
	}
	ended := map[translation]bool{}
	for d := range translations {
		ended[d.translation] = true
	}
	if err := l.flush.ended(ctx, ended); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	drop(l.translations, translations)
	drop(l.ipRules, ipRules)
	maps.DeleteFunc(l.replies, func(_ string, kept leavingReplies) bool { return !kept.until.After(now) })
	return nil
}

// expired returns the entries that have expired.
func expired[K comparable](all map[K]time.Time, now time.Time) map[K]time.Time {
	some := map[K]time.Time{}
	for k, until := range all {
		if !until.After(now) {
			some[k] = until
		}
	}
	return some
}

// drop deletes the entries that were not prolonged meanwhile.
func drop[K comparable](all, some map[K]time.Time) {
	for k, until := range some {
		if all[k].Equal(until) {
			delete(all, k)
		}
	}
}
