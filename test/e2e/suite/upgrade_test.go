package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// latePort is the port of the server behind the gateways for the pods of a late policy.
const latePort = 7060

// The gaps that are allowed in an upgrade.
var (
	// A node hands its egress addresses over and gets them back.
	handedOver  = gaps{figures.Upgrade, figures.Upgrade, figures.Upgrade}
	controllers = gaps{figures.Fault, figures.Fault, figures.Upgrade}
	undisturbed = gaps{figures.Undisturbed, figures.Undisturbed, figures.Undisturbed}
	restarted   = gaps{figures.SwitchRestart, figures.SwitchRestart, figures.SwitchRestart}
)

// upgraded are the workloads that a step of an upgrade replaces, with what is measured and the gaps
// that are allowed.
var upgraded = map[string]struct {
	figure  string
	allowed gaps
}{
	"DaemonSet/ovnkube-node":    {"upgrade of ovnkube on the nodes", handedOver},
	"DaemonSet/ovn-controller":  {"upgrade of ovn-controller", controllers},
	"Deployment/ovnkube-master": {"upgrade of the master", undisturbed},
	"Deployment/ovn-databases":  {"upgrade of the databases", undisturbed},
	"Deployment/ovnkube-pki":    {"upgrade of ovnkube-pki", undisturbed},
}

// version is the rendered manifests of a version, with this cluster's settings.
type version struct {
	tag, crds string // the tag of the image
	objects   []unstructured.Unstructured
}

// upgrade is a cluster with the workloads of one version, or of two.
type upgrade struct {
	*faultTest
	policies         *gatewayTest
	earlier, present version
	// commit is the commit of the earlier version.
	commit string
}

// TestUpgrade installs the manifests and the image of an earlier version, which test/e2e/upgrade.sh
// has written to UPGRADE_DIR, upgrades the workloads to the present version, and downgrades them:
// nodes first, the master first, and all at once. Whichever is newer, masters and nodes work
// together: new EgressIPs, EgressServices and policies take effect. No packet has a wrong source,
// and a master keeps the rows of the other version.
func TestUpgrade(t *testing.T) {
	dir := os.Getenv("UPGRADE_DIR")
	if dir == "" {
		t.Fatal("UPGRADE_DIR is not set: run make upgrade-test")
	}
	t.Setenv("KIN_CRDS", filepath.Join(dir, "dist", "crds"))
	t.Setenv("KIN_MANIFESTS", filepath.Join(dir, "dist", "base"))
	t.Setenv("KIN_IMAGE", filepath.Join(dir, "image.tar"))
	dist, err := filepath.Abs("../../../dist")
	if err != nil {
		t.Fatal(err)
	}
	commit, err := os.ReadFile(filepath.Join(dir, "revision"))
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrade{commit: strings.TrimSpace(string(commit))}
	s := start(t, "local", func(o *lab.Options) {
		o.Name, o.Install = fmt.Sprintf("e2e-upgrade-%d", os.Getpid()), "manifests"
		o.Before = func(ctx context.Context, l *lab.Lab) (err error) {
			overlay := filepath.Join(l.Manifests(), "kustomization.yaml")
			settings, err := readKustomization(overlay)
			if err != nil {
				return err
			}
			if u.present, err = render(ctx, l, settings, "latest", dist, filepath.Join(l.Dir, "present")); err != nil {
				return err
			}
			u.earlier, err = render(ctx, l, settings, "earlier", filepath.Join(dir, "dist"), l.Manifests())
			return err
		}
	})
	if err := s.Kin.LoadImage(t.Context(), filepath.Join(dist, "..", "_output", "image.tar")); err != nil {
		t.Fatal(err)
	}
	u.faultTest = s.newFaultTest(t)
	u.policies = newGatewayTest(t, s)
	for _, gw := range u.gateways {
		if err := u.ServeAlso(t.Context(), gw.Name, latePort); err != nil {
			t.Fatal(err)
		}
	}
	before := u.settledState(t).Anonymous()
	nodes, others := []string{"DaemonSet/ovnkube-node", "DaemonSet/ovn-controller"}, []string{"Deployment/ovn-databases", "Deployment/ovnkube-pki"}
	master := []string{"Deployment/ovnkube-master"}
	u.define(t, u.present)
	t.Run("UpNodesFirst", func(t *testing.T) { u.pass(t, u.present, slices.Concat(nodes, master, others)) })
	t.Run("OpenvSwitch", u.switches)
	t.Run("DownNodesFirst", func(t *testing.T) { u.pass(t, u.earlier, slices.Concat(nodes, master, others)) })
	t.Run("SameAsBefore", func(t *testing.T) { u.same(t, before, lab.State.Anonymous) })
	t.Run("UpMasterFirst", func(t *testing.T) { u.pass(t, u.present, slices.Concat(master, nodes)) })
	t.Run("DownMasterFirst", func(t *testing.T) { u.pass(t, u.earlier, slices.Concat(master, nodes)) })
	u.define(t, u.earlier)
	t.Run("Definitions", u.changes)
	t.Run("UpAtOnce", u.atOnce)
	t.Logf("longest time without an echo, of connections that were open and of new ones, in milliseconds:\n%s", u.table.String())
}

