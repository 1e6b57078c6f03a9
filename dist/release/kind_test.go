package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Fakes of the programs that contrib/kind.sh runs, which print how they were called.
// The addresses of nodes are derived from their names. kubectl prints them without a newline.
const (
	fakeKind = `#!/bin/sh
echo "kind $*"
if [ "$2" = cluster ] && [ "$1" = create ]; then cat; fi
`
	fakeDocker = `#!/bin/sh
echo "docker $1"
`
	fakeKubectl = `#!/bin/sh
case "$*" in
"get node ovn-control-plane "*) printf %s "$FIRST fc00::1" ;;
"get node ovn-control-plane2 "*) printf %s '172.18.0.3 fc00::3' ;;
"get node ovn-control-plane3 "*) printf %s '172.18.0.4 fc00::4' ;;
"apply -k "*) cp -r "$3" rendered ;;
*) echo "kubectl $*" ;;
esac
`
)

// TestKind runs the script for kind without a container engine, and checks how it calls kind and which
// manifests it would apply.
func TestKind(t *testing.T) {
	for _, c := range []struct {
		name          string
		env           []string
		nodes         int // of the control plane
		said, applied []string
	}{
		{
			name: "one", env: []string{"FIRST=172.18.0.2"}, nodes: 1,
			said: []string{"  ipFamily: dual\n", "  podSubnet: 10.244.0.0/16,fd00:10:244::/48\n", "kubeProxyMode: none\n"},
			applied: []string{
				"  northbound: ssl:172.18.0.2:6641\n", "  masters-southbound: ssl:172.18.0.2:6643\n", "    address=ssl:172.18.0.2:6642\n",
				"apiserver=https://172.18.0.2:6443\n", "--gateway-mode=shared\n", "cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48/64\n",
			},
		},
		{
			name: "IPv6", env: []string{"FIRST=fc00::2", "IP_FAMILY=ipv6", "GATEWAY_MODE=local"}, nodes: 1,
			said:    []string{"  ipFamily: ipv6\n"},
			applied: []string{"  northbound: ssl:[fc00::2]:6641\n", "apiserver=https://[fc00::2]:6443\n", "--gateway-mode=local\n"},
		},
		{
			name: "three", env: []string{"FIRST=172.18.0.2", "HA=1", "WORKERS=1"}, nodes: 3,
			said: []string{"  - role: worker\n"},
			applied: []string{
				"  northbound: ssl:172.18.0.2:6641,ssl:172.18.0.3:6641,ssl:172.18.0.4:6641\n",
				"    address=ssl:172.18.0.2:6642,ssl:172.18.0.3:6642,ssl:172.18.0.4:6642\n",
				"apiserver=https://ovn-external-load-balancer:6443\n", "kind: StatefulSet\n",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProject(t)
			script, err := os.ReadFile("../../contrib/kind.sh")
			if err != nil {
				t.Fatal(err)
			}
			p.write(t, "contrib/kind.sh", string(script))
			fake := project{dir: p.path}
			for name, text := range map[string]string{"kind": fakeKind, "docker": fakeDocker, "kubectl": fakeKubectl, "modprobe": "#!/bin/sh\n"} {
				fake.write(t, name, text)
			}
			out, err := p.run("env", append(c.env, "contrib/kind.sh")...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if n := strings.Count(out, "  - role: control-plane\n"); n != c.nodes {
				t.Errorf("%d control-plane nodes, want %d", n, c.nodes)
			}
			// The overlay was at the same depth, so that its relative paths work.
			var applied bytes.Buffer
			if err := os.MkdirAll(filepath.Join(p.dir, "_output"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(p.dir, "rendered"), filepath.Join(p.dir, "_output/rendered")); err != nil {
				t.Fatal(err)
			}
			if err := render(&applied, filepath.Join(p.dir, "_output/rendered"), ""); err != nil {
				t.Fatal(err)
			}
			for text, in := range map[string][]string{out: c.said, applied.String(): c.applied} {
				for _, want := range in {
					if !strings.Contains(text, want) {
						t.Errorf("%q is missing:\n%s", want, text)
					}
				}
			}
		})
	}
}

// TestKindRefusals: an invalid setting ends the script with an error that names it, before anything is created.
func TestKindRefusals(t *testing.T) {
	for setting, want := range map[string]string{
		"GATEWAY_MODE=routed": "kind.sh: GATEWAY_MODE is routed; allowed: local, shared\n",
		"GATEWAY_MODE=ha":     "kind.sh: GATEWAY_MODE is ha; allowed: local, shared\n", // an overlay, and no mode
		"IP_FAMILY=both":      "kind.sh: IP_FAMILY is both; allowed: dual, ipv4, ipv6\n",
		"WORKERS=some":        "kind.sh: WORKERS is some; allowed: a number\n",
	} {
		p := newProject(t)
		script, err := os.ReadFile("../../contrib/kind.sh")
		if err != nil {
			t.Fatal(err)
		}
		p.write(t, "contrib/kind.sh", string(script))
		fake := project{dir: p.path}
		for _, name := range []string{"kind", "docker", "kubectl"} {
			fake.write(t, name, "#!/bin/sh\necho made\n")
		}
		if out, err := p.run("env", setting, "contrib/kind.sh"); err == nil || out != want {
			t.Errorf("%s: %v: %q, want %q", setting, err, out, want)
		}
	}
}
