// Package shim is the executable that the container runtime calls to attach and detach
// pods: it passes the request to the node process over a unix socket and prints the
// response. It has no logic of its own, so updating the node process updates everything.
//
// Callers: cmd/ovn-k8s-cni-overlay.
package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
)

// timeout bounds one request; the server gives up well before that.
const timeout = 4 * time.Minute

// Funcs are the commands of the plugin.
func Funcs() skel.CNIFuncs {
	call := func(command string) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			_, _, err := post(command, args)
			return err
		}
	}
	return skel.CNIFuncs{
		Add: add, Del: call(cni.CommandDel), Check: call(cni.CommandCheck),
		GC: call(cni.CommandGC), Status: call(cni.CommandStatus),
	}
}

func add(args *skel.CmdArgs) error {
	conf, body, err := post(cni.CommandAdd, args)
	if err != nil {
		return err
	}
	result, err := current.NewResult(body)
	if err != nil {
		return types.NewError(cni.CodeDecode, "answer of the node process cannot be read", err.Error())
	}
	return types.PrintResult(result, conf.CNIVersion)
}

// post sends one request and returns the body of the response.
func post(command string, args *skel.CmdArgs) (cni.Conf, []byte, error) {
	conf, err := cni.ParseConf(args.StdinData)
	if err != nil {
		return conf, nil, err
	}
	body, err := json.Marshal(cni.Request{
		Command: command, ContainerID: args.ContainerID, Netns: args.Netns, IfName: args.IfName,
		Args: args.Args, Config: args.StdinData,
	})
	if err != nil {
		return conf, nil, types.NewError(cni.CodeDecode, "request cannot be encoded", err.Error())
	}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", conf.Socket)
		},
	}}
	reply, err := client.Post("http://ovnkube/", "application/json", bytes.NewReader(body))
	if err != nil {
		return conf, nil, types.NewError(cni.CodeTryAgain,
			fmt.Sprintf("node process cannot be reached at %s: is ovnkube running on this node?", conf.Socket), cause(err))
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return conf, nil, types.NewError(cni.CodeTryAgain, "answer of the node process was cut off", err.Error())
	}
	if reply.StatusCode == http.StatusOK {
		return conf, text, nil
	}
	var failure types.Error
	if err := json.Unmarshal(text, &failure); err != nil || failure.Code == 0 {
		return conf, nil, types.NewError(cni.CodeFailed, "node process answered "+reply.Status, string(text))
	}
	return conf, nil, &failure
}

// cause removes the URL, which is not a real one, from an error.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
