package explain

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
)

// BenchmarkWhatIf loses a node of thirty, in clusters with different numbers of EgressIPs with two pods each: the
// planners decide about all of them, but only what changes has to be described.
func BenchmarkWhatIf(b *testing.B) {
	for _, n := range []int{300, 1000, 3000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap := largeWorld(n)
			change := Change{Lose: []string{"node-7"}}
			b.ReportAllocs()
			for b.Loop() {
				c, err := New(*snap)
				if err != nil {
					b.Fatal(err)
				}
				if w, err := c.WhatIf(change); err != nil || len(w.Moves) == 0 {
					b.Fatal(err, len(w.Moves))
				}
			}
		})
	}
}

// largeWorld is a settled cluster of thirty nodes and a number of EgressIPs, each for a namespace with two pods.
func largeWorld(n int) *Snapshot {
	s := world()
	s.Nodes, s.Pods, s.Namespaces = nil, nil, nil
	for i := range 30 {
		node := node(fmt.Sprintf("node-%d", i), i)
		s.Nodes = append(s.Nodes, node)
		s.Reachability.Nodes[node.Name] = reachability.Node{State: reachability.Reachable}
	}
	for i := range n {
		name := fmt.Sprintf("tenant-%d", i)
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}})
		for k := range 2 {
			p := pod(fmt.Sprintf("%s/pod-%d", name, k), "ovn-worker", 3)
			p.Spec.NodeName = fmt.Sprintf("node-%d", (i+k)%30)
			p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.244.%d.%d", i/100, 2+i%100*2+k)}}
			s.Pods = append(s.Pods, p)
		}
		egressIP(name, name, fmt.Sprintf("172.18.%d.%d", 1+i/200, 1+i%200))(s)
	}
	c, err := settled(*s, nil)
	if err != nil {
		panic(err)
	}
	return &c.snap
}
