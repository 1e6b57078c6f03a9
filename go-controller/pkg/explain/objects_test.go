package explain

import (
	"fmt"
	"strings"
	"testing"
)

// briefly summarizes the objects with their nodes.
func (o Objects) briefly() string {
	var out []string
	for _, has := range o.Objects {
		text := fmt.Sprintf("%s %s", has.Object, has.State)
		for _, a := range has.Addresses {
			text += fmt.Sprintf(" %s@%s", a.Address, strings.TrimPrefix(a.Node, "ovn-"))
			if a.Next != "" {
				text += ">" + strings.TrimPrefix(a.Next, "ovn-")
			}
			text += fmt.Sprint(len(a.Holders))
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func TestObjects(t *testing.T) {
	type change = func(*Snapshot)
	hosted := func(s *Snapshot) { s.EgressServices[0].Status.Host = "ovn-worker" }
	world := []change{egressIP("prod", "prod", "172.18.0.33"), egressIP("shop", "shop", "172.18.0.44"),
		egressService("shop/checkout", "5.5.5.5"), hosted, route("gws", "infra", "172.18.0.51"), inForce}
	const (
		gws      = "AdminPolicyBasedExternalRoute/gws InPlace"
		prod     = "EgressIP/prod InPlace 172.18.0.33@worker21"
		shop     = "EgressIP/shop InPlace 172.18.0.44@worker1"
		checkout = "EgressService/shop/checkout InPlace 5.5.5.5@worker1"
	)
	for _, tc := range []struct {
		name   string
		world  []change
		filter ObjectFilter
		want   string
	}{
		{"nothing", nil, ObjectFilter{}, ""},
		{"all", world, ObjectFilter{}, gws + "; " + prod + "; " + shop + "; " + checkout},
		{"of a feature", world, ObjectFilter{Feature: "EgressIP"}, prod + "; " + shop},
		{"on a node", world, ObjectFilter{Node: "ovn-worker"}, shop + "; " + checkout},
		{"by name", world, ObjectFilter{Text: "SHOP"}, shop + "; " + checkout},
		{"by address", world, ObjectFilter{Text: "172.18.0.3"}, prod},
		{"a part", world, ObjectFilter{Offset: 1, Limit: 2}, prod + "; " + shop},
		{"beyond the end", world, ObjectFilter{Offset: 9, Limit: 2}, ""},
		{"in no such state", world, ObjectFilter{State: StateProblem}, ""},
		{"a node is lost", append(world[:len(world):len(world)], notReady("ovn-worker2")), ObjectFilter{State: StateUnderWay}, "EgressIP/prod UnderWay 172.18.0.33@worker2>worker1"},
		{"no node", []change{egressIP("prod", "prod", "172.18.0.33"), unlabelled, inForce}, ObjectFilter{}, "EgressIP/prod NotAssigned 172.18.0.33@0"},
		{"those that are not in place come first", []change{egressIP("a", "prod", "172.18.0.33"), egressIP("b", "shop", "192.0.2.7"), inForce}, ObjectFilter{},
			"EgressIP/b NotAssigned 192.0.2.7@0; EgressIP/a InPlace 172.18.0.33@worker1"},
		{"no master has looked", []change{egressIP("prod", "prod", "172.18.0.33")}, ObjectFilter{}, "EgressIP/prod UnderWay 172.18.0.33@>worker20"},
		{"a Service without a load balancer", []change{egressService("shop/checkout"), inForce}, ObjectFilter{}, "EgressService/shop/checkout NotAssigned"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.filter.Validate(); err != nil {
				t.Fatal(err)
			}
			o := cluster(t, tc.world...).Objects(tc.filter)
			if got := o.briefly(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestObjectsAreCounted(t *testing.T) {
	c := cluster(t, egressIP("prod", "prod", "172.18.0.33"), egressIP("shop", "shop", "192.0.2.7"), inForce)
	o := c.Objects(ObjectFilter{State: StateInPlace, Limit: 1})
	if got := fmt.Sprint(o.States, o.Matched, o.InPlace); got != "[{Problem 0} {NotAssigned 1} {UnderWay 0} {InPlace 1}] 1 false" {
		t.Errorf("got %s", got)
	}
	if o = c.Objects(ObjectFilter{Text: "prod"}); !o.InPlace {
		t.Error("objects that are left out count")
	}
}

func TestObjectFilterValidate(t *testing.T) {
	for _, f := range []ObjectFilter{{Feature: "Pod"}, {State: "Fine"}, {Offset: -1}, {Limit: -1}} {
		if f.Validate() == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}
