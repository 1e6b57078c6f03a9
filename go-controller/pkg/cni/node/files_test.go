package node

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/cni/shim"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestFilesAreRestored: the configuration file and the socket are there again after somebody has removed or changed
// them, without a restart, and stay as they are once the server has ended or another one has succeeded it.
func TestFilesAreRestored(t *testing.T) {
	l := newLab(t)
	l.server.Socket = filepath.Join(t.TempDir(), "dir", "cni.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.server.Run(ctx) }()
	conf := filepath.Join(l.server.ConfDir, cni.ConfFileName)
	good := cni.ConfFile("ovn-k8s-cni-overlay", l.server.Socket, false)
	is := func(want []byte) func() bool {
		return func() bool {
			text, err := os.ReadFile(conf)
			return err == nil && bytes.Equal(text, want)
		}
	}
	status := func() error {
		return shim.Funcs().Status(&skel.CmdArgs{StdinData: pluginConf(l.server.Socket)})
	}
	eventually.True(t, "the configuration", is(good))
	eventually.Succeeds(t, "an answer", status)
	for what, harm := range map[string]func() error{
		"remove":               func() error { return os.Remove(conf) },
		"change":               func() error { return os.WriteFile(conf, []byte("{}"), 0o644) },
		"remove the directory": func() error { return os.RemoveAll(l.server.ConfDir) },
		"remove the socket":    func() error { return os.Remove(l.server.Socket) },
		"remove both, and the directory of the socket": func() error {
			if err := os.RemoveAll(filepath.Dir(l.server.Socket)); err != nil {
				return err
			}
			return os.Remove(conf)
		},
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the configuration after: "+what, is(good))
		eventually.Succeeds(t, "an answer after: "+what, status)
	}
	if info, err := os.Stat(l.server.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	// Of an updated server.
	next := filepath.Join(filepath.Dir(l.server.Socket), "next")
	if err := os.WriteFile(next, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, l.server.Socket); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(conf, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := l.server.keepConf(); err != nil || !is([]byte("{}"))() || l.server.listenAgain() != nil {
		t.Errorf("the server takes back what the next one has: %v", err)
	}
}
