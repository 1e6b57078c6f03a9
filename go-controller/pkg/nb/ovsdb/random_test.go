package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// world is a random sequence of desired states over several owners.
type world struct {
	rng     *rand.Rand
	owners  []nb.Owner
	desired map[nb.Owner][]nb.Row
}

func newWorld(seed uint64) *world {
	x := &world{rng: rand.New(rand.NewPCG(seed, 1)), desired: map[nb.Owner][]nb.Row{}}
	x.owners = []nb.Owner{network}
	for i := range 3 {
		x.owners = append(x.owners, nb.Owner{Feature: "network", Object: fmt.Sprintf("n%d", i)},
			nb.Owner{Feature: "egressservice", Object: fmt.Sprintf("ns/s%d", i)})
	}
	return x
}

func (x *world) pick(from ...string) string { return from[x.rng.IntN(len(from))] }

func (x *world) some(p float64) bool { return x.rng.Float64() < p }

// step gives one owner a new desired state.
func (x *world) step() nb.Owner {
	o := x.owners[x.rng.IntN(len(x.owners))]
	var rows []nb.Row
	switch {
	case o == network:
		rows = x.cluster()
	case o.Feature == "network":
		if x.some(0.8) {
			rows = x.node(o.Object)
		}
	default:
		rows = x.service(o.Object)
	}
	x.desired[o] = rows
	return o
}

func (x *world) cluster() []nb.Row {
	// The group stays: switches of other owners refer to it.
	rows := []nb.Row{{ID: "clusterLBGroup", Model: &nbdb.LoadBalancerGroup{Name: "clusterLBGroup"}}}
	for _, name := range []string{"r0", "r1"} {
		if x.some(0.9) {
			r := router(name)
			r.ID += x.pick("", "", "-again") // another ID is another row
			rows = append(rows, r)
		}
	}
	return rows
}

func (x *world) node(node string) []nb.Row {
	var rows []nb.Row
	for _, r := range nodeRows(node) {
		switch m := r.Model.(type) {
		case *nbdb.LogicalSwitch:
			if x.some(0.5) {
				r.Refs = nil
			}
		case *nbdb.NAT:
			m.ExternalIP = x.pick("172.18.0.3", "172.18.0.4")
			if x.some(0.3) {
				r.Parent.Name = x.pick("r0", "r1")
			}
		case *nbdb.StaticMACBinding:
			m.MAC = x.pick("0a:58:64:40:00:01", "0a:58:64:40:00:09")
			if x.some(0.3) {
				continue
			}
		case *nbdb.LogicalRouterPort:
			x.rng.Shuffle(len(m.Networks), func(i, j int) { m.Networks[i], m.Networks[j] = m.Networks[j], m.Networks[i] })
		}
		rows = append(rows, r)
	}
	x.rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows
}

func (x *world) service(object string) []nb.Row {
	var rows []nb.Row
	for i := range x.rng.IntN(6) {
		p := policy(fmt.Sprintf("10.244.%d.%s", i, object[len(object)-1:]), x.pick("10.244.1.2", "10.244.2.2"))
		p.Parent.Name = x.pick("r0", "r0", "r1")
		m := p.Model.(*nbdb.LogicalRouterPolicy)
		m.ExternalIDs = map[string]string{"EgressSVC": object}
		if x.some(0.3) {
			m.Options = map[string]string{"pkt_mark": "1008"}
			delete(m.ExternalIDs, "EgressSVC")
		}
		rows = append(rows, p)
	}
	if x.some(0.5) {
		rows = append(rows, nb.Row{ID: "set", Model: &nbdb.AddressSet{
			Name: strings.ReplaceAll(object, "/", "_") + x.pick("", "_b"), Addresses: []string{x.pick("10.0.0.1", "10.0.0.2"), "10.0.0.3"}},
		})
	}
	if x.some(0.7) {
		rows = append(rows, x.large(object)...)
	}
	return rows
}

// large returns rows with large sets and maps, of which the writer sends only the elements that change.
func (x *world) large(object string) []nb.Row {
	name := strings.ReplaceAll(object, "/", "_") + "_large"
	n, missing := x.rng.IntN(130), x.rng.IntN(130)
	var addrs []string
	vips, variables := map[string]string{}, map[string]string{}
	for i := range n {
		if i == missing {
			continue
		}
		addrs = append(addrs, fmt.Sprintf("10.1.0.%d", i))
		vips[fmt.Sprintf("10.96.0.1:%d", 1000+i)] = "10.244.0.3:80"
		variables[fmt.Sprintf("V%d", i)] = "a"
	}
	if n > 0 {
		addrs = append(addrs, fmt.Sprintf("10.1.0.%d", x.rng.IntN(n))) // perhaps twice
		vips[fmt.Sprintf("10.96.0.1:%d", 1000+x.rng.IntN(n))] = x.pick("10.244.0.4:80", "10.244.0.5:80")
		variables[fmt.Sprintf("V%d", x.rng.IntN(n))] = x.pick("b", "c")
	}
	x.rng.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return []nb.Row{
		{ID: "large", Model: &nbdb.AddressSet{Name: name, Addresses: addrs}},
		{ID: "large", Model: &nbdb.LoadBalancer{Name: name, Vips: vips}},
		{ID: "large", Model: &nbdb.ChassisTemplateVar{Chassis: name, Variables: variables}},
	}
}

