package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Node subnets: an IPv4 subnet must have room for the router, the management port and a
// pod; an IPv6 subnet is always a /64.
const (
	maxHostPrefixLen4     = 29
	defaultHostPrefixLen4 = 24
	hostPrefixLen6        = 64
)

// words accepts any text, described by what.
func words(what string) kind[string] {
	return kind[string]{allowed: what, parse: func(t string) (string, bool) { return t, true }}
}

// path accepts an absolute path.
func path(what string) kind[string] {
	return kind[string]{allowed: "an absolute path to " + what, parse: func(t string) (string, bool) {
		return t, strings.HasPrefix(t, "/") && !strings.ContainsRune(t, 0)
	}}
}

// fileOrStdout accepts an absolute path, or "-".
func fileOrStdout() kind[string] {
	file := path("a file")
	return kind[string]{allowed: file.allowed + ", or - for standard output", parse: func(t string) (string, bool) {
		if t == "-" {
			return t, true
		}
		return file.parse(t)
	}}
}

// oneOf accepts one of the given words.
func oneOf[T ~string](choices ...T) kind[T] {
	list := make([]string, 0, len(choices))
	for _, c := range choices {
		list = append(list, string(c))
	}
	return kind[T]{allowed: strings.Join(list, " or "), parse: func(t string) (T, bool) {
		return T(t), slices.Contains(choices, T(t))
	}}
}

// name accepts a DNS label: the name of a namespace or an executable.
func name(what string) kind[string] {
	return kind[string]{
		allowed: what + ": lower case letters, digits and dashes, at most 63, no dash at either end",
		parse: func(t string) (string, bool) {
			for _, r := range t {
				if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
					return "", false
				}
			}
			return t, t != "" && len(t) <= 63 && !strings.HasPrefix(t, "-") && !strings.HasSuffix(t, "-")
		},
	}
}

// fileName accepts the name of a file without its directory.
func fileName(what string) kind[string] {
	return kind[string]{allowed: what + ", without a directory", parse: func(t string) (string, bool) {
		return t, t != "" && t != "." && t != ".." && !strings.ContainsAny(t, "/\x00")
	}}
}

// interfaceName accepts what the kernel accepts as the name of a link.
func interfaceName() kind[string] {
	return kind[string]{allowed: "the name of a network interface, at most 15 characters", parse: func(t string) (string, bool) {
		return t, t != "" && len(t) <= 15 && t != "." && t != ".." && !strings.ContainsFunc(t, func(r rune) bool {
			return r <= ' ' || r == '/' || r == ':' || r > '~'
		})
	}}
}

// boolean accepts the words for true and false that are usual in flags and files.
func boolean() kind[bool] {
	return kind[bool]{boolean: true, allowed: "true or false", parse: func(t string) (bool, bool) {
		switch strings.ToLower(t) {
		case "true", "yes", "on", "t", "1":
			return true, true
		case "false", "no", "off", "f", "0":
			return false, true
		}
		return false, false
	}}
}

// never accepts only false: the option exists, but its feature does not.
func never(why string) kind[bool] {
	b := boolean()
	return kind[bool]{boolean: true, allowed: "false (" + why + ")", parse: func(t string) (bool, bool) {
		v, ok := b.parse(t)
		return v, ok && !v
	}}
}

// number accepts a decimal integer from low to high.
func number(what string, low, high int) kind[int] {
	return kind[int]{
		allowed: fmt.Sprintf("%s from %d to %d", what, low, high),
		parse: func(t string) (int, bool) {
			v, err := strconv.Atoi(t)
			return v, err == nil && v >= low && v <= high
		},
	}
}

// duration accepts a whole number of units from low to high.
func duration(what string, unit time.Duration, low, high int) kind[time.Duration] {
	n := number(what, low, high)
	return kind[time.Duration]{allowed: n.allowed, parse: func(t string) (time.Duration, bool) {
		v, ok := n.parse(t)
		return time.Duration(v) * unit, ok
	}}
}

// special are the addresses that no host, pod or Service can have.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("ff00::/8"),
}

// ordinary says that special addresses are not allowed.
const ordinary = "; no loopback, multicast or unspecified addresses"

// address accepts one IP address.
func address() kind[netip.Addr] {
	return kind[netip.Addr]{allowed: "an IPv4 or IPv6 address" + ordinary, parse: parseAddr}
}

