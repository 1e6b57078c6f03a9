package adopt

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// database is all rows, with the indexes needed to recognize them.
type database struct {
	config Config
	known  map[string]bool // UUIDs
	// holders are the rows that refer to a row, by its UUID.
	holders map[string][]nb.Stored
	// mentions are the rows whose match refers to an address set, by its name.
	mentions map[string][]nb.Stored
	nodes    map[string]*node
	chassis  map[string]string     // node by the chassis of its gateway router
	pods     map[netip.Addr]string // key of the pod by address
	join     []netip.Addr          // addresses of the cluster router
}

// node is what the rows tell about a node.
type node struct {
	subnets  []netip.Prefix
	join     []netip.Addr
	external []netip.Addr
}

// setName matches a reference to an address set in a match.
var setName = regexp.MustCompile(`\$([A-Za-z_.][A-Za-z_.0-9]*)`)

func newDatabase(c Config, rows []nb.Stored) *database {
	d := &database{
		config: c, known: map[string]bool{}, holders: map[string][]nb.Stored{}, mentions: map[string][]nb.Stored{},
		nodes: map[string]*node{}, chassis: map[string]string{}, pods: map[netip.Addr]string{},
	}
	for _, r := range rows {
		d.known[r.UUID] = true
	}
	for _, r := range rows {
		for _, values := range r.Sets {
			for _, v := range values {
				if d.known[v] {
					d.holders[v] = append(d.holders[v], r)
				}
			}
		}
		for _, name := range setName.FindAllStringSubmatch(r.Value("match"), -1) {
			d.mentions[name[1]] = append(d.mentions[name[1]], r)
		}
	}
	// A node is anything with a port on the cluster router.
	for _, r := range rows {
		name, ok := strings.CutPrefix(r.Value("name"), topology.RouterToSwitch(""))
		if ok && r.Table == nbdb.LogicalRouterPortTable && parent(r).Name == topology.ClusterRouter {
			d.nodes[name] = &node{}
			for _, p := range prefixes(r.Sets["networks"]) {
				d.nodes[name].subnets = append(d.nodes[name].subnets, p.Masked())
			}
		}
	}
	for _, r := range rows {
		d.read(r)
	}
	return d
}

// read collects what is needed to recognize other rows.
func (d *database) read(r nb.Stored) {
	name := r.Value("name")
	switch r.Table {
	case nbdb.LogicalRouterPortTable:
		if name == topology.ClusterRouterToJoin {
			d.join = addrs(r)
		}
		for of, n := range d.nodes {
			switch name {
			case topology.GatewayToJoin(of):
				n.join = addrs(r)
			case topology.GatewayToExternal(of):
				n.external = addrs(r)
			}
		}
	case nbdb.LogicalRouterTable:
		if of, ok := d.gatewayRouter(name); ok && r.Maps["options"]["chassis"] != "" {
			d.chassis[r.Maps["options"]["chassis"]] = of
		}
	case nbdb.LogicalSwitchPortTable:
		if key, ok := d.podOf(r); ok {
			for _, text := range strings.Fields(strings.Join(r.Sets["addresses"], " ")) {
				if a, err := netip.ParseAddr(text); err == nil {
					d.pods[a] = key
				}
			}
		}
	}
}

// gatewayRouter returns the node of a gateway router.
func (d *database) gatewayRouter(name string) (string, bool) {
	of, ok := strings.CutPrefix(name, topology.GatewayRouter(""))
	return of, ok && d.nodes[of] != nil
}

// podOf returns the key of the pod of a port on a node's switch.
func (d *database) podOf(r nb.Stored) (string, bool) {
	ids := r.Maps["external_ids"]
	name, ok := strings.CutPrefix(r.Value("name"), topology.PodPort(ids["namespace"], ""))
	if !ok || ids["pod"] != "true" || ids["namespace"] == "" || name == "" || d.nodes[parent(r).Name] == nil {
		return "", false
	}
	return ids["namespace"] + "/" + name, true
}

// podKey returns the key of the pod that has an address, or a key that no pod can have.
func (d *database) podKey(a netip.Addr) string {
	if key, ok := d.pods[a]; ok {
		return key
	}
	return "gone_/" + a.String()
}

// nodeOf returns the node whose subnets contain an address, or all addresses of a range.
func (d *database) nodeOf(p netip.Prefix) (string, bool) {
	for name, n := range d.nodes {
		if slices.ContainsFunc(n.subnets, func(s netip.Prefix) bool { return s.Bits() <= p.Bits() && s.Contains(p.Addr()) }) {
			return name, true
		}
	}
	return "", false
}

// inCluster reports whether a range contains subnets of nodes, or is within one.
func (d *database) inCluster(p netip.Prefix) bool {
	for _, n := range d.nodes {
		if slices.ContainsFunc(n.subnets, p.Overlaps) {
			return true
		}
	}
	return false
}

// parent returns the row that has a row in its list; the zero Parent if there is none or several.
func parent(r nb.Stored) nb.Parent {
	if len(r.Parents) != 1 {
		return nb.Parent{}
	}
	return r.Parents[0]
}

// prefix parses a range or an address.
func prefix(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		return topology.HostPrefix(a), true
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err == nil
}

// addr parses an address, or a range of a single address.
func addr(text string) (netip.Addr, bool) {
	p, ok := prefix(text)
	return p.Addr(), ok && p.IsSingleIP()
}

func prefixes(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// addrs returns the addresses of a router port.
func addrs(port nb.Stored) (out []netip.Addr) {
	for _, p := range prefixes(port.Sets["networks"]) {
		out = append(out, p.Addr())
	}
	return out
}

// in returns the row that contains a row, whatever its table; the zero Parent if there is none or several.
func (d *database) in(r nb.Stored) nb.Parent {
	if len(d.holders[r.UUID]) != 1 {
		return nb.Parent{}
	}
	h := d.holders[r.UUID][0]
	return nb.Parent{Table: h.Table, Name: Name(h)}
}
