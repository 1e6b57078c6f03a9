package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// systemNamespace is the namespace of the manifests.
const systemNamespace = lab.SystemNamespace

// database is one of the clustered databases: its container in the members' pods, and its schema.
type database struct{ container, schema string }

var clusteredDatabases = []database{{"nb", "OVN_Northbound"}, {"sb", "OVN_Southbound"}}

// haTest is a cluster with three masters and clustered databases, with the traffic that it carries.
type haTest struct {
	*faultTest
}

// highAvailability turns one server of each database and one master into three, as described in
// docs/high-availability.md, and takes them down one by one. All the time pods leave with the
// addresses that the features give them, and after each loss changes take effect in time. In the
// end nothing is lost or duplicated.
func (s *suite) highAvailability(t *testing.T) {
	h := &haTest{s.newFaultTest(t)}
	// The nodes' ovnkube restarts because the servers change, and hands its addresses over.
	t.Run("Migration", func(t *testing.T) { h.loses(t, refilled, h.migrate) })
	if t.Failed() {
		return
	}
	before := h.settledState(t)
	for _, db := range clusteredDatabases {
		t.Run("leader of "+db.schema+" killed", func(t *testing.T) {
			h.loses(t, none, func(t *testing.T) { h.signal(t, "KILL", h.leader(t, db), db) })
		})
	}
	t.Run("two members in turn", func(t *testing.T) {
		h.loses(t, none, func(t *testing.T) {
			for range 2 {
				h.signal(t, "KILL", h.leader(t, clusteredDatabases[0]), clusteredDatabases...)
				h.whole(t)
			}
		})
	})
	t.Run("rolling update", func(t *testing.T) {
		h.loses(t, none, func(t *testing.T) {
			h.kubectl(t, "rollout", "restart", "statefulset/ovn-databases")
			h.updateMembers(t)
			h.restart(t, "deployment/ovnkube-master")
		})
	})
	t.Run("member away", h.away)
	t.Run("disk lost", func(t *testing.T) { h.loses(t, none, h.loseDisk) })
	t.Run("leading master killed", func(t *testing.T) { h.loses(t, none, h.killMaster) })
	t.Run("backup restored", h.restoreMember)
	h.same(t, before.Anonymous(), lab.State.Anonymous)
	t.Logf("longest time without an echo, of connections that were open and of new ones, in milliseconds:\n%s", h.table.String())
	t.Run("Databases", func(t *testing.T) {
		var all []netip.Addr
		for _, node := range nodes {
			addresses, err := h.NodeAddresses(t.Context(), node)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, addresses[0])
		}
		h.intrude(t)
		h.refuse(t, all, 6641, 6642, 6643)
		h.refuse(t, all[:1], 6644, 6645) // for traffic between members, which listen in one family only
	})
}

// loses has the cluster lose something, and then makes changes.
func (h *haTest) loses(t *testing.T, allowed gaps, loss func(*testing.T)) {
	h.suffers(t, t.Name()[strings.LastIndex(t.Name(), "/")+1:], allowed, func() { loss(t) })
	h.changes(t)
	h.inspect(t)
	h.whole(t)
}

// changes makes changes, which must take effect in time.
func (f *faultTest) changes(t *testing.T) {
	t.Run("Change", func(t *testing.T) {
		f.newAddress(t)
		f.newHost(t)
	})
}

