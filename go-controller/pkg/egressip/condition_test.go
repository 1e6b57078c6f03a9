package egressip

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// TestManyRefused: the status of an EgressIP with as many addresses as the schema allows, most of which have no node, is one that
// the API server accepts, and so is each of its Events. The addresses that have the same fate are named together. When nothing
// changes, no Event repeats what was said.
func TestManyRefused(t *testing.T) {
	long := func(name string) string { return name + strings.Repeat("-x", 20) }
	var all []place.Node
	for i := range 20 {
		all = append(all, node(long(fmt.Sprintf("ovn-%02d", i)), i+1, func(n *place.Node) { n.EgressAssignable = i < 6 }))
	}
	var troubled v1.EgressIPStatus
	for _, n := range all {
		troubled.Programmed = append(troubled.Programmed, v1.ProgrammedStatus{Node: n.Name, Problem: strings.Repeat("it does not work ", 2000)})
	}
	for name, c := range map[string]struct {
		ip func(i int) string
		in string
	}{
		"one network":   {func(i int) string { return fmt.Sprintf("172.18.1.%d", i) }, "no node can hold 172.18.1.2, 172.18.1.3, 172.18.1.4, 172.18.1.5, 172.18.1.6, ...: ovn-00"},
		"many networks": {func(i int) string { return fmt.Sprintf("fd%02d:1234:5678:9abc:def0:1234:5678:9abc", i) }, "..."},
		"not addresses": {func(i int) string { return fmt.Sprint(strings.Repeat("ü", 2000), i) }, "ü"},
	} {
		var texts []v1.Address
		for i := range 64 {
			texts = append(texts, v1.Address(c.ip(i)))
		}
		e := egress("e", 1, ips(texts...))
		d := Decide(all, decoded(e), cluster)["e"]
		for _, status := range []v1.EgressIPStatus{{}, troubled} {
			is := Conditions(d, status, Report{Conflicts: []string{strings.Repeat("other", 50)}})
			for _, condition := range is {
				if len(condition.Message) > conditions.MaxMessage {
					t.Errorf("%s: the message of %s has %d bytes", name, condition.Type, len(condition.Message))
				}
			}
			if got := is[0]; got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, c.in) {
				t.Errorf("%s: Assigned is %+v, want %s", name, got, c.in)
			}
			said := Notices(d, nil, nil, is)
			if len(said) > 20 {
				t.Errorf("%s: %d Events", name, len(said))
			}
			for _, n := range Notices(d, d.Nodes(), is, is) {
				t.Errorf("%s: Event repeated: %+v", name, n)
			}
		}
	}
}
