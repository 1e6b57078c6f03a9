package service_test

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// TestDefaultHostPorts: no Service gets a port of a node's address at which an installation serves itself: those that the document of
// the installation lists, and those in the manifests.
func TestDefaultHostPorts(t *testing.T) {
	ports := map[service.HostPort]string{}
	found := func(where, protocol, number string) {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		ports[service.HostPort{Protocol: protocol, Port: uint16(n)}] = where
	}
	const document = "../../../docs/install.md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (TCP|UDP) ([0-9, ]+) \|`).FindAllStringSubmatch(string(text), -1) {
		for number := range strings.SplitSeq(row[2], ", ") {
			found(document, strings.ToLower(row[1]), number)
		}
	}
	listed := len(ports)
	dist := os.DirFS("../../../dist")
	if err := fs.WalkDir(dist, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		text, err := fs.ReadFile(dist, path)
		for _, port := range regexp.MustCompile(`containerPort: ([0-9]+)`).FindAllStringSubmatch(string(text), -1) {
			found(path, "tcp", port[1])
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if listed < 8 || len(ports) == listed {
		t.Errorf("%d ports in the document, %d with the manifests", listed, len(ports))
	}
	for port, where := range ports {
		if !slices.Contains(service.DefaultHostPorts, port) {
			t.Errorf("%s has %s port %d", where, port.Protocol, port.Port)
		}
	}
}
