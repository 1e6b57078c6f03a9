package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
)

// probed runs a trace with a probe.
func probed(t *testing.T, plan explain.Pod, n nodes) (Trace, []Question) {
	t.Helper()
	tracer, err := New(plan, destinationOf, TCP)
	if err != nil {
		t.Fatal(err)
	}
	tracer.Probe()
	var asked []Question
	for range 100 {
		q, more := tracer.Next()
		if !more {
			return tracer.Trace(), asked
		}
		asked = append(asked, q)
		path, values := q.Path()
		if back, err := Decode(path, values); err != nil || back != q {
			t.Errorf("the question %+v is none: %+v, %v", q, back, err)
		}
		tracer.Answer(n.ask(q))
	}
	t.Fatal("there is no end of questions")
	return Trace{}, nil
}

// connection is what a node knows of a connection: the sources of a packet, one after the other.
func connection(sources ...string) Connection {
	var c Connection
	for i, s := range sources[1:] {
		c.Entries = append(c.Entries, Entry{Table: TableSwitch, Zone: uint16(i + 5), From: netip.MustParseAddrPort(sources[i]), Becomes: netip.MustParseAddrPort(s)})
	}
	return c
}

func TestProbe(t *testing.T) {
	const from = "10.244.1.3:40123"
	sent := func(outcome string) Probed {
		return Probed{From: netip.MustParseAddrPort(from), Outcome: outcome, Milliseconds: 3}
	}
	failed := sent(ProbeFailed)
	failed.Why = "no route to host"
	right := connection(from, "172.18.0.33:40123", "172.18.0.33:40123")
	none := Connection{}
	traced := func(also nodes) nodes {
		n := nodes{"ovn-worker ovn": ovnOf(t, "gateway"), "ovn-worker2 bridge": out, "ovn-worker probe": sent(ProbeConnected),
			"ovn-worker connection": none, "ovn-worker2 connection": right}
		for k, v := range also {
			n[k] = v
		}
		return n
	}
	heldPlan := planned(func(p *explain.Pod) {
		p.Families[0] = explain.Family{Family: "IPv4", Address: "10.244.1.3", Outcome: explain.OutcomeHeld, By: "EgressIP/prod", Why: "no node holds the address"}
	})
	insidePlan := planned(func(p *explain.Pod) {
		p.Families[0] = explain.Family{Family: "IPv4", Address: "10.244.1.3", Outcome: explain.OutcomeInside, Sources: []explain.Source{{Address: "10.244.1.3", Node: "ovn-worker"}}}
	})
	inside := OVN{Steps: []Step{{Datapath: "ovn-worker", Stage: "ls_in_l2_lkup", Priority: 50}}, Outputs: []Output{{"ovn-worker", "shop_cart", ""}}}
	gatewayPlan := planned(func(p *explain.Pod) {
		p.Families[0] = explain.Family{Family: "IPv4", Address: "10.244.1.3", Outcome: explain.OutcomeGateways, Sources: []explain.Source{{Address: "10.244.1.3", Node: "ovn-worker"}}}
	})
	untranslated := OVN{Steps: []Step{{Datapath: "GR_ovn-worker", Stage: "lr_in_ip_routing", Priority: 17}}, Outputs: []Output{{"ext_ovn-worker", "breth0_ovn-worker", "localnet"}}}
	toService := func(endpoints string) OVN {
		return ParseOVN("ingress(dp=\"ovn-worker\", inport=\"prod_web\")\n12. ls_in_lb (northd.c:7558): ct.new, priority 120, uuid b2f00a86\n    ct_lb_mark(backends=" +
			endpoints + ");\n" + read(t, "ovn", "gateway.txt"))
	}
	for name, tc := range map[string]struct {
		plan    explain.Pod
		nodes   nodes
		reasons []string // of problems of the probe
		note    string
	}{
		"connected":  {planned(), traced(nil), nil, ""},
		"refused":    {planned(), traced(nodes{"ovn-worker probe": sent(ProbeRefused)}), nil, ""},
		"unanswered": {planned(), traced(nodes{"ovn-worker probe": sent(ProbeUnanswered)}), nil, "the reason for the missing answer"},
		"failed":     {planned(), traced(nodes{"ovn-worker probe": failed}), nil, "the reason for the missing answer"},
		"wrong-source": {planned(), traced(nodes{"ovn-worker2 connection": connection(from, "172.18.0.4:40123")}),
			[]string{ReasonProbeDiffers}, ""},
		"wrong-node": {planned(), traced(nodes{"ovn-worker connection": connection(from, "172.18.0.3:1024"), "ovn-worker2 connection": none}),
			[]string{ReasonProbeDiffers}, ""},
		"by two nodes": {planned(), traced(nodes{"ovn-worker connection": connection(from, "172.18.0.3:1024")}), []string{ReasonProbeDiffers}, ""},
		"as planned, not as traced": {planned(func(p *explain.Pod) {
			p.Families[0].Sources = append(p.Families[0].Sources, explain.Source{Address: "172.18.0.44", Node: "ovn-worker"})
		}), traced(nodes{"ovn-worker connection": connection(from, "172.18.0.44:40123"), "ovn-worker2 connection": none}), []string{ReasonProbeDiffers}, ""},
		"lost":                        {planned(), traced(nodes{"ovn-worker probe": sent(ProbeUnanswered), "ovn-worker2 connection": none}), []string{ReasonProbeLost}, ""},
		"answered and not seen":       {planned(), traced(nodes{"ovn-worker2 connection": none}), []string{ReasonProbeDiffers}, ""},
		"passes the pod's node":       {planned(), traced(nodes{"ovn-worker connection": connection(from, from)}), nil, ""},
		"not sent":                    {planned(), traced(nodes{"ovn-worker probe": errors.New("too many probes")}), []string{ReasonSilent}, ""},
		"sent by another version":     {planned(), traced(nodes{"ovn-worker probe": none}), []string{ReasonSilent}, ""},
		"silent":                      {planned(), traced(nodes{"ovn-worker2 connection": errors.New("cannot be reached")}), []string{ReasonSilent}, "its outcome is not known"},
		"held":                        {heldPlan, traced(nodes{"ovn-worker2 bridge": held, "ovn-worker probe": sent(ProbeUnanswered)}), nil, ""},
		"held, and answered":          {heldPlan, traced(nodes{"ovn-worker2 bridge": held, "ovn-worker probe": sent(ProbeRefused)}), []string{ReasonProbeDiffers}, ""},
		"traced as dropped":           {planned(), traced(nodes{"ovn-worker2 bridge": held, "ovn-worker2 connection": none}), []string{ReasonProbeDiffers}, ""},
		"traced as dropped, and lost": {planned(), traced(nodes{"ovn-worker2 bridge": held, "ovn-worker probe": sent(ProbeUnanswered), "ovn-worker2 connection": none}), nil, "its outcome is not known"},
		"inside": {insidePlan, nodes{"ovn-worker ovn": inside, "ovn-worker probe": sent(ProbeConnected),
			"ovn-worker connection": connection(from, from)}, nil, ""},
		"inside, translated": {insidePlan, nodes{"ovn-worker ovn": inside, "ovn-worker probe": sent(ProbeConnected),
			"ovn-worker connection": connection(from, "172.18.0.3:40123")}, []string{ReasonProbeDiffers}, ""},
		"untranslated": {gatewayPlan, nodes{"ovn-worker ovn": untranslated, "ovn-worker bridge": out, "ovn-worker probe": sent(ProbeConnected),
			"ovn-worker connection": connection(from, from)}, nil, ""},
		"to a Service": {planned(), nodes{"ovn-worker ovn": toService("192.0.2.9:80"), "ovn-worker2 bridge": out, "ovn-worker probe": sent(ProbeConnected),
			"ovn-worker2 connection to 192.0.2.9:80": right, "ovn-worker connection": none, "ovn-worker2 connection": none}, nil, ""},
		"to another endpoint": {planned(), nodes{"ovn-worker ovn": toService("192.0.2.9:80,192.0.2.8:80"), "ovn-worker2 bridge": out, "ovn-worker probe": sent(ProbeConnected),
			"ovn-worker connection": none, "ovn-worker2 connection": none}, nil, "it may have been sent to another endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := probed(t, tc.plan, tc.nodes)
			var reasons []string
			for _, p := range got.Probe.Problems {
				reasons = append(reasons, p.Reason)
			}
			if !slices.Equal(reasons, tc.reasons) || got.Probe.AsPlanned != (len(reasons) == 0) || got.InPlace && len(reasons) > 0 {
				t.Errorf("problems %+v, want %v; as planned %v, in place %v", got.Probe.Problems, tc.reasons, got.Probe.AsPlanned, got.InPlace)
			}
			if !strings.Contains(strings.Join(got.Probe.Notes, " "), tc.note) {
				t.Errorf("notes %q", got.Probe.Notes)
			}
			var text bytes.Buffer
			got.Text(&text)
			if name == "connected" || name == "wrong-node" || name == "lost" || name == "not sent" || name == "failed" {
				golden.Check(t, "probe-"+strings.ReplaceAll(name, " ", "-")+".txt", text.String())
			}
			if data, err := json.MarshalIndent(got, "", "  "); err != nil {
				t.Error(err)
			} else if name == "connected" || name == "wrong-node" {
				golden.Check(t, "probe-"+name+".json", string(data)+"\n")
			}
		})
	}
}

// Packets are sent once, after the path is known, and the nodes that may know more are asked once each. Nothing is
// sent unless requested.
func TestProbeOnce(t *testing.T) {
	n := nodes{"ovn-worker ovn": ovnOf(t, "gateway"), "ovn-worker2 bridge": out,
		"ovn-worker probe": Probed{From: netip.MustParseAddrPort("10.244.1.3:40123"), Outcome: ProbeConnected}, "ovn-worker connection": Connection{}, "ovn-worker2 connection": Connection{}}
	_, asked := probed(t, planned(), n)
	var whom []string
	for _, q := range asked {
		whom = append(whom, q.Node+" "+q.About)
	}
	if want := []string{"ovn-worker ovn", "ovn-worker2 bridge", "ovn-worker probe", "ovn-worker2 connection", "ovn-worker connection"}; !slices.Equal(whom, want) {
		t.Errorf("asked %q, want %q", whom, want)
	}
	if got := run(t, planned(), n); got.Probe != nil {
		t.Errorf("sent without being asked for: %+v", got.Probe)
	}
}
