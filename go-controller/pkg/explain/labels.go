package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// hostLabels returns the node labels for the hosts of EgressServices, without
// their prefix, by node: the current ones, and those that the master will set according to the statuses.
func (c *Cluster) hostLabels() (now, want map[string]map[string]bool) {
	now = map[string]map[string]bool{}
	for _, n := range c.snap.Nodes {
		now[n.Name] = map[string]bool{}
		for key := range n.Labels {
			if label, ours := strings.CutPrefix(key, kube.LabelEgressServicePrefix); ours {
				now[n.Name][label] = true
			}
		}
	}
	if !c.snap.Settings.EgressService {
		return now, now // the master does not manage them
	}
	return now, egressservice.Labels(c.snap.EgressServices, now)
}

// labelProblem is a label of a host that is on the wrong node or missing.
type labelProblem struct {
	node, label, message string
	// stray: the node has the label but should not; otherwise it lacks the label.
	stray bool
}

// labelProblems compares the labels of hosts with the statuses, sorted by node and label.
func (c *Cluster) labelProblems() []labelProblem {
	var out []labelProblem
	now, want := c.hostLabels()
	for _, n := range c.snap.Nodes {
		both := maps.Clone(now[n.Name])
		maps.Copy(both, want[n.Name])
		for _, label := range slices.Sorted(maps.Keys(both)) {
			key := kube.LabelEgressServicePrefix + label
			switch {
			case !want[n.Name][label]:
				out = append(out, labelProblem{n.Name, label, fmt.Sprintf("node %s has the host label %s but should not", n.Name, key), true})
			case !now[n.Name][label]:
				out = append(out, labelProblem{n.Name, label, fmt.Sprintf("node %s lacks the label %s of a host", n.Name, key), false})
			}
		}
	}
	return out
}

// misplacedLabels returns the problems with the label of an EgressService.
func (c *Cluster) misplacedLabels(key string) []Problem {
	var out []Problem
	for _, p := range c.labels {
		if p.label == c.services[key].Label() {
			out = append(out, Problem{Object: kindEgressService + "/" + key, Reason: ReasonLabel, Message: p.message})
		}
	}
	return out
}

// strayLabels returns the labels of hosts that a node has but should not have.
func (c *Cluster) strayLabels(node string) []Problem {
	var out []Problem
	for _, p := range c.labels {
		if p.node == node && p.stray {
			out = append(out, Problem{Object: "Node/" + node, Reason: ReasonLabel, Message: p.message})
		}
	}
	return out
}

// orphanLabels returns the labels of hosts that belong to no EgressService.
func (c *Cluster) orphanLabels() []Problem {
	known := map[string]bool{}
	for _, s := range c.services {
		known[s.Label()] = true
	}
	var out []Problem
	for _, p := range c.labels {
		if !known[p.label] {
			out = append(out, Problem{Object: "Node/" + p.node, Reason: ReasonLabel, Message: p.message})
		}
	}
	return out
}

// acknowledgeLabels returns the nodes with the labels that the master sets according to the
// statuses.
func (c *Cluster) acknowledgeLabels() []*corev1.Node {
	now, want := c.hostLabels()
	nodes := slices.Clone(c.snap.Nodes)
	for i, n := range nodes {
		if maps.Equal(now[n.Name], want[n.Name]) || len(now[n.Name])+len(want[n.Name]) == 0 {
			continue
		}
		labelled := *n
		labelled.Labels = maps.Clone(n.Labels)
		maps.DeleteFunc(labelled.Labels, func(key, _ string) bool { return strings.HasPrefix(key, kube.LabelEgressServicePrefix) })
		if labelled.Labels == nil {
			labelled.Labels = map[string]string{}
		}
		for label := range want[n.Name] {
			labelled.Labels[kube.LabelEgressServicePrefix+label] = ""
		}
		nodes[i] = &labelled
	}
	return nodes
}
