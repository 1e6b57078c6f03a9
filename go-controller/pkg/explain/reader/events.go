package reader

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// source is the source component of Events by ovnkube.
const source = "ovnkube"

// features are the kinds of the features' objects.
var features = map[string]bool{"EgressIP": true, "EgressService": true, "AdminPolicyBasedExternalRoute": true}

// Events lists the Events that ovnkube emitted about objects of the features, as far as the
// API server still has them. If this is forbidden, it returns a note.
func Events(ctx context.Context, c kubernetes.Interface) (events []*corev1.Event, note string, err error) {
	get := func(ctx context.Context, o metav1.ListOptions) (*corev1.EventList, error) {
		o.FieldSelector = fields.OneTermEqualSelector("source", source).String()
		return c.CoreV1().Events(metav1.NamespaceAll).List(ctx, o)
	}
	err = list(ctx, "events", get, func(l *corev1.EventList) {
		for i := range l.Items {
			if e := &l.Items[i]; e.Source.Component == source && features[e.InvolvedObject.Kind] {
				events = append(events, e)
			}
		}
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil, "timeline: you may not list events; it has what was seen since the page is served", nil
	case err != nil:
		return nil, "", fmt.Errorf("read the timeline: %w", err)
	}
	return events, "", nil
}
