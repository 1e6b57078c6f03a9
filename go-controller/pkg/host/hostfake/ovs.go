package hostfake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
)

// OVS is an ovs.Client in memory. Every port gets a number immediately and counts as installed as
// soon as it has the iface-id that is waited for, unless Stall says otherwise.
type OVS struct {
	// Stall, if set, selects interfaces whose OFPort and WaitInstalled wait until their context
	// ends.
	Stall func(iface string) bool

	mu        sync.Mutex
	bridges   map[string]ovs.Bridge
	ports     map[string]ovs.Port // by name
	system    map[string]string
	tls       ovs.TLS
	next      int
	writes    int
	reconnect []func()
	iface     []func(string)
}

var _ ovs.Client = (*OVS)(nil)

// NewOVS returns a database whose Open_vSwitch row has the given external_ids.
func NewOVS(externalIDs map[string]string) *OVS {
	o := &OVS{bridges: map[string]ovs.Bridge{}, ports: map[string]ovs.Port{}, system: map[string]string{}}
	maps.Copy(o.system, externalIDs)
	return o
}

// change runs f, which reports whether it changed anything, counts the write and notifies the
// listeners about iface, if any.
func (o *OVS) change(iface string, f func() bool) {
	o.mu.Lock()
	changed := f()
	if changed {
		o.writes++
	}
	calls := slices.Clone(o.iface)
	o.mu.Unlock()
	if !changed || iface == "" {
		return
	}
	for _, c := range calls {
		c(iface)
	}
}