func readKustomization(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var k map[string]any
	return k, yaml.Unmarshal(text, &k)
}

// render writes an overlay of a version's manifests to a directory, with the settings that kin gave
// the cluster and an image tag, and renders it. The settings have the keys of both versions, as
// they must while a cluster runs both.
func render(ctx context.Context, l *lab.Lab, settings map[string]any, tag, dist, dir string) (version, error) {
	v := version{tag: tag, crds: filepath.Join(dist, "crds")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return v, err
	}
	base, err := filepath.Rel(dir, filepath.Join(dist, "overlays", "kin"))
	if err != nil {
		return v, err
	}
	patch := settings["patches"].([]any)[0].(map[string]any)["patch"].(string)
	var configMap struct {
		unstructured.Unstructured
	}
	if err := json.Unmarshal([]byte(patch), &configMap.Object); err != nil {
		return v, fmt.Errorf("read settings: %w", err)
	}
	data := configMap.Object["data"].(map[string]any)
	data["ovnkube.conf"] = fmt.Sprintf("%s[ovnnorth]\naddress=%s\n", data["ovnkube.conf"], data["northbound"])
	changed, err := json.Marshal(configMap.Object)
	if err != nil {
		return v, err
	}
	kustomization, err := json.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{base}, "patches": []map[string]string{{"patch": string(changed)}},
		"images": []map[string]string{{"name": "ovnkube", "newTag": tag}},
	})
	if err != nil {
		return v, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), kustomization, 0o600); err != nil {
		return v, err
	}
	rendered, err := lab.Run(ctx, append(l.Kubectl(), "kustomize", dir)...)
	if err != nil {
		return v, err
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(rendered), 4096); ; {
		var o unstructured.Unstructured
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return v, nil
		case err != nil:
			return v, fmt.Errorf("read manifests: %w", err)
		}
		v.objects = append(v.objects, o)
	}
}

// apply applies the objects of a version for which a function returns true.
func (u *upgrade) apply(t *testing.T, v version, want func(name string) bool) {
	t.Helper()
	list := unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, o := range v.objects {
		if want(o.GetKind() + "/" + o.GetName()) {
			list.Items = append(list.Items, o)
		}
	}
	if len(list.Items) == 0 {
		t.Fatalf("nothing of %s to apply", v.tag)
	}
	text, err := list.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	path, err := u.WriteFile("apply.json", string(text))
	if err != nil {
		t.Fatal(err)
	}
	u.kubectl(t, "apply", "--filename", path)
}

// define applies everything of a version except the workloads: definitions, roles, admission
// policies, settings.
func (u *upgrade) define(t *testing.T, v version) {
	t.Helper()
	u.kubectl(t, "apply", "--filename", v.crds)
	u.apply(t, v, func(name string) bool { _, ok := upgraded[name]; return !ok })
}

// pass switches the workloads to a version, one after the other. After each the cluster must take
// changes; after the master and the nodes' ovnkube, changes of every kind.
func (u *upgrade) pass(t *testing.T, v version, workloads []string) {
	for _, workload := range workloads {
		t.Run(strings.ToLower(filepath.Base(workload)), func(t *testing.T) {
			var before lab.State
			master := workload == "Deployment/ovnkube-master"
			if master {
				before = u.settledState(t)
			}
			w := upgraded[workload]
			u.moved = false
			u.suffers(t, w.figure, w.allowed, func() {
				u.apply(t, v, func(name string) bool { return name == workload })
				u.kubectl(t, "rollout", "status", strings.ToLower(workload), "--timeout=3m")
			})
			u.runs(t, v, workload)
			if master {
				u.decides(t)
				u.adopted(t, before, u.settledState(t))
			}
			if master || workload == "DaemonSet/ovnkube-node" {
				t.Run("Change", u.changes)
			} else {
				t.Run("Change", u.newAddress)
			}
			u.inspect(t)
		})
	}
}