func parseAddr(t string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(t)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	a = a.Unmap()
	return a, !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// list accepts items separated by commas, none of them empty.
func list[T any](allowed string, item func(string) (T, bool)) kind[[]T] {
	return kind[[]T]{allowed: allowed, parse: func(t string) ([]T, bool) {
		var out []T
		for part := range strings.SplitSeq(t, ",") {
			v, ok := item(strings.TrimSpace(part))
			if !ok {
				return nil, false
			}
			out = append(out, v)
		}
		return out, true
	}}
}

// namespaces accepts names of namespaces separated by commas, or * for all, which is nil.
func namespaces() kind[[]string] {
	names := list("names of namespaces separated by commas, or *", name("").parse)
	return kind[[]string]{allowed: names.allowed, parse: func(t string) ([]string, bool) {
		if strings.TrimSpace(t) == "*" {
			return nil, true
		}
		return names.parse(t)
	}}
}

// addresses accepts IP addresses separated by commas.
func addresses() kind[[]netip.Addr] {
	return list("IPv4 or IPv6 addresses separated by commas"+ordinary, parseAddr)
}

// parsePrefix parses a range in CIDR form. Bits beyond the prefix length are cleared, as in
// OVN-Kubernetes.
func parsePrefix(t string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(t)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return p.Masked(), !slices.ContainsFunc(special, p.Overlaps)
}

// prefixes accepts ranges separated by commas.
func prefixes() kind[[]netip.Prefix] {
	return list("ranges in CIDR form separated by commas, e.g. 10.96.0.0/16,fd00:10:96::/112"+ordinary, parsePrefix)
}

// ranges accepts addresses and ranges separated by commas; an address is a range of one.
func ranges() kind[[]netip.Prefix] {
	return list("addresses or ranges in CIDR form separated by commas, e.g. fd00:ec2::254,168.63.129.16"+ordinary, func(t string) (netip.Prefix, bool) {
		if a, ok := parseAddr(t); ok {
			return topology.HostPrefix(a), true
		}
		return parsePrefix(t)
	})
}

// prefix accepts one range of family f that has at least the given number of host bits.
func prefix(f topology.Family, hostBits int) kind[netip.Prefix] {
	longest := f.Bits() - hostBits
	return kind[netip.Prefix]{
		allowed: fmt.Sprintf("an %s range in CIDR form, /%d or larger", f, longest) + ordinary,
		parse: func(t string) (netip.Prefix, bool) {
			p, ok := parsePrefix(t)
			return p, ok && topology.FamilyOf(p.Addr()) == f && p.Bits() <= longest
		},
	}
}

// clusterSubnets accepts "CIDR[/host prefix length]" separated by commas.
func clusterSubnets() kind[[]ClusterSubnet] {
	return list(fmt.Sprintf("CIDR[/length of a node's subnet] separated by commas, e.g. 10.244.0.0/16/24,fd00:10:244::/48/64; "+
		"the length is from the CIDR's own to %d (default %d) for IPv4, always %d for IPv6"+ordinary,
		maxHostPrefixLen4, defaultHostPrefixLen4, hostPrefixLen6), parseClusterSubnet)
}

func parseClusterSubnet(t string) (ClusterSubnet, bool) {
	cidr, length := t, ""
	if strings.Count(t, "/") == 2 {
		i := strings.LastIndexByte(t, '/')
		cidr, length = t[:i], t[i+1:]
	}
	p, ok := parsePrefix(cidr)
	if !ok {
		return ClusterSubnet{}, false
	}
	low, high, host := p.Bits(), maxHostPrefixLen4, defaultHostPrefixLen4
	if topology.FamilyOf(p.Addr()) == topology.IPv6 {
		low, high, host = hostPrefixLen6, hostPrefixLen6, hostPrefixLen6
	}
	if length != "" || strings.HasSuffix(t, "/") {
		n, err := strconv.Atoi(length)
		if err != nil {
			return ClusterSubnet{}, false
		}
		host = n
	}
	return ClusterSubnet{CIDR: p, HostPrefixLen: host}, host >= max(low, p.Bits()) && host <= high
}

// listenAddress accepts the address on which a server listens.
func listenAddress() kind[string] {
	return kind[string]{allowed: "an IP address and a port, e.g. 0.0.0.0:9409 or [::]:9409", parse: func(t string) (string, bool) {
		host, port, err := net.SplitHostPort(t)
		if err != nil || !validPort(port) {
			return "", false
		}
		_, err = netip.ParseAddr(host)
		return t, err == nil || host == "" || host == "localhost"
	}}
}

func validPort(t string) bool {
	p, err := strconv.ParseUint(t, 10, 16)
	return err == nil && p > 0
}

// serverURL accepts the URL of the API server.
func serverURL() kind[string] {
	return kind[string]{allowed: "a URL, http://host:port or https://host:port", parse: func(t string) (string, bool) {
		u, err := url.Parse(t)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return "", false
		}
		return t, u.Port() == "" || validPort(u.Port())
	}}
}

// endpoints accepts the members of a database cluster. "tcp://" is an older form of "tcp:".
func endpoints() kind[[]Endpoint] {
	k := list("tcp:HOST:PORT, ssl:HOST:PORT or unix:PATH, several of one scheme separated by commas, IPv6 in brackets", parseEndpoint)
	items := k.parse
	k.parse = func(t string) ([]Endpoint, bool) {
		list, ok := items(t)
		if !ok {
			return nil, false
		}
		other := func(e Endpoint) bool { return e.Scheme != list[0].Scheme }
		return list, !slices.ContainsFunc(list, other)
	}
	return k
}

func parseEndpoint(t string) (Endpoint, bool) {
	scheme, rest, _ := strings.Cut(t, ":")
	e := Endpoint{Scheme: Scheme(scheme)}
	switch e.Scheme {
	case SchemeUnix:
		e.Path = rest
		return e, strings.HasPrefix(rest, "/") && !strings.ContainsRune(rest, 0)
	case SchemeTCP, SchemeSSL:
		host, port, err := net.SplitHostPort(strings.TrimPrefix(rest, "//"))
		if err != nil || !validPort(port) || !validHost(host) {
			return Endpoint{}, false
		}
		p, _ := strconv.ParseUint(port, 10, 16)
		e.Host, e.Port = host, uint16(p)
		return e, true
	}
	return Endpoint{}, false
}

// validHost reports whether t is an IP address or looks like a DNS name.
func validHost(t string) bool {
	if _, err := netip.ParseAddr(t); err == nil {
		return true
	}
	notName := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}
	return t != "" && !strings.ContainsFunc(t, notName)
}