// merge sets the keys of want in a copy of have; an empty value deletes.
func merge(have, want map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, have)
	for k, v := range want {
		if v == "" {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

// keep returns want, or have if want is zero.
func keep[T comparable](have, want T) T {
	var zero T
	if want == zero {
		return have
	}
	return want
}

// Pin implements ovs.Client: the database is never replaced.
func (o *OVS) Pin(ctx context.Context) (context.Context, error) { return ctx, nil }

// EnsureBridge implements ovs.Client.
func (o *OVS) EnsureBridge(_ context.Context, b ovs.Bridge) error {
	o.change("", func() bool {
		have, exists := o.bridges[b.Name]
		next := ovs.Bridge{
			Name: b.Name, DatapathType: keep(have.DatapathType, b.DatapathType),
			FailMode: keep(have.FailMode, b.FailMode), MAC: keep(have.MAC, b.MAC), Tag: max(0, keep(have.Tag, b.Tag)),
			OtherConfig: merge(have.OtherConfig, b.OtherConfig), ExternalIDs: merge(have.ExternalIDs, b.ExternalIDs),
		}
		if next.MAC != "" {
			next.OtherConfig["hwaddr"] = next.MAC
		}
		o.bridges[b.Name] = next
		return !exists || fmt.Sprint(have) != fmt.Sprint(next)
	})
	return nil
}

// DeleteBridge implements ovs.Client.
func (o *OVS) DeleteBridge(_ context.Context, name string) error {
	o.change("", func() bool {
		_, exists := o.bridges[name]
		delete(o.bridges, name)
		maps.DeleteFunc(o.ports, func(_ string, p ovs.Port) bool { return p.Bridge == name })
		return exists
	})
	return nil
}

// Bridges implements ovs.Client.
func (o *OVS) Bridges(context.Context) ([]ovs.Bridge, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Values(o.bridges), func(a, b ovs.Bridge) int { return strings.Compare(a.Name, b.Name) }), nil
}

// EnsurePort implements ovs.Client.
func (o *OVS) EnsurePort(_ context.Context, p ovs.Port) error {
	var err error
	o.change(p.Name, func() bool {
		if _, ok := o.bridges[p.Bridge]; !ok {
			err = fmt.Errorf("ensure port %s: bridge %s: %w", p.Name, p.Bridge, ovs.ErrNotFound)
			return false
		}
		have, exists := o.ports[p.Name]
		next := ovs.Port{
			Bridge: p.Bridge, Name: p.Name, Type: p.Type, MAC: keep(have.MAC, p.MAC), MTU: keep(have.MTU, p.MTU),
			Options: merge(have.Options, p.Options), ExternalIDs: merge(have.ExternalIDs, p.ExternalIDs),
			PortExternalIDs: merge(have.PortExternalIDs, p.PortExternalIDs), OFPort: have.OFPort,
			Trunks: p.Trunks,
		}
		if next.OFPort == 0 || have.Bridge != p.Bridge {
			o.next++
			next.OFPort = o.next
		}
		o.ports[p.Name] = next
		return !exists || fmt.Sprint(have) != fmt.Sprint(next)
	})
	return err
}

// DeletePort implements ovs.Client.
func (o *OVS) DeletePort(_ context.Context, bridge, name string) error {
	o.change(name, func() bool {
		p, exists := o.ports[name]
		if !exists || p.Bridge != bridge {
			return false
		}
		delete(o.ports, name)
		return true
	})
	return nil
}

// Ports implements ovs.Client.
func (o *OVS) Ports(_ context.Context, bridge string) ([]ovs.Port, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.bridges[bridge]; !ok {
		return nil, fmt.Errorf("bridge %s: %w", bridge, ovs.ErrNotFound)
	}
	var out []ovs.Port
	for _, name := range slices.Sorted(maps.Keys(o.ports)) {
		if p := o.ports[name]; p.Bridge == bridge {
			out = append(out, p)
		}
	}
	return out, nil
}

func (o *OVS) stalls(ctx context.Context, iface string) error {
	if o.Stall == nil || !o.Stall(iface) {
		return nil
	}
	<-ctx.Done()
	return fmt.Errorf("wait for %s: %w", iface, ctx.Err())
}

// OFPort implements ovs.Client.
func (o *OVS) OFPort(ctx context.Context, iface string) (int, error) {
	if err := o.stalls(ctx, iface); err != nil {
		return 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if p, ok := o.ports[iface]; ok {
		return p.OFPort, nil
	}
	return 0, fmt.Errorf("port number of %s: %w", iface, ovs.ErrNotFound)
}

// WaitInstalled implements ovs.Client.
func (o *OVS) WaitInstalled(ctx context.Context, iface, ifaceID string) error {
	if err := o.stalls(ctx, iface); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if p, ok := o.ports[iface]; !ok || p.ExternalIDs[ovs.IfaceID] != ifaceID {
		return fmt.Errorf("flows of %s: %w", iface, ovs.ErrNotFound)
	}
	return nil
}

// System implements ovs.Client.
func (o *OVS) System(context.Context) (map[string]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.system), nil
}

// Lacks implements ovs.Client: no capability is missing.
func (o *OVS) Lacks(context.Context, string) (bool, error) { return false, nil }

// SetSystem implements ovs.Client.
func (o *OVS) SetSystem(_ context.Context, ids map[string]string) error {
	o.change("", func() bool {
		before := o.system
		o.system = merge(before, ids)
		return !maps.Equal(before, o.system)
	})
	return nil
}

// SetTLS implements ovs.Client.
func (o *OVS) SetTLS(_ context.Context, files ovs.TLS) error {
	o.change("", func() bool {
		before := o.tls
		o.tls = files
		return before != files
	})
	return nil
}

// RestoreTLS implements ovs.Client. There never are files of anybody else.
func (o *OVS) RestoreTLS(ctx context.Context) error { return o.SetTLS(ctx, ovs.TLS{}) }

// ForgetController implements ovs.Client. There is none.
func (o *OVS) ForgetController(context.Context) error { return nil }

// Sync implements ovs.Client.
func (o *OVS) Sync(context.Context) error { return nil }

// OnReconnect implements ovs.Client.
func (o *OVS) OnReconnect(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reconnect = append(o.reconnect, f)
}

// OnInterface implements ovs.Client.
func (o *OVS) OnInterface(f func(string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.iface = append(o.iface, f)
}

// OnSystem implements ovs.Client: nobody else writes here.
func (o *OVS) OnSystem(func()) {}

// OnFlowsInstalled implements ovs.Client: there is no ovn-controller here.
func (o *OVS) OnFlowsInstalled(func()) {}

// Reconnect acts as if the connection had been lost and restored.
func (o *OVS) Reconnect() {
	o.mu.Lock()
	calls := slices.Clone(o.reconnect)
	o.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// Put sets a port as it is, including the port number, as others than the code under test do
// (ovn-controller makes patch ports); it is not counted.
func (o *OVS) Put(p ovs.Port) {
	o.mu.Lock()
	o.ports[p.Name] = p
	calls := slices.Clone(o.iface)
	o.mu.Unlock()
	for _, f := range calls {
		f(p.Name)
	}
}

// Writes returns how many calls changed something.
func (o *OVS) Writes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}
