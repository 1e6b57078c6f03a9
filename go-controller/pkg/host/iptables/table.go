package iptables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// table is one table as iptables-save prints it.
type table struct {
	chains map[string][]host.Rule // including built-in chains
}

// parse reads tables from the output of iptables-save. Other tables in it are ignored.
func parse(text string, names ...string) (map[string]table, error) {
	tables := map[string]table{}
	for _, name := range names {
		tables[name] = table{chains: map[string][]host.Rule{}}
	}
	var t table
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			t, inside = tables[line[1:]]
		case !inside || line == "" || strings.HasPrefix(line, "#") || line == "COMMIT":
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			if _, ok := t.chains[chain]; !ok {
				t.chains[chain] = nil
			}
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[len("-A "):], " ")
			t.chains[chain] = append(t.chains[chain], host.Rule(rule))
		default:
			return nil, fmt.Errorf("iptables-save printed a line of unknown form: %q", line)
		}
	}
	return tables, nil
}

// jumpRule returns the rule that jumps to a chain.
func jumpRule(j host.Jump, chain string) host.Rule {
	if j.Match == "" {
		return host.Rule("-j " + chain)
	}
	return host.Rule(j.Match + " -j " + chain)
}

// jumpsTo returns which of our chains a rule jumps to, if any.
func jumpsTo(r host.Rule) (string, bool) {
	i := strings.LastIndex(string(r), "-j ")
	if i < 0 || i > 0 && r[i-1] != ' ' {
		return "", false
	}
	target := string(r[i+len("-j "):])
	return target, strings.HasPrefix(target, host.ChainPrefix) && !strings.ContainsAny(target, " \"")
}

// goal is the desired content of one table of one family.
type goal struct {
	declared []host.Chain           // in the order of Position
	rules    map[string][]host.Rule // the union, by chain
	dropped  map[string]map[host.Rule]bool
	swept    bool
}

// plan returns the input of iptables-restore --noflush that brings have to g, or "" if nothing
// differs.
func plan(name string, have table, g goal) string {
	var chains, rules, rest strings.Builder
	for _, c := range g.declared {
		now, exists := have.chains[c.Name]
		want := g.rules[c.Name]
		if !g.swept {
			want = merge(now, want, g.dropped[c.Name])
		}
		if exists && slices.Equal(now, want) {
			continue
		}
		if exists {
			if edits, ok := edit(c.Name, now, want); ok {
				rules.WriteString(edits)
				continue
			}
		}
		fmt.Fprintf(&chains, ":%s - [0:0]\n", c.Name)
		for _, r := range want {
			fmt.Fprintf(&rules, "-A %s %s\n", c.Name, r)
		}
	}
	stale := undeclared(have, g)
	for _, from := range slices.Sorted(maps.Keys(have.chains)) {
		if !strings.HasPrefix(from, host.ChainPrefix) {
			planJumps(&rest, from, have.chains[from], wantedJumps(from, g.declared), stale)
		}
	}
	for _, from := range missingFrom(have, g.declared) {
		planJumps(&rest, from, nil, wantedJumps(from, g.declared), stale)
	}
	for _, c := range stale {
		fmt.Fprintf(&rest, "-F %s\n", c)
	}
	for _, c := range stale {
		fmt.Fprintf(&rest, "-X %s\n", c)
	}
	if chains.Len()+rules.Len()+rest.Len() == 0 {
		return ""
	}
	return "*" + name + "\n" + chains.String() + rules.String() + rest.String() + "COMMIT\n"
}

