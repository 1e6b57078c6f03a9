package manifests

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/table"
)

const dist = "../../../dist"

// objects decodes every manifest in dist strictly: unknown and duplicate fields are errors.
func objects(t *testing.T) []runtime.Object {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(kinds, serializer.EnableStrict).UniversalDeserializer()
	var found []runtime.Object
	for _, pattern := range []string{"base/*.yaml", "components/ha/*.yaml", "components/page/rbac.yaml", "crds/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(dist, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("find %s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if filepath.Base(file) == "kustomization.yaml" {
				continue
			}
			for _, document := range documents(t, file) {
				object, _, err := decoder.Decode(document, nil, nil)
				if err != nil {
					t.Errorf("%s: %v", file, err)
					continue
				}
				found = append(found, object)
			}
		}
	}
	return found
}

func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reader := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer reader.Close()
	var all [][]byte
	for {
		buffer := make([]byte, len(text)+1)
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, buffer[:n])
	}
}

// TestManifests decodes all manifests and checks what they refer to.
func TestManifests(t *testing.T) {
	all := objects(t)
	accounts, roles := map[string]bool{"": true}, map[string]bool{}
	for _, object := range all {
		switch o := object.(type) {
		case *corev1.ServiceAccount:
			accounts[o.Name] = true
		case *rbacv1.ClusterRole:
			roles[o.Name] = true
		case *rbacv1.Role:
			roles[o.Name] = true
		}
	}
	for _, object := range all {
		switch o := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			checkBinding(t, o.Name, o.RoleRef, o.Subjects, roles, accounts)
		case *rbacv1.RoleBinding:
			checkBinding(t, o.Name, o.RoleRef, o.Subjects, roles, accounts)
		case *appsv1.Deployment:
			checkPod(t, o.Name, &o.Spec.Template, accounts)
		case *appsv1.StatefulSet:
			checkPod(t, o.Name, &o.Spec.Template, accounts)
		case *appsv1.DaemonSet:
			checkPod(t, o.Name, &o.Spec.Template, accounts)
		}
	}
}

func checkBinding(t *testing.T, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject, roles, accounts map[string]bool) {
	t.Helper()
	if !roles[ref.Name] {
		t.Errorf("binding %s: no role %s", name, ref.Name)
	}
	for _, s := range subjects {
		if !accounts[s.Name] {
			t.Errorf("binding %s: no service account %s", name, s.Name)
		}
	}
}

// checkPod checks that mounted volumes exist and that existing volumes are mounted.
func checkPod(t *testing.T, name string, pod *corev1.PodTemplateSpec, accounts map[string]bool) {
	t.Helper()
	if !accounts[pod.Spec.ServiceAccountName] {
		t.Errorf("%s: no service account %s", name, pod.Spec.ServiceAccountName)
	}
	unused := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		unused[v.Name] = true
	}
	volumes := len(unused)
	mounted := map[string]bool{}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
			delete(unused, m.Name)
		}
	}
	if len(unused) > 0 || len(mounted) != volumes {
		t.Errorf("%s: volumes not mounted %v; %d mounted, %d there", name, unused, len(mounted), volumes)
	}
}

// TestOvnkubeAcceptsItsSettings loads the configuration file and the command line of each role as ovnkube does.
func TestOvnkubeAcceptsItsSettings(t *testing.T) {
	all := objects(t)
	var file *config.File
	values := map[string]string{} // of environment variables
	for _, object := range all {
		if m, ok := object.(*corev1.ConfigMap); ok && m.Name == "ovnkube" {
			// Users replace CONTROLPLANE by an address.
			text := strings.ReplaceAll(m.Data["ovnkube.conf"], "CONTROLPLANE", "172.18.0.2")
			file = &config.File{Name: "ovnkube.conf", Data: []byte(text)}
			values["$(NORTHBOUND)"] = strings.ReplaceAll(m.Data["northbound"], "CONTROLPLANE", "172.18.0.2")
			values["$(MASTERS_SOUTHBOUND)"] = strings.ReplaceAll(m.Data["masters-southbound"], "CONTROLPLANE", "172.18.0.2")
		}
	}
	if file == nil {
		t.Fatal("there is no ConfigMap")
	}
	for _, mode := range []string{"local", "shared"} {
		for _, values["$(NODE_IP)"] = range []string{"172.18.0.3", "fc00:f853:ccd:e793::3"} {
			for _, object := range all {
				switch o := object.(type) {
				case *appsv1.Deployment:
					loadRole(t, file, mode, values, o.Spec.Template.Spec.Containers)
				case *appsv1.DaemonSet:
					loadRole(t, file, mode, values, o.Spec.Template.Spec.Containers)
				}
			}
		}
	}
}

// roles are the command-line flags that are not settings.
var roles = map[string]bool{"init-master": true, "init-node": true, "config-file": true}

// loadRole loads the settings of a role in a gateway mode with the given variables.
func loadRole(t *testing.T, file *config.File, mode string, values map[string]string, containers []corev1.Container) {
	t.Helper()
	for _, c := range containers {
		if len(c.Args) == 0 || c.Args[0] != "ovnkube" {
			continue
		}
		given := map[string]string{"gateway-mode": mode}
		for _, arg := range c.Args[1:] {
			name, value, found := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !found {
				t.Errorf("%s: argument %s has no value", c.Name, arg)
			}
			if !roles[name] {
				for variable, v := range values {
					value = strings.ReplaceAll(value, variable, v)
				}
				given[name] = value
			}
		}
		cfg, notices, err := config.Load(config.Sources{Flags: given, File: file})
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for _, n := range notices {
			if n.Override && c.Name == "ovnkube-master" && n.Where == "--sb-address" { // masters use another port than nodes
				continue
			}
			t.Errorf("%s: %v", c.Name, n)
		}
		if string(cfg.Gateway.Mode) != mode {
			t.Errorf("%s: gateway mode %q, want %q", c.Name, cfg.Gateway.Mode, mode)
		}
		if !cfg.Features.EgressService {
			t.Errorf("%s: EgressService is off", c.Name)
		}
		remotes := []string{cfg.OVNSouth.Remote()}
		if c.Name == "ovnkube-master" {
			remotes = append(remotes, cfg.OVNNorth.Remote())
		}
		for _, n := range remotes {
			if !strings.HasPrefix(n, "ssl:172.18.0.2:") {
				t.Errorf("%s: database %s", c.Name, n)
			}
		}
		checkCertificates(t, c, cfg)
		checkMetrics(t, c, cfg)
	}
}

