package main

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workload is what the tests read of a Deployment, DaemonSet or StatefulSet.
type workload struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Template       struct{ Spec podSpec }
		UpdateStrategy struct{ Type string } `yaml:"updateStrategy"`
	}
}

type podSpec struct {
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
	Security       securityContext `yaml:"securityContext"`
	Volumes        []struct {
		Name     string
		HostPath *struct{ Path string } `yaml:"hostPath"`
	}
	Tolerations []struct {
		Key, Effect       string
		TolerationSeconds *int `yaml:"tolerationSeconds"`
	}
}

type container struct {
	Name          string
	Command, Args []string
	Resources     struct{ Requests map[string]string }

	VolumeMounts   []struct{ Name string } `yaml:"volumeMounts"`
	Security       securityContext         `yaml:"securityContext"`
	ReadinessProbe *probe                  `yaml:"readinessProbe"`
	LivenessProbe  *probe                  `yaml:"livenessProbe"`
	Lifecycle      struct {
		PreStop struct{ Exec struct{ Command []string } } `yaml:"preStop"`
	}
}

type securityContext struct {
	Privileged               bool
	AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
	Capabilities             struct{ Add, Drop []string }
	SeccompProfile           struct{ Type string } `yaml:"seccompProfile"`
	SELinux                  struct{ Type string } `yaml:"seLinuxOptions"`
}

type probe struct {
	Exec           struct{ Command []string }
	TimeoutSeconds int `yaml:"timeoutSeconds"`
	PeriodSeconds  int `yaml:"periodSeconds"`
}

// workloads returns the workloads of an overlay.
func workloads(t *testing.T, overlay string) (found []workload) {
	t.Helper()
	var out bytes.Buffer
	if err := render(&out, "../overlays/"+overlay, ""); err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(out.String()))
	for {
		var w workload
		switch err := decoder.Decode(&w); {
		case errors.Is(err, io.EOF):
			return found
		case err != nil:
			t.Fatal(err)
		}
		if slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, w.Kind) {
			found = append(found, w)
		}
	}
}

// TestRequests: when a node has no memory left, the kernel first ends containers that requested none.
func TestRequests(t *testing.T) {
	for _, overlay := range []string{"local", "shared", "ha", "ha-local", "kin"} {
		all := workloads(t, overlay)
		if len(all) < 5 {
			t.Errorf("%s: only %d workloads", overlay, len(all))
		}
		for _, w := range all {
			for _, c := range append(w.Spec.Template.Spec.InitContainers, w.Spec.Template.Spec.Containers...) {
				if r := c.Resources.Requests; r["cpu"] == "" || r["memory"] == "" {
					t.Errorf("%s: container %s of %s requests %v", overlay, c.Name, w.Metadata.Name, r)
				}
			}
		}
	}
}

// TestProbes: every daemon says whether it is ready, and gives up before kubelet does. It is asked often, since updates
// wait for the answer. Only ovnkube, whose /healthz says that it cannot continue, is restarted because of a probe: a
// switch or database that is merely slow must not be.
func TestProbes(t *testing.T) {
	for _, overlay := range []string{"local", "shared", "ha", "ha-local", "kin"} {
		for _, w := range workloads(t, overlay) {
			for _, c := range w.Spec.Template.Spec.Containers {
				if c.Name == "ovnkube-pki" { // an issuer that does not answer is noticed by those who ask it
					continue
				}
				if c.ReadinessProbe == nil {
					t.Errorf("%s: container %s of %s has no readiness probe", overlay, c.Name, w.Metadata.Name)
					continue
				}
				if ovnkube := strings.HasPrefix(c.Name, "ovnkube-"); (c.LivenessProbe != nil) != ovnkube {
					t.Errorf("%s: container %s has a liveness probe: %t", overlay, c.Name, c.LivenessProbe != nil)
				}
				if p := c.ReadinessProbe.PeriodSeconds; p < 1 || p > 5 {
					t.Errorf("%s: container %s of %s is asked every %d seconds whether it is ready", overlay, c.Name, w.Metadata.Name, p)
				}
				args := c.ReadinessProbe.Exec.Command
				if len(args) > 0 && (!slices.Contains(args, "--timeout=5") || c.ReadinessProbe.TimeoutSeconds <= 5) {
					t.Errorf("%s: container %s: %q, and kubelet waits for %d seconds", overlay, c.Name, args, c.ReadinessProbe.TimeoutSeconds)
				}
			}
		}
	}
}

