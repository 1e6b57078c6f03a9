package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
)

// serve answers each request with status and body and records the last one.
func serve(t *testing.T, socket string, status int, body string) *cni.Request {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	last := &cni.Request{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(last); err != nil {
			t.Errorf("request: %v", err)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return last
}

// conf returns what the runtime passes to the plugin from the configuration file.
func conf(socket string) []byte {
	return fmt.Appendf(nil, `{"cniVersion": %q, "name": %q, "type": "x", "socket": %q}`, cni.SpecVersion, cni.NetworkName, socket)
}

func TestRequest(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	last := serve(t, socket, http.StatusOK, "null")
	args := &skel.CmdArgs{
		ContainerID: "sb1", Netns: "/run/netns/sb1", IfName: "eth0", Args: "K8S_POD_NAME=a",
		StdinData: conf(socket),
	}
	if err := Funcs().Del(args); err != nil {
		t.Fatal(err)
	}
	if last.Command != cni.CommandDel || last.ContainerID != "sb1" || last.Netns != "/run/netns/sb1" ||
		last.IfName != "eth0" || last.Args != "K8S_POD_NAME=a" || !strings.Contains(string(last.Config), socket) {
		t.Errorf("the server got %+v", last)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		code       uint
		want       string
	}{
		{"of the server", `{"code":50,"msg":"not ready","details":"yet"}`, 500, cni.CodeNotReady, "not ready"},
		{"of something else", `<html>`, 502, cni.CodeFailed, "502 Bad Gateway"},
		{"nobody there", "", 0, cni.CodeTryAgain, "is ovnkube running on this node?"},
		{"half an answer to ADD", `{"cniVersion":"1.0.0","ips":[{}`, 200, cni.CodeDecode, "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			if c.status != 0 {
				serve(t, socket, c.status, c.body)
			}
			err := Funcs().Add(&skel.CmdArgs{StdinData: conf(socket)})
			var failure *types.Error
			if !errors.As(err, &failure) || failure.Code != c.code || !strings.Contains(failure.Error(), c.want) {
				t.Errorf("got %#v, want code %d with %q", err, c.code, c.want)
			}
		})
	}
}
