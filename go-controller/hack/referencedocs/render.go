package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// page is the page being written.
type page struct {
	*source
	strings.Builder
	used  map[string]bool // descriptions that were used
	shown map[string]bool // constants that are on the page
	errs  []error
}

// render writes the page.
func render(s *source) (string, error) {
	p := &page{source: s, used: map[string]bool{}, shown: map[string]bool{}}
	p.WriteString(head)
	for _, section := range []func(){
		p.policies, p.flows, p.marks, p.chains, p.nftables, p.routing, p.annotations, p.externalIDs, p.names,
	} {
		section()
	}
	p.complete()
	return p.String(), errors.Join(p.errs...)
}

func (p *page) fail(format string, args ...any) { p.errs = append(p.errs, fmt.Errorf(format, args...)) }

// describe returns the description for a key, or else the doc comment.
func (p *page) describe(key, name, doc string) string {
	if text, ok := texts[key]; ok {
		p.used[key] = true
		return text
	}
	text := strings.Join(strings.Fields(doc), " ")
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(text, name+" "), "is "), ".")
	if text == "" {
		p.fail("%s has neither a comment nor a description in texts.go", key)
		return ""
	}
	r, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(r)) + text[n:]
}

func (p *page) constant(c *constantDecl) string {
	p.shown[c.key()] = true
	return p.describe(c.key(), c.name, c.doc)
}

// table writes a Markdown table.
func (p *page) table(columns string, rows [][]string) {
	names := strings.Split(columns, "|")
	p.WriteString("\n| " + strings.Join(names, " | ") + " |\n" + strings.Repeat("| --- ", len(names)) + "|\n")
	for _, r := range rows {
		for i := range r {
			r[i] = strings.ReplaceAll(r[i], "|", `\|`)
		}
		p.WriteString("| " + strings.Join(r, " | ") + " |\n")
	}
}

// list returns the constants for which keep returns true, sorted by value: numbers in descending order, strings
// alphabetically.
func (p *page) list(keep func(*constantDecl) bool) []*constantDecl {
	var out []*constantDecl
	for _, c := range p.constants {
		if keep(c) {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *constantDecl) int {
		if a.isInt() && b.isInt() {
			x, _ := strconv.Atoi(a.text())
			y, _ := strconv.Atoi(b.text())
			return cmp.Or(cmp.Compare(y, x), cmp.Compare(a.key(), b.key()))
		}
		return cmp.Or(cmp.Compare(a.text(), b.text()), cmp.Compare(a.key(), b.key()))
	})
	return out
}

func prefixed(pkg string, prefixes ...string) func(*constantDecl) bool {
	return func(c *constantDecl) bool {
		return c.pkg == pkg && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.name, p) })
	}
}

func code(s string) string { return "`" + s + "`" }

func (p *page) policies() {
	p.WriteString(policiesHead)
	var rows [][]string
	for _, c := range p.list(prefixed("topology", "Priority")) {
		rows = append(rows, []string{c.text(), code(c.name), p.constant(c), p.describe("owner "+c.key(), "", "")})
	}
	p.table("priority|constant in `topology`|what it does|planned by", rows)
	p.WriteString(policiesTail)
}

func (p *page) flows() {
	p.WriteString(flowsHead)
	p.table("cookie|constant|meaning", [][]string{p.numbered("host/openflow.Cookie")})
	planned, err := flows(p.source.flows)
	if err != nil {
		p.errs = append(p.errs, err)
	}
	var rows [][]string
	for i, f := range planned {
		text := p.describe(f.key(), "", "")
		if i > 0 && planned[i-1].key() == f.key() {
			text = ""
		}
		rows = append(rows, []string{strconv.Itoa(f.table), strconv.Itoa(f.priority), code(cmp.Or(f.match, "any")), code(f.actions), f.planner, text})
	}
	p.table("table|priority|match|actions|`bridge.`|meaning", rows)
	p.WriteString("\nNamed in `bridge`, because something else depends on them:\n")
	rows = nil
	for _, c := range p.list(prefixed("bridge", "Priority", "priority", "Table", "table")) {
		rows = append(rows, []string{c.text(), code(c.name), p.constant(c)})
	}
	p.table("value|constant|meaning", rows)
	p.WriteString(flowsTail)
}

// numbered returns a row about one number.
func (p *page) numbered(key string) []string {
	c := p.byName[key]
	if c == nil || !c.isInt() {
		p.fail("there is no number %s", key)
		return nil
	}
	n, _ := strconv.ParseInt(c.text(), 10, 64)
	return []string{fmt.Sprintf("%#x", n), code(key), p.constant(c)}
}

