package egressservice

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
)

// TestProblemOfHost: a host that reports a problem has answered for the state that it reports, which it serves, and for no
// later one.
func TestProblemOfHost(t *testing.T) {
	s := Service{Key: "default/demo-svc", Host: "b", Network: "blue", Ingress: []netip.Addr{netip.MustParseAddr("5.5.5.5")}}
	former := Digest(s, "b")
	s.Endpoints = []Endpoint{{Addr: netip.MustParseAddr("10.244.0.5"), Node: "a"}}
	current := Digest(s, "b")
	for what, c := range map[string]struct {
		host, digest string
		late         bool
		answered     bool
		reason       string
	}{
		"of this state":                    {"b", current, false, true, ReasonNetworkNotFound},
		"of an earlier state":              {"b", former, false, false, ReasonWaitingForHost},
		"of an earlier state, for long":    {"b", former, true, false, ReasonNotAcknowledged},
		"of the previous host":             {"a", former, false, false, ReasonWaitingForHost},
		"of this state, by the other host": {"a", current, false, false, ReasonWaitingForHost},
	} {
		s.Ack = v1.ProgrammedStatus{Host: c.host, Digest: c.digest, Problem: "network blue has no routing table with routes"}
		d := Decision{Host: "b", NotAcknowledging: c.late}
		if Awaits(s, d) == c.answered {
			t.Errorf("%s: the host has answered: %t", what, !c.answered)
		}
		status := v1.EgressServiceStatus{Conditions: Conditions(s, d)}
		got := meta.FindStatusCondition(status.Conditions, v1.ConditionProgrammed)
		if got.Reason != c.reason || Done(status) != c.answered {
			t.Errorf("%s: %s (%s), and the host has the traffic: %t", what, got.Reason, got.Message, Done(status))
		}
	}
}

// TestLongMessagesAreCut: the API server refuses a whole status in which one message is too long.
func TestLongMessagesAreCut(t *testing.T) {
	long := strings.Repeat("too long ", 5000)
	for _, s := range []Service{
		{Refused: Refusal{InvalidSelector, long}},
		{PerNode: true, Ack: v1.ProgrammedStatus{Host: "n", Problem: long}},
		{Conflicts: []string{long}, RefusedIngress: []RefusedAddress{{Address: "a", Reason: ProxyMode, Message: long}}},
	} {
		for _, c := range Conditions(s, Decision{}) {
			if len(c.Message) > conditions.MaxMessage {
				t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
			}
		}
	}
}
