package app

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

func TestRole(t *testing.T) {
	for _, tc := range []struct {
		role Role
		want string
	}{
		{Role{Master: "a"}, ""},
		{Role{Node: "a"}, ""},
		{Role{Master: "a", Node: "a"}, ""},
		{Role{CleanupNode: "a"}, ""},
		{Role{}, "nothing to do"},
		{Role{CleanupNode: "a", Node: "a"}, "goes with neither"},
		{Role{CleanupNode: "a", Master: "a"}, "goes with neither"},
	} {
		err := tc.role.Validate()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v, want %q", tc.role, err, tc.want)
		}
	}
}

func TestPart(t *testing.T) {
	broken := errors.New("broken")
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		err  error
		want string
	}{
		{"told to end", done, nil, ""},
		{"told to end, and says so", done, context.Canceled, ""},
		{"failed at the end", done, broken, "x: broken"},
		{"failed", context.Background(), broken, "x: broken"},
		{"ended", context.Background(), nil, "x: ended by itself"},
	} {
		err := part(tc.ctx, "x", func(context.Context) error { return tc.err })()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestRESTConfig(t *testing.T) {
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	for _, f := range []string{token, ca} {
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":"https://k:6443"}}],"users":[{"name":"c","user":{"token":"k"}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const server = "https://a:6443"
	for _, tc := range []struct {
		name string
		k    config.Kubernetes
		dir  string
		want rest.Config
	}{
		{"service account's credentials", config.Kubernetes{APIServer: server}, dir,
			rest.Config{Host: server, BearerTokenFile: token, TLSClientConfig: rest.TLSClientConfig{CAFile: ca}}},
		{"no service account", config.Kubernetes{APIServer: server}, "/none", rest.Config{Host: server}},
		{"given credentials", config.Kubernetes{APIServer: server, Token: "t", CACert: "/c"}, dir,
			rest.Config{Host: server, BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{CAFile: "/c"}}},
		{"given token file", config.Kubernetes{APIServer: server, TokenFile: "/t"}, dir,
			rest.Config{Host: server, BearerTokenFile: "/t", TLSClientConfig: rest.TLSClientConfig{CAFile: ca}}},
		{"kubeconfig", config.Kubernetes{Kubeconfig: kubeconfig, APIServer: server, Token: "t"}, dir,
			rest.Config{Host: "https://k:6443", BearerToken: "k"}},
	} {
		rc, err := restConfig(tc.k, tc.dir)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if rc.Host != tc.want.Host || rc.BearerToken != tc.want.BearerToken || rc.BearerTokenFile != tc.want.BearerTokenFile || rc.CAFile != tc.want.CAFile {
			t.Errorf("%s: %+v, want %+v", tc.name, rc, tc.want)
		}
		if rc.QPS != requestRate || rc.Burst != requestBurst || !strings.HasPrefix(rc.UserAgent, "ovnkube/") {
			t.Errorf("%s: rate %v/%v, user agent %q", tc.name, rc.QPS, rc.Burst, rc.UserAgent)
		}
		if rc.WrapTransport == nil {
			t.Errorf("%s: informers are not patient", tc.name)
		}
	}
}

func TestNoAPIServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := restConfig(config.Kubernetes{}, "/none"); err == nil || !strings.Contains(err.Error(), "--k8s-kubeconfig") {
		t.Errorf("restConfig: %v", err)
	}
}

// startVSwitchDB runs an empty database of Open vSwitch and returns its socket.
func startVSwitchDB(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	db, socket := filepath.Join(dir, "db"), filepath.Join(dir, "sock")
	if out, err := exec.Command("ovsdb-tool", "create", db, "/usr/share/openvswitch/vswitch.ovsschema").CombinedOutput(); err != nil {
		t.Fatalf("ovsdb-tool: %v: %s", err, out)
	}
	cmd := exec.Command("ovsdb-server", "--no-chdir", "--log-file=/dev/null", "--unixctl="+filepath.Join(dir, "ctl"), "--remote=punix:"+socket, db)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if out, err := exec.Command("ovsdb-client", "--timeout=20", "wait", "unix:"+socket, "Open_vSwitch", "connected").CombinedOutput(); err != nil {
		t.Fatalf("ovsdb-client: %v: %s", err, out)
	}
	return socket
}

func TestExternalIDs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	began := time.Now()
	if _, err := externalIDs(socket); err == nil || time.Since(began) > ovsTimeout {
		t.Errorf("without Open vSwitch: %v after %v", err, time.Since(began))
	}
	socket = startVSwitchDB(t)
	if _, err := externalIDs(socket); err == nil || !strings.Contains(err.Error(), "no Open_vSwitch row") {
		t.Errorf("empty database: %v", err)
	}
	vsctl := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ovs-vsctl", append([]string{"--no-wait", "--timeout=20", "--db=unix:" + socket}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ovs-vsctl: %v: %s", err, out)
		}
	}
	vsctl("init")
	if ids, err := externalIDs(socket); err != nil || len(ids) != 0 {
		t.Errorf("no external_ids: %v, %v", ids, err)
	}
	vsctl("set", "Open_vSwitch", ".", `external_ids:k8s-api-server="https://[fd00::1]:6443"`, "external_ids:ovn-remote=\"tcp:10.0.0.1:6642,tcp:10.0.0.2:6642\"")
	ids, err := externalIDs(socket)
	if err != nil || len(ids) != 2 || ids["k8s-api-server"] != "https://[fd00::1]:6443" || ids["ovn-remote"] != "tcp:10.0.0.1:6642,tcp:10.0.0.2:6642" {
		t.Errorf("externalIDs: %v, %v", ids, err)
	}
	// Also as a source of the configuration.
	c, _, err := config.Load(config.Sources{ExternalIDs: func() (map[string]string, error) { return externalIDs(socket) }})
	if err != nil || c.OVNSouth.Remote() != "tcp:10.0.0.1:6642,tcp:10.0.0.2:6642" || c.Kubernetes.APIServer != "https://[fd00::1]:6443" {
		t.Errorf("Load: %+v, %v", c, err)
	}
}
