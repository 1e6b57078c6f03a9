package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// host is a network and mount namespace in which daemons of the image run, started as in their containers. The
// directories that pods share are empty at first, and certificates are in the place where pods mount them.
type host struct {
	t      *testing.T
	holder *exec.Cmd
}

func newHost(t *testing.T) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("daemons need root")
	}
	const setup = `set -e
for dir in /run /var/lib/ovn /etc/openvswitch /etc/ovn; do mount -t tmpfs tmpfs $dir; done
mkdir -p /etc/ovn/pki /run/fake
cd /etc/ovn/pki
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=all -days 1 -keyout ovn-privkey.pem -out ovn-cert.pem 2>/dev/null
cp ovn-cert.pem cacert.pem
ln -s /bin/true /run/fake/modprobe
ip link set lo up
echo ready
exec sleep infinity`
	h := &host{t: t, holder: exec.Command("unshare", "--mount", "--net", "sh", "-c", setup)}
	out, err := h.holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems bytes.Buffer
	h.holder.Stderr = &problems
	h.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := h.holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.holder.Process.Kill()
		_ = h.holder.Wait()
	})
	ready := make([]byte, len("ready\n"))
	if n, err := out.Read(ready); err != nil || string(ready[:n]) != "ready\n" {
		t.Fatalf("set up a host: %q, %v, %s", ready[:n], err, problems.String())
	}
	return h
}

// command returns a command that runs on the host.
func (h *host) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-m", "-n", "-t", strconv.Itoa(h.holder.Process.Pid)}, args...)...)
	cmd.Env = append(os.Environ(), "NODE_NAME=n1", "PATH=/run/fake:"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run runs a command on the host to its end.
func (h *host) run(args ...string) (string, error) {
	out, err := h.command(h.t.Context(), args...).CombinedOutput()
	return string(out), err
}

// restrict returns the command that runs another one with the privileges of a container.
func restrict(s securityContext) []string {
	if s.Privileged {
		return nil
	}
	bounding := "-all"
	for _, c := range s.Capabilities.Add {
		bounding += ",+" + strings.ToLower(c)
	}
	return []string{"setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=" + bounding}
}

// start runs the entry point of a container. The returned function ends it.
func (h *host) start(privileges []string, args ...string) (stop func(), output func() string) {
	h.t.Helper()
	script, err := filepath.Abs("../images/start")
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := h.command(ctx, slices.Concat(privileges, []string{script}, args)...)
	log, err := os.Create(filepath.Join(h.t.TempDir(), "log"))
	if err != nil {
		h.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			_ = cmd.Wait()
		}
	}
	h.t.Cleanup(stop)
	return stop, func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}
}

// becomes waits until a command on the host succeeds.
func (h *host) becomes(what string, output func() string, args ...string) {
	h.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		out, err := h.run(args...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: %s: %v, %s\n%s", what, strings.Join(args, " "), err, out, output())
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-h.t.Context().Done():
			h.t.Fatal(what)
		}
	}
}

// hasty returns the command of a probe that is going to fail, which gives up sooner.
func hasty(p *probe) (out []string) {
	for _, arg := range p.Exec.Command {
		out = append(out, strings.Replace(arg, "--timeout=5", "--timeout=1", 1))
	}
	return out
}

// TestReadiness: each daemon, with the privileges of its container, is ready when it runs, and not ready any more when it has ended.
func TestReadiness(t *testing.T) {
	h := newHost(t)
	stops := map[string]func(){}
	for _, overlay := range []string{"shared", "ha"} {
		for _, w := range workloads(t, overlay) {
			for _, c := range w.Spec.Template.Spec.Containers {
				if c.ReadinessProbe == nil || len(c.ReadinessProbe.Exec.Command) == 0 || strings.HasSuffix(c.Args[0], "-member") && c.Name != "northd" {
					continue // a member needs a cluster
				}
				if c.Args[0] == "sb-nodes" { // "maintain" provides the sockets of leaders
					for _, db := range []string{"nb", "sb"} {
						if out, err := h.run("ln", "-s", "ovn"+db+"_db.sock", "/run/ovn/ovn"+db+"_leader.sock"); err != nil {
							t.Fatal(err, out)
						}
					}
				}
				if c.Args[0] == "northd-member" {
					stops["northd"]()
				}
				if stops[c.Args[0]] != nil {
					continue
				}
				if out, err := h.run(hasty(c.ReadinessProbe)...); err == nil {
					t.Errorf("%s is ready before it runs: %s", c.Args[0], out)
				}
				stop, output := h.start(restrict(c.Security), c.Args...)
				stops[c.Args[0]] = stop
				h.becomes(c.Args[0]+" becomes ready", output, c.ReadinessProbe.Exec.Command...)
			}
		}
	}
	if len(stops) != 9 {
		t.Errorf("%d daemons have readiness probes", len(stops))
	}
	for _, overlay := range []string{"ha", "shared"} {
		for _, w := range workloads(t, overlay) {
			for _, c := range w.Spec.Template.Spec.Containers {
				if c.ReadinessProbe == nil || len(c.Args) == 0 || stops[c.Args[0]] == nil {
					continue
				}
				stops[c.Args[0]]()
				if out, err := h.run(hasty(c.ReadinessProbe)...); err == nil {
					t.Errorf("%s is ready after it has ended: %s", c.Args[0], out)
				}
			}
		}
	}
}