// settle applies what every owner wants, as their keys would after errors and drift, until
// nothing is left to do. Owners whose rows have no parent end up without rows.
func (x *world) settle(t *testing.T, w *ovsdb.Writer) {
	t.Helper()
	for range 10 {
		var total nb.Stats
		for _, o := range x.owners {
			stats, err := w.Apply(context.Background(), o, x.desired[o])
			if errors.Is(err, nb.ErrNoParent) {
				// Which rows such an owner has left depends on when its parents were
				// deleted.
				stats, err = w.Apply(context.Background(), o, nil)
			}
			if err != nil {
				t.Fatalf("%s: %v", o, err)
			}
			total.Inserted += stats.Inserted
			total.Updated += stats.Updated
			total.Deleted += stats.Deleted
		}
		if total.Zero() {
			return
		}
	}
	t.Fatal("does not settle")
}

// vandalize makes changes such as users make with ovn-nbctl.
func (x *world) vandalize(s *ovsdbtest.Server) {
	table := x.pick("Logical_Router_Policy", "NAT", "Logical_Router_Port", "Logical_Switch", "Address_Set", "Load_Balancer")
	rows := strings.Fields(s.Nbctl("--bare", "--columns=_uuid", "list", table))
	if len(rows) == 0 {
		return
	}
	uuid := rows[x.rng.IntN(len(rows))]
	switch table {
	case "Logical_Router_Policy":
		if x.some(0.5) {
			s.Nbctl("set", table, uuid, "match=ip4", "action=drop")
		} else {
			s.Nbctl("set", table, uuid, `external_ids:k8s.ovn.org/id=elsewhere@r1`)
		}
	case "NAT":
		s.Nbctl("set", table, uuid, "external_ids:note=x", "logical_ip=1.1.1.1")
	case "Logical_Router_Port":
		s.Nbctl("--if-exists", "lrp-del", uuid)
	case "Logical_Switch":
		s.Nbctl("--if-exists", "ls-del", uuid)
	case "Address_Set":
		switch addr := fmt.Sprintf("10.1.0.%d", x.rng.IntN(130)); {
		case x.some(0.3):
			s.Nbctl("clear", table, uuid, "addresses")
		case x.some(0.5):
			s.Nbctl("add", table, uuid, "addresses", addr)
		default:
			s.Nbctl("remove", table, uuid, "addresses", addr)
		}
	case "Load_Balancer":
		if port := 1000 + x.rng.IntN(130); x.some(0.5) {
			s.Nbctl("set", table, uuid, fmt.Sprintf(`vips:"10.96.0.1:%d"="10.9.9.9:80"`, port))
		} else {
			s.Nbctl("remove", table, uuid, "vips", fmt.Sprintf(`"10.96.0.1:%d"`, port))
		}
	}
}

// TestRandomApplies drives a database through random states, with outside changes and
// restarts of the client and of the server in between. The result must always be what a
// fresh database gets from the last state.
func TestRandomApplies(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			s, x := ovsdbtest.StartNB(t), newWorld(seed)
			cfg := ovsdb.Config{Address: s.Socket()}
			c := dial(t, cfg)
			w := ovsdb.NewWriter(c)
			restart := func() {
				c.Close()
				c = dial(t, cfg)
				w = ovsdb.NewWriter(c)
			}
			for range 80 {
				o := x.step()
				if _, err := w.Apply(context.Background(), o, x.desired[o]); err != nil && !errors.Is(err, nb.ErrNoParent) {
					t.Fatalf("%s: %v", o, err)
				}
				switch {
				case x.some(0.1):
					x.vandalize(s)
				case x.some(0.03) && c.Connected(): // the library has a data race if a server dies while the client connects
					s.Kill()
					s.Start()
				case x.some(0.03):
					restart()
				}
			}
			// The writer may learn of the last outside change only now.
			restart()
			x.settle(t, w)
			fresh := ovsdbtest.StartNB(t)
			x.settle(t, connect(t, ovsdb.Config{Address: fresh.Socket()}))
			if got, want := s.Dump(), fresh.Dump(); got != want {
				t.Errorf("after all:\n%s\nfrom scratch:\n%s", got, want)
			}
			records := s.Records()
			for _, o := range x.owners {
				if _, err := w.Apply(context.Background(), o, x.desired[o]); err != nil && !errors.Is(err, nb.ErrNoParent) {
					t.Errorf("%s: %v", o, err)
				}
			}
			if n := s.Records() - records; n != 0 {
				t.Errorf("settled, yet %d transactions were written", n)
			}
		})
	}
}
