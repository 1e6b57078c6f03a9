package ovs

import (
	"maps"
	"slices"
	"strings"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
)

// written is what this process has last written, to notice that others have changed or removed it. Everything else in
// these rows belongs to others, e.g. to ovn-controller, which often writes there.
type written struct {
	system  map[string]string
	tls     TLS
	bridges map[string]Bridge
	ports   map[string]Port
}

const (
	// zonePrefix is the prefix of the external_ids keys in which ovn-controller stores its conntrack zones. Those that were
	// restored are its own again: it removes each with its pod.
	zonePrefix = "ct-zone-"
	// idSystem is the external_ids key of the identity of this host, which must not be missing, whoever has written it.
	idSystem = "system-id"
)

// record changes what counts as written. It is called before the transaction, so that the event of the
// transaction shows what is wanted.
func (db *DB) record(change func(*written)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	change(&db.written)
}

func (w *written) setSystem(ids map[string]string) { w.system = over(w.system, ids) }

func (w *written) setBridge(want Bridge) {
	have := w.bridges[want.Name]
	ids := maps.Clone(want.ExternalIDs)
	maps.DeleteFunc(ids, func(key, _ string) bool { return strings.HasPrefix(key, zonePrefix) })
	have.OtherConfig, have.ExternalIDs = over(have.OtherConfig, want.config()), over(have.ExternalIDs, ids)
	if want.FailMode != "" {
		have.FailMode = want.FailMode
	}
	if want.DatapathType != "" {
		have.DatapathType = want.DatapathType
	}
	if want.Tag != 0 {
		have.Tag = want.Tag
	}
	w.bridges = set(w.bridges, want.Name, have)
}

func (w *written) setPort(want Port) {
	ids := over(w.ports[want.Name].PortExternalIDs, want.PortExternalIDs)
	w.ports = set(w.ports, want.Name, Port{Bridge: want.Bridge, Trunks: slices.Sorted(slices.Values(want.Trunks)), PortExternalIDs: ids})
}

func (w *written) forgetBridge(name string) {
	delete(w.bridges, name)
	maps.DeleteFunc(w.ports, func(_ string, p Port) bool { return p.Bridge == name })
}

// over returns a copy of have with the keys of want, including those whose value is empty because they are deleted.
func over(have, want map[string]string) map[string]string {
	out := maps.Clone(have)
	for k, v := range want {
		out = set(out, k, v)
	}
	return out
}

func set[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

// reverted reports whether a change of a row takes away what was written: a difference that was there before is
// none of that change.
func reverted[T comparable](want, before, now T) bool { return before == want && now != want }

func revertedKeys(want, before, now map[string]string) bool {
	for k, v := range want {
		if reverted(v, before[k], now[k]) {
			return true
		}
	}
	return false
}

// undone reports whether a change of a row, other than of an interface, takes away what was written: in the Open_vSwitch
// row or the TLS files, or in the bridge or port whose name it returns. Added and removed bridges and ports are
// those of their interfaces.
func (w *written) undone(old, new model.Model) (system bool, name string) {
	switch now := new.(type) {
	case *vswitchd.OpenvSwitch:
		before, ok := old.(*vswitchd.OpenvSwitch)
		lost := ok && before.ExternalIDs[idSystem] != "" && now.ExternalIDs[idSystem] == ""
		return ok && (lost || revertedKeys(w.system, before.ExternalIDs, now.ExternalIDs) || w.tls != (TLS{}) && before.SSL != nil && now.SSL == nil), ""
	case *vswitchd.SSL: // also a new one, which replaces the one before
		have := TLS{now.PrivateKey, now.Certificate, now.CaCert}
		return w.tls != (TLS{}) && (have != w.tls || now.ExternalIDs[idTLSBefore] == ""), ""
	case *vswitchd.Bridge:
		want, ok := w.bridges[now.Name]
		before, _ := old.(*vswitchd.Bridge)
		if ok && before != nil && (revertedKeys(want.ExternalIDs, before.ExternalIDs, now.ExternalIDs) ||
			revertedKeys(want.OtherConfig, before.OtherConfig, now.OtherConfig) ||
			want.FailMode != "" && reverted(want.FailMode, value(before.FailMode), value(now.FailMode)) ||
			want.DatapathType != "" && reverted(want.DatapathType, before.DatapathType, now.DatapathType)) {
			return false, now.Name
		}
	case *vswitchd.Port:
		if before, ok := old.(*vswitchd.Port); ok && w.undonePort(before, now) {
			return false, now.Name
		}
	}
	return false, ""
}

func (w *written) undonePort(before, now *vswitchd.Port) bool {
	if tag := w.bridges[now.Name].Tag; tag != 0 && reverted(max(0, tag), value(before.Tag), value(now.Tag)) {
		return true
	}
	want, ok := w.ports[now.Name]
	trunks := func(p *vswitchd.Port) bool { return slices.Equal(want.Trunks, slices.Sorted(slices.Values(p.Trunks))) }
	return ok && (revertedKeys(want.PortExternalIDs, before.ExternalIDs, now.ExternalIDs) || reverted(true, trunks(before), trunks(now)))
}