// edit returns the lines that turn a chain into the desired one rule by rule, if that is less than
// rewriting it: then the kernel leaves the other rules and their counters alone. ok is false if it
// is not less, or if rules change places.
func edit(chain string, now, want []host.Rule) (lines string, ok bool) {
	wanted := make(map[host.Rule]bool, len(want))
	for _, r := range want {
		wanted[r] = true
	}
	if len(wanted) != len(want) {
		return "", false
	}
	var out strings.Builder
	budget := len(want) / 2
	kept := make([]host.Rule, 0, len(now))
	for i := len(now) - 1; i >= 0; i-- { // from the end, so that rule numbers stay valid
		if wanted[now[i]] {
			kept = append(kept, now[i])
			continue
		}
		fmt.Fprintf(&out, "-D %s %d\n", chain, i+1)
		budget--
	}
	slices.Reverse(kept)
	next := 0
	for i, r := range want {
		if next < len(kept) && kept[next] == r {
			next++
			continue
		}
		fmt.Fprintf(&out, "-I %s %d %s\n", chain, i+1, r)
		budget--
	}
	return out.String(), next == len(kept) && budget >= 0
}

// undeclared lists our chains that are not declared, once they may be deleted.
func undeclared(have table, g goal) []string {
	var out []string
	for c := range have.chains {
		if g.swept && strings.HasPrefix(c, host.ChainPrefix) &&
			!slices.ContainsFunc(g.declared, func(d host.Chain) bool { return d.Name == c }) {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// wantedJumps lists the jumps with which the chain from has to begin.
func wantedJumps(from string, declared []host.Chain) []host.Rule {
	var out []host.Rule
	for _, c := range declared {
		for _, j := range c.Jumps {
			if j.From == from {
				out = append(out, jumpRule(j, c.Name))
			}
		}
	}
	return out
}

// missingFrom lists the built-in chains that declared jumps start from and that iptables-save does
// not print because nothing has used the table yet.
func missingFrom(have table, declared []host.Chain) []string {
	missing := map[string]bool{}
	for _, c := range declared {
		for _, j := range c.Jumps {
			if _, ok := have.chains[j.From]; !ok && !strings.HasPrefix(j.From, host.ChainPrefix) {
				missing[j.From] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// planJumps puts want at the beginning of the chain from and deletes other jumps to our chains.
// Jumps to undeclared chains stay until those chains are stale.
func planJumps(out *strings.Builder, from string, now, want []host.Rule, stale []string) {
	var have []host.Rule // the jumps that we may change, in order
	leading := 0         // how many rules at the top are already as wanted
	for i, r := range now {
		target, ours := jumpsTo(r)
		if !ours {
			continue
		}
		if slices.Contains(want, r) || slices.Contains(stale, target) || targets(want, target) {
			have = append(have, r)
		}
		if i == leading && leading < len(want) && r == want[leading] {
			leading++
		}
	}
	if slices.Equal(have, want) && leading == len(want) {
		return
	}
	for _, r := range have {
		fmt.Fprintf(out, "-D %s %s\n", from, r)
	}
	for i, r := range want {
		fmt.Fprintf(out, "-I %s %d %s\n", from, i+1, r)
	}
}

// targets reports whether one of the jumps goes to chain.
func targets(jumps []host.Rule, chain string) bool {
	return slices.ContainsFunc(jumps, func(j host.Rule) bool {
		t, _ := jumpsTo(j)
		return t == chain
	})
}

// merge returns want, with the rules of now that no contributor wants: after the last new rule, since
// new rules take precedence over all of them, and otherwise in their places as far as the order of
// want allows. Those in dropped are not kept.
func merge(now, want []host.Rule, dropped map[host.Rule]bool) []host.Rule {
	at := make(map[host.Rule]int, len(now))
	for i, r := range now {
		at[r] = i
	}
	wanted := make(map[host.Rule]bool, len(want))
	fresh := 0 // how many new rules are still to come
	for _, r := range want {
		wanted[r] = true
		if _, ok := at[r]; !ok {
			fresh++
		}
	}
	var out []host.Rule
	next := 0
	keep := func(until int) {
		for ; next < until; next++ {
			if r := now[next]; !wanted[r] && !dropped[r] {
				out = append(out, r)
			}
		}
	}
	for _, r := range want {
		switch i, ok := at[r]; {
		case !ok:
			fresh--
		case fresh == 0 && i >= next:
			keep(i)
			next = i + 1
		}
		out = append(out, r)
	}
	keep(len(now))
	return out
}
