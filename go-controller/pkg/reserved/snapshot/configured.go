package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// Lookup resolves a host name, as net.Resolver.LookupNetIP does.
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// APIServersAt returns where a server is, given as for client-go: a URL, or a host with or without a port. A host name
// is resolved by lookup, if that is not nil.
func APIServersAt(ctx context.Context, server string, lookup Lookup) ([]netip.AddrPort, error) {
	if server == "" {
		return nil, nil
	}
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("parse the URL of the API server: %w", err)
	}
	port := uint64(443)
	if u.Scheme == "http" {
		port = 80
	}
	if text := u.Port(); text != "" {
		if port, err = strconv.ParseUint(text, 10, 16); err != nil {
			return nil, fmt.Errorf("parse the port of the API server: %w", err)
		}
	}
	addr, err := netip.ParseAddr(u.Hostname())
	addrs := []netip.Addr{addr}
	if err != nil {
		if lookup == nil {
			return nil, nil
		}
		if addrs, err = lookup(ctx, "ip", u.Hostname()); err != nil {
			return nil, fmt.Errorf("resolve the host name of the API server: %w", err)
		}
	}
	var at []netip.AddrPort
	for _, a := range addrs {
		at = append(at, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return at, nil
}

// NewAPIServers returns an informer of the addresses at which this process is configured to reach the API servers, as an
// EndpointSlice like that of the API servers themselves, which does not list a load balancer in front of them. A host name
// is resolved until there is an answer, and again all the time. The caller runs the informer.
func NewAPIServers(server string, lookup Lookup, ranges reserved.Ranges) cache.SharedIndexInformer {
	return newConfigured(server, lookup, ranges).informer()
}

// ConfiguredAPIServers returns the addresses that an informer of NewAPIServers knows.
func ConfiguredAPIServers(informer cache.SharedIndexInformer) []netip.AddrPort {
	var at []netip.AddrPort
	for _, obj := range informer.GetStore().List() {
		slice, is := obj.(*discoveryv1.EndpointSlice)
		if !is {
			continue
		}
		for addr, owners := range ownersIn(slice) {
			for _, port := range owners[0].Ports {
				at = append(at, netip.AddrPortFrom(addr, port))
			}
		}
	}
	slices.SortFunc(at, netip.AddrPort.Compare)
	return at
}

func newConfigured(server string, lookup Lookup, ranges reserved.Ranges) *configured {
	return &configured{server: server, lookup: lookup, ranges: ranges, interval: lookupInterval, missed: map[netip.AddrPort]int{}}
}

func (c *configured) informer() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: c.list, WatchFuncWithContext: c.watch}, &discoveryv1.EndpointSlice{}, 0, nil)
}

const (
	// lookupTimeout limits an attempt to resolve a host name. It is that of a connection of client-go, which includes the
	// same look-up: with less, a dead name server would be the only one to be asked.
	lookupTimeout = 30 * time.Second
	// lookupRetry is the pause after an attempt without an answer.
	lookupRetry = time.Second
	// lookupInterval is the pause after an answer. The informer adds up to a minute.
	lookupInterval = time.Minute
	// forgetAfter is how many answers in a row lack an address before it is forgotten: it may still be in use, and some name
	// servers answer with a different part of many addresses each time.
	forgetAfter = 60
)

// configured lists the API servers of the configuration.
type configured struct {
	server   string
	lookup   Lookup
	ranges   reserved.Ranges
	interval time.Duration
	// missed are the known addresses, with the number of answers that have lacked each since it was last in one.
	missed  map[netip.AddrPort]int
	failing bool // the last attempt
	lost    waits.Lost
}

// list returns the addresses as soon as there is an answer, if none are known, or as they were if there is no answer.
func (c *configured) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	defer c.lost.Set(waits.Wait{}, nil)
	for {
		limited, cancel := context.WithTimeout(ctx, lookupTimeout)
		servers, err := APIServersAt(limited, c.server, c.lookup)
		cancel()
		var dns *net.DNSError
		unanswered := errors.As(err, &dns) && !dns.IsNotFound
		if err == nil {
			c.answered(servers)
		} else if !c.failing {
			klog.ErrorS(err, "Cannot resolve the API server, whose address Services and egress features must not use", "server", c.server)
		}
		c.failing = err != nil
		// A name that does not exist is an answer: a proxy may resolve it.
		if !unanswered || len(c.missed) > 0 {
			known := slices.SortedFunc(maps.Keys(c.missed), netip.AddrPort.Compare)
			return &discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{*APIServerSlice(known, c.ranges)}}, nil
		}
		c.lost.Set(waits.Wait{Part: "informers", Object: c.server, For: "the addresses of the API server", Reason: waits.ReasonAPIServer}, err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookupRetry):
		}
	}
}

// answered takes an answer over.
func (c *configured) answered(servers []netip.AddrPort) {
	for known := range c.missed {
		c.missed[known]++
	}
	for _, s := range servers {
		c.missed[s] = 0
	}
	maps.DeleteFunc(c.missed, func(_ netip.AddrPort, answers int) bool { return answers >= forgetAfter })
}

// watch makes the informer list again after a while: nobody reports that a name has other addresses.
func (c *configured) watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(c.interval):
		return nil, apierrors.NewResourceExpired("time to resolve the host name again")
	}
}

// APIServerSlice returns configured API servers like the EndpointSlice of the API servers themselves. Only those on hosts of
// their own are in it: processes may also be configured to use a proxy on their own host, or the Service of the API servers.
func APIServerSlice(servers []netip.AddrPort, ranges reserved.Ranges) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{}
	slice.Namespace, slice.Name, _ = cache.SplitMetaNamespaceKey(apiServer)
	for _, s := range servers {
		if reserved.NoHost(s.Addr()) != "" || ranges.Refuse(s.Addr()) != (reserved.Refusal{}) {
			continue
		}
		port := int32(s.Port())
		slice.Ports = []discoveryv1.EndpointPort{{Port: &port}} // one, since there is one URL
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{s.Addr().String()}})
	}
	return slice
}
