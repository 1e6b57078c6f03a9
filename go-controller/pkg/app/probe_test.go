package app

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/podprobe"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

// TestNetnsOf: a pod's network namespace is that of its own port, not of another pod's, nor of an
// earlier pod's with the same name.
func TestNetnsOf(t *testing.T) {
	port := func(pod, uid, netns string) ovs.Port {
		return ovs.Port{ExternalIDs: map[string]string{ovs.IfaceID: pod, ovs.IfaceIDVersion: uid, cni.IDNetns: netns}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: "u2"}}
	before := []ovs.Port{{Name: "patch"}, port("prod_web", "u1", "/run/netns/1"), port("prod_other", "u2", "/run/netns/3")}
	if netns, err := netnsOf(pod, before); err == nil {
		t.Errorf("%s is taken for the pod's", netns)
	}
	if netns, err := netnsOf(pod, append(before, port("prod_web", "u2", "/run/netns/2"))); netns != "/run/netns/2" || err != nil {
		t.Errorf("%s, %v", netns, err)
	}
	if netns, err := netnsOf(pod, []ovs.Port{port("prod_web", "u2", "")}); err == nil {
		t.Errorf("%q is taken for the pod's", netns)
	}
}

func TestProbedOf(t *testing.T) {
	from := netip.MustParseAddrPort("10.244.1.3:40123")
	for _, tc := range []struct {
		err               error
		protocol, outcome string
	}{
		{nil, trace.TCP, trace.ProbeConnected},
		{nil, trace.UDP, trace.ProbeAnswered},
		{syscall.ECONNREFUSED, trace.TCP, trace.ProbeRefused},
		{os.ErrDeadlineExceeded, trace.UDP, trace.ProbeUnanswered},
		{syscall.EHOSTUNREACH, trace.TCP, trace.ProbeFailed},
		{errors.New("other"), trace.TCP, trace.ProbeFailed},
	} {
		got := probedOf(podprobe.Result{From: from, Err: tc.err, Took: 1500 * time.Microsecond}, tc.protocol)
		if got.Outcome != tc.outcome || got.From != from || got.Milliseconds != 1 || (got.Why != "") != (tc.outcome == trace.ProbeFailed) {
			t.Errorf("%v: %+v", tc.err, got)
		}
	}
}
