package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

const (
	// fieldManager is what the nodes' part of a status belongs to.
	fieldManager = "ovnkube-node"
	// attempts is how often a word is tried when others write the same status.
	attempts = 5
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// word returns what there is to say. Who has nothing says nothing.
func (c *Controller) word(s state, on seat) *v1.ProgrammedStatus {
	word := v1.ProgrammedStatus{Node: c.deps.Node, Digest: on.digest, Problem: on.problem}
	for a, held := range s.held {
		if held {
			word.EgressIPs = append(word.EgressIPs, a.String())
		}
	}
	slices.SortFunc(word.EgressIPs, func(a, b string) int {
		return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b))
	})
	if len(word.EgressIPs) == 0 && word.Digest == "" && word.Problem == "" {
		return nil
	}
	return &word
}

// say makes the status have this node's word; nil for none. Where the status has
// changed since it was read, it is read again; where that changes what this node
// is given, the news of it is on its way and the word would be wrong.
func (c *Controller) say(ctx context.Context, e *v1.EgressIP, word *v1.ProgrammedStatus) error {
	client := c.deps.Client.EgressIPV1().EgressIPs()
	uid, given := e.UID, egressip.Given(e.Status, c.deps.Node)
	for attempt := 1; ; attempt++ {
		patch, err := wordPatch(e, c.deps.Node, word)
		if patch == nil || err != nil {
			return err
		}
		_, err = client.Patch(ctx, e.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
		if err == nil {
			klog.V(2).InfoS("Said what this node holds", "egressIP", e.Name, "word", word)
			return nil
		}
		if attempt == attempts || ctx.Err() != nil {
			return fmt.Errorf("say what this node holds of EgressIP %s: %w", e.Name, err)
		}
		e, err = client.Get(ctx, e.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read EgressIP: %w", err)
		}
		if e.UID != uid || word != nil && !slices.Equal(given, egressip.Given(e.Status, c.deps.Node)) {
			return nil
		}
	}
}

// wordPatch returns the JSON patch that makes the status of e have a node's word;
// nil where it has. The server refuses it where e is another object by now, where
// the items differ from those that a word was given for, and where the place of
// the word in the list is another's.
func wordPatch(e *v1.EgressIP, node string, word *v1.ProgrammedStatus) ([]byte, error) {
	have, at := egressip.WordOf(e.Status, node)
	ops := []operation{{"test", "/metadata/uid", e.UID}}
	place := fmt.Sprintf("/status/programmed/%d", at)
	switch {
	case word == nil && at < 0, word != nil && at >= 0 && egressip.SameWord(have, *word):
		return nil, nil
	case word == nil:
		if len(e.Status.Programmed) == 1 { // no list rather than an empty one
			place = "/status/programmed"
			ops = append(ops, operation{"test", place, e.Status.Programmed})
		} else {
			ops = append(ops, operation{"test", place + "/node", node})
		}
		ops = append(ops, operation{"remove", place, nil})
	default:
		ops = append(ops, operation{"test", "/status/items", e.Status.Items})
		switch {
		case at >= 0:
			ops = append(ops, operation{"test", place + "/node", node}, operation{"replace", place, word})
		case e.Status.Programmed != nil:
			// The list as it was read has no word of this node; as it is, it may.
			ops = append(ops, operation{"test", "/status/programmed", e.Status.Programmed}, operation{"add", "/status/programmed/-", word})
		default:
			ops = append(ops, operation{"test", "/status/programmed", nil}, operation{"add", "/status/programmed", []any{word}})
		}
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode the word on EgressIP %s: %w", e.Name, err)
	}
	return patch, nil
}
