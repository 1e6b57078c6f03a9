package externalroute

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestOutcome: status.status and status.messages summarize the
// conditions.
func TestOutcome(t *testing.T) {
	invalid := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	for _, c := range []struct {
		name     string
		state    state
		failed   []string
		want     v1.Outcome
		messages []string // prefixes
	}{
		{"in force", dual(topology.GatewayShared, policy("p", 1, onlyRed, static("172.18.0.52"), static("172.18.0.51"), static("fc00::51"))),
			nil, v1.OutcomeSuccess, []string{"Configured external gateway IPs: 172.18.0.51,172.18.0.52,fc00::51"}},
		{"one gateway twice", dual(topology.GatewayShared, policy("p", 1, onlyRed, static("172.18.0.51"), dynamic("net1")),
			gateway("g", attached("gw/net1", "172.18.0.51"))),
			nil, v1.OutcomeSuccess, []string{"Configured external gateway IPs: 172.18.0.51"}},
		{"an invalid hop beside a valid one", dual(topology.GatewayLocal, policy("p", 1, onlyRed, static("172.18.0.51"), static("0.0.0.0"))),
			nil, v1.OutcomeFail, []string{"Configured external gateway IPs: 172.18.0.51", "static hop 2 (0.0.0.0): "}},
		{"an invalid selector", dual(topology.GatewayLocal, policy("p", 1, onlyRed, static("172.18.0.51")),
			func(s *state) { s.policies[0].Spec.From.NamespaceSelector = invalid }),
			nil, v1.OutcomeFail, []string{"from.namespaceSelector is not valid: "}},
		{"no hop", dual(topology.GatewayLocal, policy("p", 1, onlyRed)),
			nil, v1.OutcomeFail, []string{"there is no hop that can be used"}},
		{"no gateway pod yet", dual(topology.GatewayLocal, policy("p", 1, onlyRed, dynamic("net1"))),
			nil, v1.OutcomeFail, []string{"there is no hop that can be used", "dynamic hop 1: selects no pod"}},
		{"no gateway pod beside a gateway", dual(topology.GatewayLocal, policy("p", 1, onlyRed, static("172.18.0.51"), dynamic("net1"))),
			nil, v1.OutcomeSuccess, []string{"Configured external gateway IPs: 172.18.0.51", "dynamic hop 1: selects no pod"}},
		{"no namespace yet", dual(topology.GatewayLocal, policy("p", 1, map[string]string{"color": "green"}, static("172.18.0.51"))),
			nil, v1.OutcomeSuccess, []string{"Configured external gateway IPs: 172.18.0.51", "from.namespaceSelector selects no namespace"}},
		{"no namespace and no hop", dual(topology.GatewayLocal, policy("p", 1, map[string]string{"color": "green"})),
			nil, v1.OutcomeFail, []string{"from.namespaceSelector selects no namespace"}},
		{"an older policy decides", dual(topology.GatewayShared, policy("older", 9, onlyRed, static("172.18.0.51")),
			policy("p", 1, onlyRed, static("172.18.0.51", bfd))),
			nil, v1.OutcomeSuccess, []string{"Configured external gateway IPs: 172.18.0.51", "hop 172.18.0.51: the older policy older decides"}},
		{"not written", dual(topology.GatewayShared, policy("p", 1, onlyRed, static("172.18.0.51"))),
			[]string{"n1", "n2"}, v1.OutcomeFail, []string{"the routes of nodes n1, n2 could not be written"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := c.state.decide().Policies["p"]
			status := Status(p, Served{Pods: 1, Failed: c.failed}, v1.AdminPolicyBasedExternalRouteStatus{})
			if status.Status != c.want {
				t.Errorf("status %q, want %q", status.Status, c.want)
			}
			if !slices.EqualFunc(status.Messages, c.messages, strings.HasPrefix) {
				t.Errorf("messages\n%s\nwant\n%s", strings.Join(status.Messages, "\n"), strings.Join(c.messages, "\n"))
			}
			ready := slices.ContainsFunc(status.Conditions, func(c metav1.Condition) bool {
				return c.Type == v1.ConditionReady && c.Status == metav1.ConditionTrue
			})
			if ready && len(c.failed) > 0 {
				t.Error("ready though its routes could not be written")
			}
		})
	}
}

// TestOutcomeTime: the time is that of the last configuration change, and is not affected
// by additional pods.
func TestOutcomeTime(t *testing.T) {
	one := dual(topology.GatewayShared, policy("p", 1, onlyRed, static("172.18.0.51"))).decide().Policies["p"]
	two := dual(topology.GatewayShared, policy("p", 1, onlyRed, static("172.18.0.51"), static("172.18.0.52"))).decide().Policies["p"]
	old := Status(one, Served{Pods: 1}, v1.AdminPolicyBasedExternalRouteStatus{})
	if old.LastTransitionTime != nil {
		t.Fatal("the planner has a clock")
	}
	now := metav1.NewTime(time.Unix(1700000000, 0))
	old.LastTransitionTime = &now
	if s := Status(one, Served{Pods: 2}, old); s.LastTransitionTime == nil || !s.LastTransitionTime.Equal(&now) {
		t.Errorf("one more pod: %v", s.LastTransitionTime)
	}
	if s := Status(two, Served{Pods: 1}, old); s.LastTransitionTime != nil {
		t.Errorf("one more gateway: %v", s.LastTransitionTime)
	}
	if s := Status(one, Served{Failed: []string{"n1"}}, old); s.LastTransitionTime != nil {
		t.Errorf("a failure: %v", s.LastTransitionTime)
	}
}

// TestManyMessages: the number of messages is limited.
func TestManyMessages(t *testing.T) {
	var hops []any
	for i := range 500 {
		hops = append(hops, static("no address"+strings.Repeat("x", i)))
	}
	p := dual(topology.GatewayShared, policy("p", 1, onlyRed, hops...)).decide().Policies["p"]
	messages := Status(p, Served{}, v1.AdminPolicyBasedExternalRouteStatus{}).Messages
	total := 0
	for _, m := range messages {
		total += len(m)
	}
	if len(messages) > maxMessages || total > (maxMessages+1)*conditions.MaxMessage || !strings.Contains(messages[len(messages)-1], "more") {
		t.Errorf("%d messages of %d bytes, the last %q", len(messages), total, messages[len(messages)-1])
	}
}
