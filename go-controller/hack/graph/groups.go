package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// kind is the kind of a package, which determines how it is drawn.
type kind string

const (
	command    kind = "command"
	wiring     kind = "wiring"
	glue       kind = "glue"
	pure       kind = "pure"
	kit        kind = "kit"
	driver     kind = "driver"
	vocabulary kind = "vocabulary"
)

// rows are the groups of packages from top to bottom. A group has the packages listed by name, and those below them
// that no other group lists.
var rows = [][]group{
	{{names: []string{"cmd/ovnkube"}, kind: command}, {names: []string{"cmd/ovn-k8s-cni-overlay"}, kind: command}},
	{{names: []string{"app"}, kind: wiring}},
	{{names: []string{"page"}, kind: kit}, {names: []string{"trace"}, kind: pure}},
	{{names: []string{"explain"}, kind: pure}, {names: []string{"adopt"}, kind: pure}},
	{
		{names: []string{"network"}, kind: pure}, {names: []string{"pod"}, kind: pure}, {names: []string{"cni"}, kind: pure},
		{names: []string{"gateway"}, kind: pure}, {names: []string{"service"}, kind: pure}, {names: []string{"egressservice"}, kind: pure},
		{names: []string{"egressip"}, kind: pure}, {names: []string{"externalroute"}, kind: pure},
	},
	{
		{names: []string{"noreroute"}, kind: pure}, {names: []string{"bridge"}, kind: pure}, {names: []string{"health"}, kind: kit},
		{names: []string{"pki/cluster"}, kind: kit},
	},
	{{names: []string{"reserved"}, kind: pure}},
	{
		{names: []string{"config"}, kind: kit}, {names: []string{"metrics"}, kind: kit}, {names: []string{"audit"}, kind: kit}, {names: []string{"authn"}, kind: kit},
		{title: "Kubernetes and queues", names: []string{"nodeinfo", "kube", "queue"}, kind: kit},
		{title: "drivers: OVN", names: []string{"nb/ovsdb", "sb"}, kind: driver},
		{title: "drivers: host", names: []string{"host/"}, kind: driver, columns: 4},
	},
	{
		{title: "API types", names: []string{"apis"}, kind: vocabulary, columns: 2}, {names: []string{"nb"}, kind: vocabulary},
		{names: []string{"place"}, kind: vocabulary}, {names: []string{"host"}, kind: vocabulary},
	},
	{{names: []string{"panics"}, kind: kit}, {names: []string{"waits"}, kind: kit}, {names: []string{"tcp"}, kind: kit}, {names: []string{"pki"}, kind: kit}, {names: []string{"raft"}, kind: kit}, {names: []string{"ovs/replica"}, kind: kit}, {names: []string{"topology"}, kind: vocabulary}},
}

// group is a group of packages that are drawn in one box.
type group struct {
	title   string
	names   []string // a name that ends with a slash: only packages below it
	kind    kind
	columns int // of packages; 0 means one
}

// takes returns how well a group fits a package: the length of the group's matching name.
func (g group) takes(pkg string) int {
	best := 0
	for _, n := range g.names {
		below := strings.HasPrefix(pkg, strings.TrimSuffix(n, "/")+"/")
		if pkg == n || below {
			best = max(best, len(n))
		}
	}
	return best
}

// node is a group in the picture, or a point where an arrow passes a row.
type node struct {
	group
	row      int
	packages []string
	passes   bool
	order    int

	x, y, w, h float64
	bottom     float64 // of the row
}

// arrow goes from a group to one that it imports; via are the points at which it passes the rows between them.
type arrow struct {
	from, to *node
	pure     bool // a pure package imports, not only glue
	via      []*node
}

// picture is everything that is drawn.
type picture struct {
	rows   [][]*node
	arrows []*arrow
	w, h   float64
}

// build assigns packages to groups and finds the arrows between them.
func build(imports map[string][]string) (*picture, error) {
	g := &picture{}
	var all []*node
	for i, row := range rows {
		g.rows = append(g.rows, nil)
		for _, gr := range row {
			n := &node{group: gr, row: i}
			g.rows[i] = append(g.rows[i], n)
			all = append(all, n)
		}
	}
	of := map[string]*node{}
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		n := slices.MaxFunc(all, func(a, b *node) int { return cmp.Compare(a.takes(pkg), b.takes(pkg)) })
		if n.takes(pkg) == 0 {
			return nil, fmt.Errorf("package %s has no place in the picture: give it one in rows", pkg)
		}
		n.packages = append(n.packages, pkg)
		of[pkg] = n
	}
	for _, n := range all {
		if len(n.packages) == 0 {
			return nil, fmt.Errorf("there is no package in %v any more: take it out of rows", n.names)
		}
		slices.SortFunc(n.packages, func(a, b string) int { // glue above what it calls
			return cmp.Or(cmp.Compare(rank(n, a), rank(n, b)), cmp.Compare(a, b))
		})
	}
	edges := map[*node]map[*node]bool{}
	pureEdge := map[[2]*node]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		for _, to := range imports[pkg] {
			a, b := of[pkg], of[to]
			switch {
			case b == nil:
				return nil, fmt.Errorf("%s imports %s, which is not there", pkg, to)
			case a == b:
				continue
			case a.row >= b.row:
				return nil, fmt.Errorf("%s imports %s, which is not below it in the picture", pkg, to)
			}
			if edges[a] == nil {
				edges[a] = map[*node]bool{}
			}
			edges[a][b] = true
			pureEdge[[2]*node{a, b}] = pureEdge[[2]*node{a, b}] || kindOf(a, pkg) != glue
		}
	}
	for _, a := range all {
		for _, b := range all {
			// Imports that are implied by a path through another group need no arrow of their own.
			longer := slices.ContainsFunc(all, func(m *node) bool { return edges[a][m] && m != b && reaches(edges, m, b) })
			if edges[a][b] && !longer && a.kind != wiring { // wiring imports everything
				g.arrows = append(g.arrows, &arrow{from: a, to: b, pure: pureEdge[[2]*node{a, b}]})
			}
		}
	}
	return g, nil
}

func reaches(edges map[*node]map[*node]bool, from, to *node) bool {
	for n := range edges[from] {
		if n == to || reaches(edges, n, to) {
			return true
		}
	}
	return false
}

// kindOf returns the kind of a package of a group: controllers and other packages that are not pure are recognized
// by name.
func kindOf(n *node, pkg string) kind {
	for _, role := range []string{"/master", "/node", "/snapshot", "/shim"} {
		if strings.HasSuffix(pkg, role) && n.kind != command {
			return glue
		}
	}
	return n.kind
}

func rank(n *node, pkg string) int {
	if kindOf(n, pkg) == glue {
		return 0
	}
	return 1
}

// label returns the name of a package within its group.
func (n *node) label(pkg string) string {
	if i := slices.IndexFunc(n.names, func(name string) bool {
		return strings.HasPrefix(pkg, strings.TrimSuffix(name, "/")+"/") && pkg != name
	}); i >= 0 && n.kind != command {
		return strings.TrimPrefix(strings.TrimPrefix(pkg, strings.TrimSuffix(n.names[i], "/")), "/")
	}
	return pkg
}
