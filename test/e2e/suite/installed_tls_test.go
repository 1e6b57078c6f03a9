package suite

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	intruder     = "intruder"
	intruderNode = "ovn-worker"
	bystander    = "ovn-worker2"
)

// databases tries to read and modify the databases of the manifests from a pod: without a
// certificate, with that of another CA, and with that of the pod's node.
func (s *suite) databases(t *testing.T) {
	addresses, err := s.NodeAddresses(t.Context(), lab.ControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	s.intrude(t)
	s.refuse(t, addresses, 6641, 6642, 6643)
	out := s.kubectl(t, "get", "csr",
		"--output=jsonpath={range .items[*]}{.spec.signerName} {.spec.extra.authentication\\.kubernetes\\.io/node-name[0]}{\"\\n\"}{end}")
	for _, node := range nodes {
		if !strings.Contains(out, "k8s.ovn.org/node "+node+"\n") {
			t.Errorf("no request of %s:\n%s", node, out)
		}
	}
}

// refuse checks that the database ports at the addresses refuse access.
func (s *suite) refuse(t *testing.T, addresses []netip.Addr, ports ...uint16) {
	t.Helper()
	for _, address := range addresses {
		var asking sync.WaitGroup
		for _, port := range ports {
			asking.Go(func() { s.refuseAt(t, netip.AddrPortFrom(address, port)) })
		}
		asking.Wait()
		if !slices.Contains(ports, 6642) {
			continue
		}
		southbound := "--db=ssl:" + netip.AddrPortFrom(address, 6642).String()
		sbctl := func(refusal string, args ...string) string {
			return s.inPod(t, refusal, slices.Concat([]string{"ovn-sbctl", "--timeout=20", "--no-leader-only", southbound}, withFiles("/node"), args)...)
		}
		if out := sbctl("", "--bare", "--columns=name", "list", "Chassis"); !strings.Contains(out, intruderNode+"\n") {
			t.Errorf("a node does not read the southbound database: %s", out)
		}
		const refused = "RBAC rules for client"
		sbctl(refused, "chassis-del", bystander)
		sbctl(refused, "set", "Chassis", bystander, "external_ids:x=y")
		sbctl(refused, "set-connection", "ptcp:6666")
		sbctl(refused, "chassis-add", intruder, "geneve", "172.18.0.99")
	}
}

// refuseAt checks that a database does not answer the pod. Only the southbound one may answer with a node's certificate.
func (s *suite) refuseAt(t *testing.T, database netip.AddrPort) {
	t.Helper()
	at := database.String()
	for _, remote := range []string{"tcp:" + at, "ssl:" + at} {
		s.inPod(t, "ovsdb-client: ", append([]string{"ovsdb-client", "--timeout=20", "list-dbs", remote}, withFiles("/own")...)...)
	}
	// Without a certificate: the request follows the handshake, and must not be answered.
	out := s.inPod(t, "", "sh", "-c", `printf '{"method":"list_dbs","params":[],"id":0}' | timeout 20 openssl s_client -quiet -connect `+at+` 2>&1 || true`)
	if strings.Contains(out, "OVN_") || !strings.Contains(out, "alert") {
		t.Errorf("%s without a certificate: %s", at, out)
	}
	if database.Port() != 6642 {
		s.inPod(t, "ovsdb-client: ", append([]string{"ovsdb-client", "--timeout=20", "list-dbs", "ssl:" + at}, withFiles("/node")...)...)
	}
}

// withFiles returns the options of OVN's programs for the certificate in a directory.
func withFiles(dir string) []string {
	return []string{"--private-key=" + dir + "/ovn-privkey.pem", "--certificate=" + dir + "/ovn-cert.pem", "--ca-cert=" + dir + "/cacert.pem"}
}

// intrude runs a pod that has OVN's programs, the node's certificate in /node, and one from its own
// CA in /own.
func (s *suite) intrude(t *testing.T) {
	t.Helper()
	zero := int64(0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: intruder}, Spec: corev1.PodSpec{
		NodeName: intruderNode, TerminationGracePeriodSeconds: &zero,
		Containers: []corev1.Container{{
			Name: intruder, Image: "ovnkube:latest", ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "infinity"},
			VolumeMounts: []corev1.VolumeMount{{Name: "node", MountPath: "/node", ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "node", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/ovn-kubernetes/pki"},
		}}},
	}}
	if _, err := s.Kube.CoreV1().Pods(lab.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitPod(t.Context(), intruder, time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DeletePod(context.WithoutCancel(t.Context()), intruder); err != nil {
			t.Error(err)
		}
	})
	// To a server that does not verify it, its own CA is as good as any.
	s.inPod(t, "", "ovnkube", "pki", "init", "--dir=/own")
	s.inPod(t, "", "ovnkube", "pki", "issue", "master", "--dir=/own", "--name=ovn")
}

// inPod runs a command in the pod, and returns its output. It must fail with the given refusal, or succeed if that is
// empty.
func (s *suite) inPod(t *testing.T, refusal string, command ...string) string {
	t.Helper()
	out, err := s.Exec(t.Context(), intruder, command...)
	switch {
	case refusal == "" && err != nil:
		t.Errorf("%s: %v", command, err)
	case refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)):
		t.Errorf("%s: %v: %s, want to be refused: %s", command, err, out, refusal)
	}
	return out + "\n"
}