func (p *page) marks() {
	p.WriteString(marksHead)
	var rows [][]string
	for _, c := range p.list(prefixed("topology", "Mark")) {
		n, _ := strconv.Atoi(c.text())
		rows = append(rows, []string{c.text(), fmt.Sprintf("%#x", n), code(c.name), p.constant(c)})
	}
	p.table("mark|in hexadecimal|constant in `topology`|meaning", rows)
	p.WriteString(conntrackHead)
	rows = nil
	for _, c := range p.list(prefixed("topology", "Conntrack")) {
		rows = append(rows, []string{c.text(), code(c.name), p.constant(c)})
	}
	p.table("value|constant in `topology`|meaning", rows)
	p.WriteString(conntrackTail)
}

func (p *page) chains() {
	p.WriteString(chainsHead)
	var rows [][]string
	for _, c := range chains() {
		for _, k := range p.list(func(k *constantDecl) bool { return k.isString() && k.text() == c.Name }) {
			p.shown[k.key()] = true
		}
		rows = append(rows, []string{c.Table, c.jumps(), strconv.Itoa(c.Position), code(c.Name), p.describe("chain "+c.Name, "", ""), code(c.pkg)})
	}
	p.table("table|from|position|chain|what it does|package", rows)
	p.WriteString(chainsTail)
}

func (p *page) nftables() {
	p.WriteString(nftablesHead)
	var rows [][]string
	for _, c := range p.list(func(c *constantDecl) bool {
		return c.pkg == "host/snatguard" && (c.isString() || c.name == "afterSNAT") || c.isString() && strings.HasPrefix(c.text(), "ovn-kube-")
	}) {
		rows = append(rows, []string{code(c.text()), p.constant(c), code(c.pkg)})
	}
	p.table("name|what it is|package", rows)
}

func (p *page) routing() {
	p.WriteString(routingHead)
	rules := p.list(prefixed("topology", "Rule"))
	slices.Reverse(rules)
	var rows [][]string
	for _, c := range rules {
		rows = append(rows, []string{c.text(), code(c.name), p.constant(c), p.describe("owner "+c.key(), "", "")})
	}
	p.table("priority|constant in `topology`|what it does|planned by", rows)
	p.WriteString(tablesHead)
	rows = nil
	for _, c := range p.list(func(c *constantDecl) bool {
		lower := strings.ToLower(c.name)
		return c.isInt() && c.pkg != "bridge" && (strings.HasSuffix(lower, "table") || strings.HasSuffix(lower, "tablebase"))
	}) {
		if p.shown[c.key()] = true; strings.EqualFold(c.name, "mainTable") && len(rows) > 0 && rows[len(rows)-1][0] == c.text() {
			rows[len(rows)-1][1] += ", " + code(c.pkg) // each package has its own name for it
			continue
		}
		rows = append(rows, []string{c.text(), code(c.pkg), p.constant(c)})
	}
	p.table("number|package|table", rows)
	p.WriteString(tablesTail)
	c := p.numbered("host.Protocol")
	p.table("protocol|constant|meaning", [][]string{{p.byName["host.Protocol"].text(), c[1], c[2]}})
}

func (p *page) annotations() {
	p.WriteString(annotationsHead)
	var rows [][]string
	seen := map[string]bool{}
	for _, c := range p.list(func(c *constantDecl) bool {
		return c.isString() && c.pkg != "nb/ovsdb" && (prefixed("kube", "Annotation", "Label", "Taint")(c) ||
			c.pkg != "config" && ours(c.text()) && strings.Contains(c.text(), "k8s.ovn.org/") ||
			strings.HasPrefix(c.name, "annotation"))
	}) {
		p.shown[c.key()] = true
		if seen[c.text()] {
			continue
		}
		seen[c.text()] = true
		on, by := "", ""
		if n, ok := strings.CutPrefix(p.describe("on "+c.text(), "", ""), "on "); ok {
			on, by, _ = strings.Cut(n, "; ")
		}
		rows = append(rows, []string{code(c.text()), on, by, p.describe("annotation "+c.text(), "", "")})
	}
	p.table("annotation, label or taint|on|written by|meaning", rows)
}