// TestSchema: a database is converted to a newer schema of the image, and never to an older one: that would delete the
// columns that only the newer version has, with their content, although the older programs do not mind them.
func TestSchema(t *testing.T) {
	h := newHost(t)
	text, err := os.ReadFile("/usr/share/ovn/ovn-nb.ovsschema")
	if err != nil {
		t.Fatal(err)
	}
	schema := func(version, column string) string {
		var s map[string]any
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if version != "" {
			s["version"] = version
		}
		if column != "" {
			s["tables"].(map[string]any)["NB_Global"].(map[string]any)["columns"].(map[string]any)[column] = map[string]any{"type": "string"}
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return write(t, map[string]string{"schema": string(out)}) + "/schema"
	}
	query := func(args ...string) string {
		t.Helper()
		out, err := h.run(args...)
		if err != nil {
			t.Fatalf("%q: %v, %s", args, err, out)
		}
		return strings.TrimSpace(out)
	}
	const file, socket = "/var/lib/ovn/ovnnb_db.db", "unix:/run/ovn/ovnnb_db.sock"
	ours := query("ovsdb-tool", "schema-version", "/usr/share/ovn/ovn-nb.ovsschema")
	for _, c := range []struct{ name, version, column, want string }{
		{"none", "", "", ours},
		{"the same", ours, "", ours},
		{"older", "1.10.0", "", ours},
		{"newer", "100.2.0", "future", "100.2.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			query("rm", "-f", file)
			if c.version != "" {
				query("ovsdb-tool", "create", file, schema(c.version, c.column))
				query("ovsdb-tool", "transact", file, `["OVN_Northbound",{"op":"insert","table":"NB_Global","row":{"name":"kept"}}]`)
			}
			stop, output := h.start(nil, "nb")
			h.becomes("the database serves", output, "ovsdb-client", "--timeout=5", "wait", socket, "OVN_Northbound", "connected")
			if got := query("ovsdb-client", "get-schema-version", socket, "OVN_Northbound"); got != c.want {
				t.Errorf("schema %s, want %s\n%s", got, c.want, output())
			}
			if c.version != "" {
				if got := query("ovn-nbctl", "--db="+socket, "get", "NB_Global", ".", "name"); got != "kept" {
					t.Errorf("content %q", got)
				}
			}
			if told := strings.Contains(output(), "not converted"); told != (c.column != "") {
				t.Errorf("said that it does not convert: %t\n%s", told, output())
			}
			stop()
		})
	}
}

// TestCreationInterrupted: a node that loses power while it creates a database, or soon after, must not be left with a file
// that no server can read.
func TestCreationInterrupted(t *testing.T) {
	for daemon, file := range map[string]string{"nb": "/var/lib/ovn/ovnnb_db.db", "ovsdb": "/etc/openvswitch/conf.db"} {
		for name, before := range map[string]string{
			"nothing was written": `: >"$1"`,
			"it ends while it writes": `cat >/run/fake/ovsdb-tool <<'EOF'
#!/bin/sh
[ "$1" = create ] || exec /usr/bin/ovsdb-tool "$@"
printf 'OVSDB JSON 14759 ' >"$2"
kill -9 $PPID
EOF
chmod +x /run/fake/ovsdb-tool
"$2" "$3" && exit 1
rm /run/fake/ovsdb-tool`,
		} {
			t.Run(daemon+" "+name, func(t *testing.T) {
				h := newHost(t)
				script, err := filepath.Abs("../images/start")
				if err != nil {
					t.Fatal(err)
				}
				if out, err := h.run("sh", "-c", before, "sh", file, script, daemon); err != nil {
					t.Fatal(err, out)
				}
				_, output := h.start(nil, daemon)
				socket := map[string]string{"nb": "unix:/run/ovn/ovnnb_db.sock", "ovsdb": "unix:/run/openvswitch/db.sock"}[daemon]
				h.becomes("the database serves", output, "ovsdb-client", "--timeout=5", "list-dbs", socket)
				if out, err := h.run("find", filepath.Dir(file), "-name", "*.new*"); err != nil || out != "" {
					t.Errorf("what is left: %v, %s", err, out)
				}
			})
		}
	}
}
