package master

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// The reasons of Events besides those of a Refusal.
const (
	eventAssigned = "HostAssigned"
	eventMoved    = "HostChanged"
)

// patched is a status patch, as long as the lister still shows the object it was
// made from.
type patched struct {
	from *v1.EgressService
	host string
}

// reconcile writes the rows and the status of one EgressService.
func (c *Controller) reconcile(ctx context.Context, key string) error {
	eg, err := c.reader.Object(key)
	if err != nil {
		return err
	}
	if eg == nil {
		c.forget(key)
		return c.apply(ctx, key, nil)
	}
	d, ok := c.decision(key)
	if !ok {
		return nil // placement will enqueue it
	}
	s, err := c.reader.Decode(eg)
	if err != nil {
		return err
	}
	if host := egressservice.Status(s, d); host == "" {
		c.deps.Pods.Set(key, nil)
		if err := c.apply(ctx, key, nil); err != nil {
			return err
		}
		if err := c.setHost(ctx, eg, host); err != nil {
			return err
		}
	} else {
		if err := c.setHost(ctx, eg, host); err != nil {
			return err
		}
		c.deps.Pods.Set(key, egressservice.Steered(s, d))
		if err := c.apply(ctx, key, egressservice.MasterRows(s, d)); err != nil {
			return err
		}
	}
	c.tell(eg, s, d)
	return nil
}

func (c *Controller) forget(key string) {
	c.deps.Pods.Set(key, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.patched, key)
	delete(c.told, key)
}

func (c *Controller) apply(ctx context.Context, key string, rows []nb.Row) error {
	stats, err := c.deps.Writer.Apply(ctx, egressservice.Owner(key), rows)
	if err != nil {
		return fmt.Errorf("apply policies of EgressService %s: %w", key, err)
	}
	if stats.Zero() {
		klog.V(4).InfoS("Policies are as wanted", "egressService", key, "policies", len(rows))
	} else {
		klog.V(2).InfoS("Policies written", "egressService", key,
			"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	}
	return nil
}

// setHost makes the status name host, and says so in an Event.
func (c *Controller) setHost(ctx context.Context, eg *v1.EgressService, host string) error {
	key := eg.Namespace + "/" + eg.Name
	c.mu.Lock()
	known := eg.Status.Host
	if last, ok := c.patched[key]; ok && last.from == eg {
		known = last.host
	} else {
		delete(c.patched, key)
	}
	c.mu.Unlock()
	if known == host {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": eg.UID},
		"status":   map[string]any{"host": hostOrNull(host)},
	})
	if err != nil {
		return fmt.Errorf("encode status of EgressService %s: %w", key, err)
	}
	_, err = c.deps.Egress.EgressServiceV1().EgressServices(eg.Namespace).Patch(
		ctx, eg.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil // its deletion is on the way to us
	}
	if err != nil {
		return fmt.Errorf("patch status of EgressService %s: %w", key, err)
	}
	c.mu.Lock()
	c.patched[key] = patched{from: eg, host: host}
	c.mu.Unlock()
	klog.V(2).InfoS("Host changed", "egressService", key, "from", known, "to", host)
	switch {
	case host == "": // the refusal says it
	case known == "":
		c.deps.Recorder.Eventf(eg, corev1.EventTypeNormal, eventAssigned, "Node %s serves the egress traffic", host)
	default:
		c.deps.Recorder.Eventf(eg, corev1.EventTypeNormal, eventMoved,
			"Node %s serves the egress traffic instead of %s", host, known)
	}
	return nil
}

// hostOrNull is the value of host in a merge patch, where null deletes.
func hostOrNull(host string) any {
	if host == "" {
		return nil
	}
	return host
}

// tell writes an Event about why there is no host, once per reason and message.
func (c *Controller) tell(eg *v1.EgressService, s egressservice.Service, d egressservice.Decision) {
	refused := s.Refused
	if refused == (egressservice.Refusal{}) {
		refused = d.Refused
	}
	c.mu.Lock()
	news := c.told[s.Key] != refused
	if refused == (egressservice.Refusal{}) {
		delete(c.told, s.Key)
	} else {
		c.told[s.Key] = refused
	}
	c.mu.Unlock()
	if !news || refused == (egressservice.Refusal{}) {
		return
	}
	klog.V(2).InfoS("EgressService is not served", "egressService", s.Key, "reason", refused.Reason, "message", refused.Message)
	c.deps.Recorder.Event(eg, corev1.EventTypeWarning, string(refused.Reason), refused.Message)
}