func (p *page) externalIDs() {
	p.WriteString(externalIDsHead)
	byKey := map[string][]string{}
	for _, id := range p.ids {
		byKey[id.key] = append(byKey[id.key], id.pkg)
	}
	for _, c := range p.list(func(c *constantDecl) bool {
		switch c.pkg {
		case "nb/ovsdb":
			return c.isString() && (strings.HasPrefix(c.text(), "k8s.ovn.org/") || c.name == "controllerName")
		case "cni":
			return prefixed("cni", "ID")(c)
		case "gateway/node":
			return prefixed("gateway/node", "id")(c)
		case "host/ovs":
			return c.isString() && c.file == "ovs.go" && !strings.Contains(c.text(), "/")
		}
		return c.isString() && strings.HasPrefix(c.name, "external")
	}) {
		p.shown[c.key()] = true
		if c.name != "ourPrefix" && c.name != "controllerName" {
			byKey[c.text()] = append(byKey[c.text()], c.pkg)
		}
	}
	var rows [][]string
	for _, key := range sorted(byKey) {
		pkgs := byKey[key]
		slices.Sort(pkgs)
		on, text, ok := strings.Cut(p.describe("id "+key, "", ""), ": ")
		if !ok {
			p.fail("the description of id %s does not begin with the rows that have it", key)
		}
		rows = append(rows, []string{code(key), on, text, code(strings.Join(slices.Compact(pkgs), "`, `"))})
	}
	p.table("key|rows|value|package", rows)
	p.WriteString(featuresHead)
	rows = nil
	for _, c := range p.list(func(c *constantDecl) bool {
		return c.isString() && (c.name == "Feature" || strings.HasPrefix(c.name, "Feature") || strings.HasSuffix(c.name, "Feature"))
	}) {
		if p.shown[c.key()] = true; c.pkg == "nb/ovsdb" {
			continue // the writer's own copies
		}
		rows = append(rows, []string{code(c.text()), p.describe("feature "+c.text(), "", ""), code(c.pkg)})
	}
	p.table("`owner-type`|`name`|package", rows)
}

func (p *page) names() {
	p.WriteString(namesHead)
	var rows [][]string
	for _, c := range p.list(func(c *constantDecl) bool {
		return c.pkg == "topology" && c.file == "names.go" && !strings.HasPrefix(c.text(), "OVN-KUBE-")
	}) {
		rows = append(rows, []string{code(c.text()), code(c.name), p.constant(c)})
	}
	patterns := map[string]string{}
	for _, f := range p.functions {
		patterns["{"+f.name+"}"] = f.pattern
	}
	for _, f := range p.functions {
		name := f.pattern
		for range 3 { // nested calls
			for call, pattern := range patterns {
				name = strings.ReplaceAll(name, call, pattern)
			}
		}
		if strings.Contains(name, "{") {
			p.fail("cannot tell the names that topology.%s returns: %s", f.name, name)
		}
		rows = append(rows, []string{code(name), code(f.name), p.describe("topology."+f.name, f.name, f.doc)})
	}
	p.table("name|in `topology`|what it is", rows)
	p.WriteString(rowsHead)
	rows = nil
	for _, c := range p.list(func(c *constantDecl) bool {
		return c.pkg == "noreroute" && c.isString() && c.file == "plan.go" && c.name != "Feature"
	}) {
		rows = append(rows, []string{code(c.text() + "_ip4"), "`Address_Set`, and its like for `ip6`: " + p.constant(c), code(c.pkg)})
	}
	for _, r := range p.rows {
		name, text, ok := strings.Cut(p.describe("row "+r.pkg+" "+r.table+" "+r.expr, "", ""), ": ")
		if ok && text != "" {
			rows = append(rows, []string{code(name), text, code(r.pkg)})
		}
	}
	p.table("name|what it is|package", rows)
}

// complete fails for everything that belongs on the page but is not there.
func (p *page) complete() {
	for _, c := range p.constants {
		role := c.isString() && ours(c.text()) && c.pkg != "config" ||
			c.pkg == "topology" && (c.file == "policy.go" || c.file == "names.go") ||
			c.pkg != "app" && c.isInt() && (strings.HasPrefix(strings.ToLower(c.name), "priority") || strings.HasPrefix(c.name, "Mark"))
		if role && !p.shown[c.key()] && c.key() != "host.ChainPrefix" {
			p.fail("%s = %s is not on the page", c.key(), c.text())
		}
	}
	for _, l := range p.loose {
		if texts["loose "+l] == "" {
			p.fail("%s: make it a constant, so that it comes onto the page", l)
		}
		p.used["loose "+l] = true
	}
	for _, key := range sorted(texts) {
		if !p.used[key] {
			p.fail("texts.go describes %q, which is not there", key)
		}
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
