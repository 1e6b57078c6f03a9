package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/cni/shim"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestRun talks to a running server through the shim. Nothing is attached here:
// the server's goroutines are outside the test's namespace.
func TestRun(t *testing.T) {
	l := newLabNotReady(t)
	l.server.Socket = filepath.Join(t.TempDir(), "dir", "cni.sock")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.server.Run(ctx) }()
	conf := filepath.Join(l.server.ConfDir, cni.ConfFileName)

	args := &skel.CmdArgs{ContainerID: "sb1", Netns: "/run/netns/sb1", IfName: "eth0",
		Args:      "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=none",
		StdinData: pluginConf(l.server.Socket)}
	code := func(err error) uint {
		var failure *types.Error
		if !errors.As(err, &failure) {
			return 0
		}
		return failure.Code
	}
	eventually.True(t, "the server to say that the node is not ready", func() bool {
		return code(shim.Funcs().Status(args)) == cni.CodeNotReady
	})
	if _, err := os.Stat(conf); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before the node is ready the configuration is there: %v", err)
	}
	if info, err := os.Stat(l.server.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	if err := shim.Funcs().Add(args); code(err) != cni.CodeFailed {
		t.Errorf("ADD of no pod: %v", err)
	}
	// The first attempts to write the configuration fail.
	dir := l.server.ConfDir
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	close(l.ready)
	eventually.True(t, "the server to say that the node is ready", func() bool { return shim.Funcs().Status(args) == nil })
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the configuration", func() bool {
		text, err := os.ReadFile(conf)
		return err == nil && string(text) == string(cni.ConfFile("ovn-k8s-cni-overlay", l.server.Socket, false))
	})
	if err := shim.Funcs().Status(args); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(conf); err != nil {
		t.Errorf("the configuration went with the server: %v", err)
	}
}

// TestNextServer: a server that ends after the next one has started, as when its pod was deleted without grace, leaves
// that one its socket.
func TestNextServer(t *testing.T) {
	l := newLab(t)
	next := &Server{Config: l.server.Config, kube: l.kube, ovs: l.db, pods: l.server.pods, locks: newKeyLocks("sandbox"), ports: newKeyLocks("logical port"), ready: make(chan struct{}),
		lost: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ended, nextEnded := make(chan error, 1), make(chan error, 1)
	status := func() error {
		return shim.Funcs().Status(&skel.CmdArgs{StdinData: pluginConf(l.server.Socket)})
	}
	// The next server's node is not ready, so its answer differs.
	isNext := func() bool {
		var failure *types.Error
		return errors.As(status(), &failure) && failure.Code == cni.CodeNotReady
	}
	go func() { ended <- l.server.Run(ctx) }()
	eventually.Succeeds(t, "the server to answer", status)
	nextCtx, cancelNext := context.WithCancel(t.Context())
	go func() { nextEnded <- next.Run(nextCtx) }()
	eventually.True(t, "the next server to answer", isNext)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !isNext() {
		t.Errorf("after the end of the former server: %v", status())
	}
	cancelNext()
	if err := <-nextEnded; err != nil {
		t.Error(err)
	}
}

// TestConfFile: the runtime maps host ports once the node has the plugin for it, and the
// file of an earlier ovnkube, which would have precedence, is removed.
func TestConfFile(t *testing.T) {
	s := &Server{Config: Config{Plugin: "x", Socket: cni.DefaultSocket, BinDir: t.TempDir(), ConfDir: t.TempDir()}}
	check := func(hostPorts bool) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.ConfDir, cni.FormerConfFileName), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
		content, err := s.confFile()
		if err != nil {
			t.Fatal(err)
		}
		if err := writeConf(s.ConfDir, content); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(s.ConfDir)
		if err != nil || len(files) != 1 {
			t.Fatalf("the runtime finds %v, %v", files, err)
		}
		text, err := os.ReadFile(filepath.Join(s.ConfDir, cni.ConfFileName))
		if err != nil || string(text) != string(cni.ConfFile("x", cni.DefaultSocket, hostPorts)) {
			t.Errorf("host ports are to be mapped: %v, the configuration is\n%s%v", hostPorts, text, err)
		}
	}
	check(false)
	check(false) // the former file is also removed if the new one is already correct
	if err := os.WriteFile(filepath.Join(s.BinDir, cni.PortMap), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	check(true)
}
