// Package nbshow prints planned northbound rows the way ovn-nbctl prints them, for golden files that read like the
// documentation. It sorts what a database leaves unordered.
//
// Imported by tests only.
package nbshow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// Text prints rows under the headings of the ovn-nbctl commands show,
// lr-policy-list, lr-route-list, lr-nat-list and static-mac-binding-list.
func Text(rows []nb.Row) string {
	p := printer{children: map[nb.Parent][]nb.Row{}}
	for _, r := range rows {
		p.children[r.Parent] = append(p.children[r.Parent], r)
	}
	p.show()
	for _, r := range p.sorted(nb.Parent{}) {
		if lr, ok := r.Model.(*nbdb.LogicalRouter); ok {
			p.policies(lr.Name)
			p.routes(lr.Name)
			p.nats(lr.Name)
		}
	}
	p.bindings()
	return p.out.String()
}

type printer struct {
	out      strings.Builder
	children map[nb.Parent][]nb.Row
}

func (p *printer) printf(format string, args ...any) {
	p.out.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

func (p *printer) sorted(parent nb.Parent) []nb.Row {
	return slices.SortedFunc(slices.Values(p.children[parent]), func(a, b nb.Row) int {
		return cmp.Or(cmp.Compare(fmt.Sprintf("%T", a.Model), fmt.Sprintf("%T", b.Model)), cmp.Compare(a.ID, b.ID))
	})
}

func (p *printer) show() {
	p.printf("# show")
	for _, r := range p.sorted(nb.Parent{}) {
		switch m := r.Model.(type) {
		case *nbdb.LogicalSwitch:
			p.printf("switch %s%s%s%s", m.Name, set("other_config", m.OtherConfig), set("external_ids", m.ExternalIDs), groups(r))
			for _, c := range p.sorted(nb.Parent{Table: nbdb.LogicalSwitchTable, Name: m.Name}) {
				switch child := c.Model.(type) {
				case *nbdb.LogicalSwitchPort:
					p.switchPort(child)
				case *nbdb.ACL:
					p.printf("    acl %s %d (%s) %s", child.Direction, child.Priority, child.Match, child.Action)
				}
			}
		case *nbdb.LogicalRouter:
			p.printf("router %s%s%s%s", m.Name, set("options", m.Options), set("external_ids", m.ExternalIDs), groups(r))
			for _, c := range p.sorted(nb.Parent{Table: nbdb.LogicalRouterTable, Name: m.Name}) {
				if port, ok := c.Model.(*nbdb.LogicalRouterPort); ok {
					p.routerPort(port)
				}
			}
		case *nbdb.LoadBalancerGroup:
			p.printf("load_balancer_group %s", m.Name)
		}
	}
}

func (p *printer) switchPort(m *nbdb.LogicalSwitchPort) {
	p.printf("    port %s", m.Name)
	if m.Type != "" {
		p.printf("        type: %s", m.Type)
	}
	if m.TagRequest != nil {
		p.printf("        tag_request: %d", *m.TagRequest)
	}
	p.printf("        addresses: %q", m.Addresses)
	if len(m.PortSecurity) > 0 {
		p.printf("        port_security: %q", m.PortSecurity)
	}
	p.maps(m.Options, m.ExternalIDs)
}

func (p *printer) routerPort(m *nbdb.LogicalRouterPort) {
	p.printf("    port %s", m.Name)
	p.printf("        mac: %q", m.MAC)
	p.printf("        networks: %q", slices.Sorted(slices.Values(m.Networks)))
	p.maps(m.Options, m.ExternalIDs)
	for _, c := range p.sorted(nb.Parent{Table: nbdb.LogicalRouterPortTable, Name: m.Name}) {
		g := c.Model.(*nbdb.GatewayChassis)
		p.printf("        gateway chassis: %s [%s] priority %d", g.Name, g.ChassisName, g.Priority)
	}
}

func (p *printer) maps(options, ids map[string]string) {
	for _, s := range []string{set("options", options), set("external_ids", ids)} {
		if s != "" {
			p.printf("       %s", s)
		}
	}
}

// set prints a column that is a map: " NAME={k=v, ...}", or nothing.
func set(name string, m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return fmt.Sprintf(" %s={%s}", name, strings.Join(out, ", "))
}

func groups(r nb.Row) string {
	var out []string
	for _, ref := range r.Refs {
		out = append(out, ref.Name)
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf(" load_balancer_group=%v", out)
}

// section prints a heading and sorted lines; nothing if there are no lines.
func (p *printer) section(heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.printf("\n# %s", heading)
	for _, l := range slices.Sorted(slices.Values(lines)) {
		p.printf("%s", l)
	}
}

func (p *printer) of(router string, line func(nb.Row) string) []string {
	var lines []string
	for _, r := range p.children[nb.Parent{Table: nbdb.LogicalRouterTable, Name: router}] {
		if l := line(r); l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

func (p *printer) policies(router string) {
	p.section("lr-policy-list "+router, p.of(router, func(r nb.Row) string {
		m, ok := r.Model.(*nbdb.LogicalRouterPolicy)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%10d %s %s %s%s", m.Priority, m.Match, m.Action,
			strings.Join(slices.Sorted(slices.Values(m.Nexthops)), ", "), set("", m.Options)+set("external_ids", m.ExternalIDs))
	}))
}

func (p *printer) routes(router string) {
	p.section("lr-route-list "+router, p.of(router, func(r nb.Row) string {
		m, ok := r.Model.(*nbdb.LogicalRouterStaticRoute)
		if !ok {
			return ""
		}
		policy, port := "dst-ip", ""
		if m.Policy != nil {
			policy = *m.Policy
		}
		if m.OutputPort != nil {
			port = *m.OutputPort
		}
		bfd := ""
		if m.BFD != nil {
			bfd = " bfd=" + *m.BFD
		}
		for _, ref := range r.Refs {
			bfd += fmt.Sprintf(" %s=%s", ref.Column, ref.Name)
		}
		return fmt.Sprintf("%25s %25s %s %s%s%s%s", m.IPPrefix, m.Nexthop, policy, port, bfd, set("options", m.Options), set("external_ids", m.ExternalIDs))
	}))
}

func (p *printer) nats(router string) {
	p.section("lr-nat-list "+router, p.of(router, func(r nb.Row) string {
		m, ok := r.Model.(*nbdb.NAT)
		if !ok {
			return ""
		}
		port := ""
		if m.LogicalPort != nil {
			port = *m.LogicalPort
		}
		mac := ""
		if m.ExternalMAC != nil {
			mac = " " + *m.ExternalMAC
		}
		return fmt.Sprintf("%-10s %-25s %-20s %s%s%s%s", m.Type, m.ExternalIP, m.LogicalIP, port, mac, set("options", m.Options), set("external_ids", m.ExternalIDs))
	}))
}

func (p *printer) bindings() {
	var lines []string
	for _, r := range p.children[nb.Parent{}] {
		if m, ok := r.Model.(*nbdb.StaticMACBinding); ok {
			override := ""
			if m.OverrideDynamicMAC {
				override = " override_dynamic_mac"
			}
			lines = append(lines, fmt.Sprintf("%-25s %-15s %s%s", m.LogicalPort, m.IP, m.MAC, override))
		}
	}
	p.section("static-mac-binding-list", lines)
}
