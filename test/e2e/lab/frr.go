package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// frrDir is where FRR's daemons keep their files on a machine.
const frrDir = "/run/frr-e2e"

// startFRR starts one of FRR's daemons on a machine, and zebra, which all of them need, if it is
// not running yet.
func (l *Lab) startFRR(ctx context.Context, machine, daemon, config string, args ...string) error {
	_, err := l.Kin.Exec(ctx, machine, "sh", "-ec", fmt.Sprintf(`mkdir -p %[1]s; chmod 777 %[1]s; printf %%s '%[3]s' >%[1]s/%[2]s.conf
test -e %[1]s/zebra.pid || /usr/lib/frr/zebra -d -i %[1]s/zebra.pid -z %[1]s/zserv.api --vty_socket %[1]s -P 0 --log file:%[1]s/zebra.log -f /dev/null 2>&1
rm -f %[1]s/%[2]s.pid
/usr/lib/frr/%[2]s -d -i %[1]s/%[2]s.pid -z %[1]s/zserv.api --vty_socket %[1]s -P 0 --log file:%[1]s/%[2]s.log -f %[1]s/%[2]s.conf %[4]s 2>&1`,
		frrDir, daemon, config, strings.Join(args, " ")))
	return err
}

// Router is a machine outside the cluster that learns by BGP through which node an address is
// reached.
type Router struct {
	Name string
	// Addresses are the router's addresses on the nodes' wire, IPv4 first.
	Addresses []netip.Addr
	// AS is the router's autonomous system number.
	AS uint32
}

// AddRouter adds a router that accepts sessions from all nodes, which are in the autonomous system
// nodesAS, and the routes they advertise.
func (l *Lab) AddRouter(ctx context.Context, nodesAS uint32) (Router, error) {
	r := Router{Name: "router", AS: 64500, Addresses: []netip.Addr{
		netip.MustParseAddr("172.18.0.200"), netip.MustParseAddr("fc00:f853:ccd:e793::200"),
	}}
	if err := l.Kin.AddHost(ctx, r.Name, "", r.Addresses[0].String(), r.Addresses[1].String()); err != nil {
		return r, err
	}
	if _, err := l.Kin.Exec(ctx, r.Name, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"); err != nil {
		return r, err
	}
	config := fmt.Sprintf(`router bgp %d
 bgp router-id %s
 no bgp ebgp-requires-policy
 neighbor nodes peer-group
 neighbor nodes remote-as %d
 neighbor nodes timers 1 3
 bgp listen range 172.18.0.0/16 peer-group nodes
`, r.AS, r.Addresses[0], nodesAS)
	return r, l.startFRR(ctx, r.Name, "bgpd", config)
}

// BGPPeers returns the addresses of the nodes with which the router has a session, sorted.
func (l *Lab) BGPPeers(ctx context.Context, r Router) ([]netip.Addr, error) {
	var summary struct {
		Unicast struct {
			Peers map[netip.Addr]struct {
				State string `json:"state"`
			} `json:"peers"`
		} `json:"ipv4Unicast"`
	}
	if err := l.showBGP(ctx, r, "summary", &summary); err != nil {
		return nil, err
	}
	peers := []netip.Addr{}
	for address, p := range summary.Unicast.Peers {
		if p.State == "Established" {
			peers = append(peers, address)
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	return peers, nil
}

// NextHops returns the addresses of the nodes that advertise an address to the router, sorted: all
// next hops, not only the one in use.
func (l *Lab) NextHops(ctx context.Context, r Router, address netip.Addr) ([]netip.Addr, error) {
	family := map[bool]string{true: "ipv4", false: "ipv6"}[address.Is4()]
	var route struct {
		Paths []struct {
			Nexthops []struct {
				IP netip.Addr `json:"ip"`
			} `json:"nexthops"`
		} `json:"paths"`
	}
	what := fmt.Sprintf("%s unicast %s", family, netip.PrefixFrom(address, address.BitLen()))
	if err := l.showBGP(ctx, r, what, &route); err != nil {
		return nil, err
	}
	hops := []netip.Addr{}
	for _, p := range route.Paths {
		for _, h := range p.Nexthops {
			hops = append(hops, h.IP)
		}
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return hops, nil
}

// showBGP queries the router's bgpd.
func (l *Lab) showBGP(ctx context.Context, r Router, what string, answer any) error {
	out, err := l.Kin.Exec(ctx, r.Name, "vtysh", "--vty_socket", frrDir, "-d", "bgpd", "-c", "show bgp "+what+" json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), answer); err != nil {
		return fmt.Errorf("read the router's answer %q: %w", out, err)
	}
	return nil
}