// TestPrivileges: containers are either privileged, because they configure the network of the host, or have almost no
// privileges. A log keeps its owner when a master rotates it.
func TestPrivileges(t *testing.T) {
	privileged := []string{"ovs-vswitchd", "ovsdb-server", "ovn-controller", "ovnkube-node"} // ovsdb-server: shares its socket with these
	for _, overlay := range []string{"local", "shared", "ha", "ha-local", "kin"} {
		for _, w := range workloads(t, overlay) {
			pod := w.Spec.Template.Spec
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				s := c.Security
				if s.Privileged != slices.Contains(privileged, c.Name) {
					t.Errorf("%s: container %s is privileged: %t", overlay, c.Name, s.Privileged)
				}
				if s.Privileged {
					continue
				}
				if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) ||
					slices.ContainsFunc(s.Capabilities.Add, func(c string) bool { return c != "DAC_OVERRIDE" && c != "CHOWN" }) {
					t.Errorf("%s: container %s of %s has privileges: %+v", overlay, c.Name, w.Metadata.Name, s)
				}
				if slices.Contains(s.Capabilities.Add, "CHOWN") != (c.Name == "ovnkube-master") {
					t.Errorf("%s: container %s of %s may change owners: %v", overlay, c.Name, w.Metadata.Name, s.Capabilities.Add)
				}
				if s.SeccompProfile.Type != "RuntimeDefault" && pod.Security.SeccompProfile.Type != "RuntimeDefault" {
					t.Errorf("%s: container %s of %s may use all system calls", overlay, c.Name, w.Metadata.Name)
				}
			}
		}
	}
}

// TestSELinux: SELinux lets containers that are not privileged use directories of the host only if they have this type, since kubelet does
// not label these directories. Others keep the confined type.
func TestSELinux(t *testing.T) {
	for _, overlay := range []string{"local", "shared", "ha", "ha-local", "kin"} {
		for _, w := range workloads(t, overlay) {
			pod := w.Spec.Template.Spec
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				onHost := false
				for _, m := range c.VolumeMounts {
					for _, v := range pod.Volumes {
						onHost = onHost || v.Name == m.Name && v.HostPath != nil
					}
				}
				want := ""
				if onHost && !c.Security.Privileged {
					want = "spc_t"
				}
				if got := cmp.Or(c.Security.SELinux.Type, pod.Security.SELinux.Type); got != want {
					t.Errorf("%s: container %s of %s has the SELinux type %q, want %q", overlay, c.Name, w.Metadata.Name, got, want)
				}
			}
		}
	}
}

// TestDuringHandover: the kubelet of a node that is shut down ends the switch and ovn-controller together with ovnkube,
// which takes up to six seconds to hand over egress addresses. Until then this node's pods follow the addresses.
func TestDuringHandover(t *testing.T) {
	var found []string
	for _, w := range workloads(t, "shared") {
		if w.Metadata.Name != "openvswitch" && w.Metadata.Name != "ovn-controller" {
			continue
		}
		for _, c := range w.Spec.Template.Spec.Containers {
			found = append(found, c.Name)
			if got := c.Lifecycle.PreStop.Exec.Command; !slices.Equal(got, []string{"sleep", "6"}) {
				t.Errorf("container %s runs %q before it is stopped", c.Name, got)
			}
		}
	}
	if want := []string{"ovn-controller", "ovs-vswitchd", "ovsdb-server"}; !slices.Equal(slices.Sorted(slices.Values(found)), want) {
		t.Errorf("containers %v, want %v", found, want)
	}
}

// TestDeadNode: pods that can run on any control-plane node are replaced when theirs is dead.
func TestDeadNode(t *testing.T) {
	movable := map[string]bool{"ovnkube-master": false, "ovnkube-pki": false}
	for _, w := range workloads(t, "shared") {
		if _, ok := movable[w.Metadata.Name]; !ok {
			continue
		}
		for _, toleration := range w.Spec.Template.Spec.Tolerations {
			if toleration.Key == "" { // every taint
				break
			}
			if toleration.Key == "node.kubernetes.io/unreachable" && toleration.TolerationSeconds != nil {
				movable[w.Metadata.Name] = true
			}
		}
	}
	for name, ok := range movable {
		if !ok {
			t.Errorf("%s stays on a dead node", name)
		}
	}
}

// TestMembersUpdated: Kubernetes itself does not replace members of clustered databases. With podManagementPolicy: Parallel it
// would begin with the last one, whether or not the others are ready, and so take away the majority while one is down.
func TestMembersUpdated(t *testing.T) {
	found := false
	for _, w := range workloads(t, "ha") {
		if w.Kind == "StatefulSet" {
			found = true
			if got := w.Spec.UpdateStrategy.Type; got != "OnDelete" {
				t.Errorf("%s: update strategy %q", w.Metadata.Name, got)
			}
		}
	}
	if !found {
		t.Error("there is no StatefulSet")
	}
}
