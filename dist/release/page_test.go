package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPageDocument renders the component of docs/page.md with each gateway mode and with three masters. All that it adds is in
// the overlay, so that applying the overlay again keeps it and deleting the overlay deletes it.
func TestPageDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/page.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("```yaml\ncomponents:\n(  - [^\n]+\n)```").FindStringSubmatch(string(text))
	if line == nil {
		t.Fatal("docs/page.md has no component")
	}
	for _, mode := range []string{"local", "shared"} {
		for _, before := range []string{"", "  - ../ovnkube/dist/components/ha\n"} {
			dir := write(t, map[string]string{"my-cluster/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" +
				"resources:\n  - ../ovnkube/dist/overlays/" + mode + "\ncomponents:\n" + before + line[1]})
			for _, name := range []string{"base", "components", "overlays"} {
				if err := os.CopyFS(filepath.Join(dir, "ovnkube/dist", name), os.DirFS("../"+name)); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			if err := render(&out, filepath.Join(dir, "my-cluster"), ""); err != nil {
				t.Fatal(err)
			}
			replicas := "  replicas: 1\n"
			if before != "" {
				replicas = "  replicas: 3\n"
			}
			found := map[string]int{}
			for object := range strings.SplitSeq(out.String(), "\n---\n") {
				object += "\n"
				switch {
				case strings.Contains(object, "kind: Deployment\n") && strings.Contains(object, "\n  name: ovnkube-master\n"):
					found["master"]++
					for _, want := range []string{
						"- --egress-page-bind-address=[$(NODE_IP)]:9414\n", "- --egress-page-privkey=/etc/ovnkube-page/tls.key\n", "- --egress-page-cert=/etc/ovnkube-page/tls.crt\n",
						"- containerPort: 9414\n", "- mountPath: /etc/ovnkube-page\n", "secretName: ovnkube-page\n",
						"- --gateway-mode=" + mode + "\n", "- --init-master=$(NODE_NAME)\n", replicas,
					} {
						if n := strings.Count(object, want); n != 1 {
							t.Errorf("%s: %d times %q in the Deployment:\n%s", mode, n, want, object)
						}
					}
				case strings.Contains(object, "\n  name: ovnkube-page\n"):
					found["roles"]++
				}
			}
			if found["master"] != 1 || found["roles"] != 2 {
				t.Errorf("%s after %q: %v, want a Deployment, and a ClusterRole with its binding", mode, before, found)
			}
		}
	}
}
