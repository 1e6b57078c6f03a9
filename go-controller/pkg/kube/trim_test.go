package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kept are the fields that trimPod keeps, by type.
var kept = map[string][]string{
	"PodSpec":      {"HostNetwork", "NodeName"},
	"PodStatus":    {"Conditions", "HostIPs", "Phase", "PodIPs", "StartTime"},
	"PodCondition": {"Reason", "Status", "Type"},
}

// webPod is a pod as Deployments make them.
func webPod() *corev1.Pod {
	now := metav1.NewTime(time.Unix(1700000000, 0))
	container := corev1.Container{Name: "web", Image: "registry.example.com/shop/web:1.2.3", Args: []string{"--listen", ":8080"}}
	for i := range 20 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", i), Value: strings.Repeat("x", 40)})
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "web"},
			Annotations:   map[string]string{AnnotationPodNetworks: "{}"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", HostNetwork: true, Containers: []corev1.Container{container}, InitContainers: []corev1.Container{container},
			Volumes:     []corev1.Volume{{Name: "token"}, {Name: "config"}},
			Tolerations: []corev1.Toleration{{Key: "a"}, {Key: "b"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.244.1.5"}}, HostIPs: []corev1.HostIP{{IP: "172.18.0.3"}}, StartTime: &now,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", ImageID: strings.Repeat("s", 80)}},
		},
	}
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, Reason: "r", Message: "m", LastTransitionTime: now})
	}
	return p
}

// TestTrimPod: a cached pod has its metadata, the fields that are read, and no others. The object that the
// informer was given stays as it is.
func TestTrimPod(t *testing.T) {
	in := webPod()
	obj, err := Trim(in)
	if err != nil {
		t.Fatal(err)
	}
	out := obj.(*corev1.Pod)
	if d := cmp.Diff(webPod(), in); d != "" {
		t.Errorf("the argument has changed:\n%s", d)
	}
	meta := webPod().ObjectMeta
	meta.ManagedFields = nil
	if d := cmp.Diff(meta, out.ObjectMeta); d != "" {
		t.Errorf("metadata:\n%s", d)
	}
	for _, part := range []struct{ in, out any }{{in.Spec, out.Spec}, {in.Status, out.Status}, {in.Status.Conditions[0], out.Status.Conditions[0]}} {
		before, after := reflect.ValueOf(part.in), reflect.ValueOf(part.out)
		for i := range before.NumField() {
			field, typ := before.Type().Field(i).Name, before.Type().Name()
			if field == "Conditions" {
				continue
			}
			want := reflect.Zero(before.Field(i).Type()).Interface()
			if slices.Contains(kept[typ], field) {
				want = before.Field(i).Interface()
				if before.Field(i).IsZero() {
					t.Errorf("the test has no %s.%s", typ, field)
				}
			}
			if d := cmp.Diff(want, after.Field(i).Interface()); d != "" {
				t.Errorf("%s.%s:\n%s", typ, field, d)
			}
		}
	}
	if len(out.Status.Conditions) != len(in.Status.Conditions) {
		t.Errorf("conditions are %v", out.Status.Conditions)
	}
}

// TestCostOfPods: a cached pod takes a fraction of what the API server sends.
func TestCostOfPods(t *testing.T) {
	const pods, limit = 2000, 3 << 10 // bytes for each
	text, err := json.Marshal(webPod())
	if err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	cached, before := make([]any, pods), heap()
	for i := range cached {
		p := &corev1.Pod{}
		if err := json.Unmarshal(text, p); err != nil {
			t.Fatal(err)
		}
		if cached[i], err = Trim(p); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heap() - before) / pods; each > limit {
		t.Errorf("%d bytes for each pod, want at most %d", each, limit)
	}
	runtime.KeepAlive(cached)
}

// listed is a package as "go list" describes it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// TestPodFieldsThatAreRead: the program reads no field of pods that trimPod drops. Those of package explain are
// listed by itself, and complete.
func TestPodFieldsThatAreRead(t *testing.T) {
	const module = "github.com/ovnkube/ovnkube/go-controller/"
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", module+"pkg/...", module+"cmd/...")
	list.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the image; also with the race detector, which needs cgo
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if exports[p.ImportPath] = p.Export; !p.DepOnly && p.ImportPath != module+"pkg/explain" {
			packages = append(packages, p)
		}
	}
	files := token.NewFileSet()
	load := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	found := map[string]bool{}
	for _, p := range packages {
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		if _, err := (&types.Config{Importer: load}).Check(p.ImportPath, files, parsed, info); err != nil {
			t.Fatal(err)
		}
		for at, s := range info.Selections {
			name, ok := strings.CutPrefix(strings.TrimPrefix(s.Recv().String(), "*"), "k8s.io/api/core/v1.")
			field := s.Obj().Name()
			if fields := kept[name]; !ok || s.Kind() != types.FieldVal || fields == nil {
				continue
			} else if found[name+"."+field] = true; !slices.Contains(fields, field) {
				t.Errorf("%s: %s.%s of cached pods is empty: trimPod drops it", files.Position(at.Pos()), name, field)
			}
		}
	}
	for name, fields := range kept {
		for _, field := range fields {
			if !found[name+"."+field] {
				t.Errorf("nothing reads %s.%s: trimPod need not keep it", name, field)
			}
		}
	}
}