// atOnce upgrades everything at once, as a single kubectl apply does.
func (u *upgrade) atOnce(t *testing.T) {
	u.suffers(t, "upgrade of everything at once", handedOver, func() {
		u.define(t, u.present)
		u.apply(t, u.present, func(name string) bool { _, ok := upgraded[name]; return ok })
		for workload := range upgraded {
			u.kubectl(t, "rollout", "status", strings.ToLower(workload), "--timeout=5m")
		}
	})
	for workload := range upgraded {
		u.runs(t, u.present, workload)
	}
	t.Run("Change", u.changes)
	u.inspect(t)
}

// runs fails the test if a workload does not run the program of a version.
func (u *upgrade) runs(t *testing.T, v version, workload string) {
	t.Helper()
	on, port := nodes, 9410
	switch workload {
	case "DaemonSet/ovnkube-node":
	case "Deployment/ovnkube-master":
		on, port = nodes[:1], 9409
	default:
		return
	}
	for _, node := range on {
		address, err := u.nodeAddress(t.Context(), node, true)
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("%s:%d", address, port)
		said, err := u.scrape(t.Context(), node, at)
		if err != nil && v.tag == u.earlier.tag { // it may have neither TLS nor permissions
			said, err = u.Call(t.Context(), node, false, "get", "http://"+at+"/metrics")
		}
		if err != nil {
			t.Fatal(err)
		}
		_, said, _ = strings.Cut(said, "ovnkube_build_info{commit=\"")
		commit, _, _ := strings.Cut(said, "\"")
		if commit == "" || (commit == u.commit) != (v.tag == u.earlier.tag) {
			t.Errorf("%s of %s is of commit %q, want the version %s; the earlier one is %s", workload, node, commit, v.tag, u.commit)
		}
	}
}

// changes creates an EgressIP, an EgressService, a pod and a policy, which must take effect in
// time.
func (u *upgrade) changes(t *testing.T) {
	t.Run("EgressIP", u.newAddress)
	t.Run("EgressService", u.newHost)
	t.Run("Pod", u.newPod)
	t.Run("Policy", func(t *testing.T) {
		u.echoes(t, u.gatewayPod(t, u.policies, lab.Traffic{Namespace: lateName, Name: "gateway-late", Node: lab.ControlPlane, To: at(lab.Beyond, latePort)}))
	})
}

// switches restarts Open vSwitch on one node after the other, as when its pod is deleted and
// recreated.
func (u *upgrade) switches(t *testing.T) {
	for _, node := range nodes {
		t.Run(node, func(t *testing.T) {
			u.moved = false
			u.suffers(t, "restart of Open vSwitch", restarted, func() {
				for _, step := range [][2]string{{"stop", "ovs-vswitchd"}, {"restart", "ovsdb-server"}, {"start", "ovs-vswitchd"}} {
					if err := u.Service(t.Context(), step[0], node, step[1]); err != nil {
						t.Fatal(err)
					}
				}
			})
			t.Logf("its egress addresses moved: %t", u.moved)
			u.inspect(t)
		})
	}
	t.Run("Change", u.changes)
}

// adopted fails the test if northbound rows were replaced by other rows with the same content. It
// logs other differences: what the versions write differently.
func (u *upgrade) adopted(t *testing.T, before, after lab.State) {
	t.Helper()
	if u.moved {
		t.Log("addresses have moved: rows of the northbound database are not compared")
		return
	}
	anonymous := func(row string) string { return lab.State{"": row}.Anonymous()[""] }
	for place, text := range before {
		if !strings.HasPrefix(place, "northbound ") {
			continue
		}
		is := strings.Split(after[place], "\n\n")
		said := map[string]bool{}
		for _, row := range is {
			said[anonymous(row)] = true
		}
		for row := range strings.SplitSeq(text, "\n\n") {
			if !slices.Contains(is, row) && said[anonymous(row)] {
				t.Errorf("%s: a row has been written again:\n%s", place, row)
			}
		}
	}
	if diff := before.Anonymous().Diff(after.Anonymous()); diff != "" {
		t.Logf("the versions differ in:\n%s", diff)
	}
}
