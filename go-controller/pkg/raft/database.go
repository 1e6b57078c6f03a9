package raft

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// Database is one of OVN's databases, as seen by a member of its cluster.
type Database struct {
	// Name is the short name: nb or sb.
	Name string
	// Schema is the name of the database, and SchemaFile the path of its installed schema.
	Schema, SchemaFile string
	// File is the member's database file; Socket and Control are the sockets on which its running server serves
	// clients and takes commands. LeaderSocket is the socket on which Lead connects clients to the leader.
	File, Socket, Control, LeaderSocket string
	// Port is the port for traffic between members.
	Port int
}

// Ports for traffic between members; those for clients are 6641 to 6643.
const (
	northboundPort = 6644
	southboundPort = 6645
)

// Databases returns both databases, with files in data and sockets in run.
func Databases(data, run string) []Database {
	database := func(name, schema string, port int) Database {
		base := "ovn" + name + "_db"
		return Database{
			Name: name, Schema: schema, Port: port,
			SchemaFile: "/usr/share/ovn/ovn-" + name + ".ovsschema",
			File:       filepath.Join(data, base+".db"),
			Socket:     "unix:" + filepath.Join(run, base+".sock"),
			Control:    filepath.Join(run, base+".ctl"),

			LeaderSocket: filepath.Join(run, "ovn"+name+"_leader.sock"),
		}
	}
	return []Database{database("nb", "OVN_Northbound", northboundPort), database("sb", "OVN_Southbound", southboundPort)}
}

// Members are the servers of a cluster.
type Members struct {
	// Scheme is the scheme of connections between members: ssl or tcp.
	Scheme string
	// Clients are the addresses on which they serve clients, each on its own node. The first one creates the
	// cluster.
	Clients []netip.AddrPort
}

// ParseMembers parses the members from their client addresses, SCHEME:ADDRESS:PORT separated by commas.
func ParseMembers(list string) (Members, error) {
	var m Members
	for text := range strings.SplitSeq(list, ",") {
		scheme, rest, _ := strings.Cut(text, ":")
		at, err := netip.ParseAddrPort(rest)
		if err != nil || scheme != "ssl" && scheme != "tcp" {
			return Members{}, fmt.Errorf("%q: no member; allowed: ssl:ADDRESS:PORT or tcp:ADDRESS:PORT, separated by commas, IPv6 in brackets", text)
		}
		if m.Scheme != "" && scheme != m.Scheme {
			return Members{}, fmt.Errorf("%q: %s beside %s; allowed: one of them for all members", text, scheme, m.Scheme)
		}
		m.Scheme = scheme
		if m.has(at.Addr()) {
			return Members{}, fmt.Errorf("%q: address given twice; allowed: one member for each node", text)
		}
		m.Clients = append(m.Clients, at)
	}
	return m, nil
}

func (m Members) has(a netip.Addr) bool {
	return slices.ContainsFunc(m.Clients, func(c netip.AddrPort) bool { return c.Addr() == a })
}

// endpoint returns where the other members reach the member with an address.
func (m Members) endpoint(a netip.Addr, port int) string {
	return m.Scheme + ":" + netip.AddrPortFrom(a, uint16(port)).String()
}