// kubectl runs kubectl in the namespace of the manifests.
func (s *suite) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.System(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// migrate follows the documentation: control-plane nodes, settings, the component.
func (h *haTest) migrate(t *testing.T) {
	var addresses []netip.Addr
	for _, node := range nodes {
		h.kubectl(t, "label", "--overwrite", "node", node, "node-role.kubernetes.io/control-plane=")
		all, err := h.NodeAddresses(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, all[0])
	}
	members := func(port uint16) string {
		var all []string
		for _, a := range addresses {
			all = append(all, "ssl:"+netip.AddrPortFrom(a, port).String())
		}
		return strings.Join(all, ",")
	}
	settings, err := h.Kube.CoreV1().ConfigMaps(systemNamespace).Get(t.Context(), "ovnkube", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data := settings.Data
	data["northbound"], data["masters-southbound"] = members(6641), members(6643)
	one := "ssl:" + netip.AddrPortFrom(addresses[0], 6642).String() + "\n"
	if !strings.Contains(data["ovnkube.conf"], one) {
		t.Fatalf("%q is not in %q", one, data["ovnkube.conf"])
	}
	data["ovnkube.conf"] = strings.Replace(data["ovnkube.conf"], one, members(6642)+"\n", 1)
	patch, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "ovnkube", "namespace": systemNamespace}, "data": data,
	})
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(filepath.Dir(h.Kubeconfig), "install")
	overlay := filepath.Join(h.Dir, "ha")
	relative := func(path string) string {
		r, err := filepath.Rel(overlay, path)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	component, err := filepath.Abs("../../../dist/components/ha")
	if err != nil {
		t.Fatal(err)
	}
	kustomization, err := json.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{relative(installed)}, "components": []string{relative(component)},
		"patches": []map[string]string{{"patch": string(patch)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(overlay, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile("ha/kustomization.yaml", string(kustomization)); err != nil {
		t.Fatal(err)
	}
	h.kubectl(t, "delete", "deployment", "ovn-databases")
	h.kubectl(t, "apply", "--server-side", "--force-conflicts", "--kustomize", overlay)
	h.ready(t)
	h.restart(t, "deployment/ovnkube-master", "daemonset/ovnkube-node")
}

// restart restarts workloads one after the other, as an update does.
func (s *suite) restart(t *testing.T, workloads ...string) {
	t.Helper()
	for _, workload := range workloads {
		s.kubectl(t, "rollout", "restart", workload)
		t.Log(s.kubectl(t, "rollout", "status", workload, "--timeout=3m"))
	}
}

// updateMembers replaces the members' pods as docs/high-availability.md describes.
func (h *haTest) updateMembers(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	kubectl := h.Kubectl()
	out, err := lab.Run(ctx, append([]string{"env", "PATH=" + filepath.Dir(kubectl[0]) + ":" + os.Getenv("PATH"), "../../../dist/components/ha/update.sh"}, kubectl[1:]...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out)
}

// ready waits until the members' pods are ready.
func (h *haTest) ready(t *testing.T) {
	t.Helper()
	h.kubectl(t, "wait", fmt.Sprintf("--for=jsonpath={.status.readyReplicas}=%d", len(nodes)), "--timeout=3m", "statefulset/ovn-databases")
}

// members returns the members' pods by node.
func (h *haTest) members(ctx context.Context) (map[string]string, error) {
	pods, err := h.Kube.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=ovn-databases"})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, p := range pods.Items {
		all[p.Spec.NodeName] = p.Name
	}
	return all, nil
}

// status returns the cluster status of the member on a node.
func (h *haTest) status(ctx context.Context, node string, db database) (string, error) {
	return h.Kin.Exec(ctx, node, "ovs-appctl", "--timeout=5", "-t", "/run/ovn/ovn"+db.container+"_db.ctl", "cluster/status", db.schema)
}

// leader waits for a leader and returns its node.
func (h *haTest) leader(t *testing.T, db database) string {
	t.Helper()
	leader := ""
	err := lab.Until(t.Context(), time.Minute, "a leader of "+db.schema, func(ctx context.Context) error {
		for _, node := range nodes {
			text, err := h.status(ctx, node, db)
			if err != nil {
				return err
			}
			if strings.Contains(text, "Role: leader") {
				leader = node
				return nil
			}
		}
		return errors.New("none")
	})
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// whole waits until each database has exactly three members that follow one leader.
func (h *haTest) whole(t *testing.T) {
	t.Helper()
	err := lab.Until(t.Context(), 2*time.Minute, "three members of each database", func(ctx context.Context) error {
		for _, db := range clusteredDatabases {
			for _, node := range nodes {
				text, err := h.status(ctx, node, db)
				if err != nil {
					return err
				}
				if strings.Count(text, " at ssl:") != len(nodes) || !strings.Contains(text, "Status: cluster member") || strings.Contains(text, "Leader: unknown") {
					return fmt.Errorf("%s of %s:\n%s", db.schema, node, text)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// signal sends a signal to the servers of databases on a node.
func (h *haTest) signal(t *testing.T, signal, node string, dbs ...database) {
	t.Helper()
	for _, db := range dbs {
		if _, err := h.Kin.Exec(t.Context(), node, "pkill", "-"+signal, "-f", "^ovsdb-server .*/run/ovn/ovn"+db.container+"_db.sock .*_db.db$"); err != nil {
			t.Fatal(err)
		}
	}
}

// away stops the members on a node while changes are made, which they must have when they return.
func (h *haTest) away(t *testing.T) {
	node := h.leader(t, clusteredDatabases[1])
	h.suffers(t, "member of the databases away", none, func() {
		h.signal(t, "STOP", node, clusteredDatabases...)
		defer h.signal(t, "CONT", node, clusteredDatabases...)
		for range 3 {
			h.newAddress(t)
		}
		h.newHost(t)
	})
	h.inspect(t)
	h.whole(t)
}

// loseDisk deletes the files of the leading member, together with its servers.
func (h *haTest) loseDisk(t *testing.T) {
	node := h.leader(t, clusteredDatabases[0])
	members, err := h.members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Kin.Exec(t.Context(), node, "sh", "-c", "rm -f /var/lib/ovn/*"); err != nil {
		t.Fatal(err)
	}
	h.kubectl(t, "delete", "pod", members[node], "--grace-period=0", "--force")
	h.ready(t)
	h.whole(t)
}

// killMaster kills the leading master.
func (h *haTest) killMaster(t *testing.T) {
	lease, err := h.Kube.CoordinationV1().Leases(systemNamespace).Get(t.Context(), "ovn-kubernetes-master", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		if strings.HasPrefix(*lease.Spec.HolderIdentity, node+"_") {
			if _, err := h.Kin.Exec(t.Context(), node, "pkill", "-KILL", "-f", "^ovnkube --init-master="); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("the lease is %s's", *lease.Spec.HolderIdentity)
}

// masterLogs returns the logs of the masters, including those of containers that ended.
func (s *suite) masterLogs(ctx context.Context) (string, error) {
	masters := nodes
	if !s.installed {
		masters = []string{lab.ControlPlane}
	}
	var all strings.Builder
	for _, node := range masters {
		out, err := s.Logs(ctx, node, "ovnkube-master")
		if err != nil {
			return "", err
		}
		all.WriteString(out)
	}
	return all.String(), nil
}