// checkCertificates: a master and a node present the mounted certificates to databases with the right name. Nodes
// do not use the northbound database.
func checkCertificates(t *testing.T, c corev1.Container, cfg config.Config) {
	t.Helper()
	mounted := ""
	for _, m := range c.VolumeMounts {
		if m.Name == "pki" {
			mounted = m.MountPath + "/"
		}
	}
	check := func(d config.Database, name string) {
		got := []string{d.PrivKey, d.Cert, d.CACert, d.CommonName}
		if want := []string{mounted + "ovn-privkey.pem", mounted + "ovn-cert.pem", mounted + "cacert.pem", name}; !slices.Equal(got, want) {
			t.Errorf("%s: certificates %q, want %q", c.Name, got, want)
		}
	}
	check(cfg.OVNSouth, "sb")
	port := ":6642"
	if c.Name == "ovnkube-master" {
		check(cfg.OVNNorth, "nb")
		port = ":6643"
	}
	if got := cfg.OVNSouth.Remote(); !strings.HasSuffix(got, port) {
		t.Errorf("%s: southbound database %s, want port %s", c.Name, got, port)
	}
}

// checkMetrics: metrics are served over TLS and not to everybody, with the mounted certificate, and the kubelet asks for the
// health over TLS, too.
func checkMetrics(t *testing.T, c corev1.Container, cfg config.Config) {
	t.Helper()
	if !cfg.Metrics.Restricted() || cfg.Kubernetes.HealthzBindAddress != "" {
		t.Errorf("%s: everybody may read metrics: %+v", c.Name, cfg.Metrics)
	}
	mounted := ""
	for _, m := range c.VolumeMounts {
		if m.Name == "metrics" {
			mounted = m.MountPath + "/"
		}
	}
	if got, want := []string{cfg.Metrics.ServerKey, cfg.Metrics.ServerCert}, []string{mounted + "ovn-privkey.pem", mounted + "ovn-cert.pem"}; !slices.Equal(got, want) {
		t.Errorf("%s: certificate of metrics %q, want %q", c.Name, got, want)
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s: a probe without TLS: %+v", c.Name, p)
		}
	}
}

// TestNamesOfRoutingTables: wherever ovnkube looks for the host's names of routing tables, the host's directory is
// mounted in the container, read-only.
func TestNamesOfRoutingTables(t *testing.T) {
	var node *corev1.PodSpec
	for _, object := range objects(t) {
		if set, ok := object.(*appsv1.DaemonSet); ok && set.Name == "ovnkube-node" {
			node = &set.Spec.Template.Spec
		}
	}
	if node == nil {
		t.Fatal("there is no DaemonSet ovnkube-node")
	}
	paths := map[string]string{}
	for _, v := range node.Volumes {
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
		}
	}
	ofHost := func(dir string) string { // the host's directory that is mounted there
		for _, m := range node.Containers[0].VolumeMounts {
			if rest, ok := strings.CutPrefix(dir+"/", paths[m.Name]+"/"); ok && paths[m.Name] != "" {
				if !m.ReadOnly {
					t.Errorf("%s can be written", m.MountPath)
				}
				return filepath.Join(m.MountPath, rest)
			}
		}
		return ""
	}
	for _, dir := range []string{"/etc/iproute2", "/usr/share/iproute2", "/usr/lib/iproute2"} {
		if at := ofHost(dir); !slices.Contains(table.DefaultDirs, at) {
			t.Errorf("%s of the host is %q in the container, and ovnkube looks in %v", dir, at, table.DefaultDirs)
		}
	}
	if last := table.DefaultDirs[len(table.DefaultDirs)-1]; last != ofHost("/etc/iproute2") {
		t.Errorf("%s overrides /etc/iproute2", last)
	}
}

// TestSettingsOfTheInstallation: ovnkube accepts the settings in the documentation.
func TestSettingsOfTheInstallation(t *testing.T) {
	for page, want := range map[string]string{
		"install.md":           "ssl:192.0.2.11:6642",
		"high-availability.md": "ssl:192.0.2.11:6642,ssl:192.0.2.12:6642,ssl:192.0.2.13:6642",
	} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "  ovnkube.conf: |\n")
		data, _, found := strings.Cut(rest, "```")
		if !found {
			t.Fatalf("%s: there is no ovnkube.conf", page)
		}
		cfg, notices, err := config.Load(config.Sources{
			File:  &config.File{Name: "ovnkube.conf", Data: []byte(data)},
			Flags: map[string]string{"sb-cert-common-name": "sb"}, // as in the manifests
		})
		if err != nil || len(notices) > 0 {
			t.Fatalf("%s: %v, notices %v", page, err, notices)
		}
		if got := cfg.OVNSouth.Remote(); got != want || !cfg.Features.EgressIP {
			t.Errorf("%s: southbound database %s, EgressIP %t", page, got, cfg.Features.EgressIP)
		}
	}
}
