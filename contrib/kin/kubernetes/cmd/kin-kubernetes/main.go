// Command kin-kubernetes is every Kubernetes program of a kin cluster in one
// static binary: the programs share most of their code, so one binary takes
// a third of the build time and space of six.
//
// It runs as the program whose name it is called by (a link named kube-apiserver), or as
// the one that its first argument names:
//
//	kin-kubernetes kube-apiserver --etcd-servers=...
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// program runs the command line in os.Args, as the program's own main
// function would, and returns the exit status.
type program func() int

var programs = map[string]program{
	"etcd":                    etcd,
	"kube-apiserver":          apiserver,
	"kube-controller-manager": controllerManager,
	"kube-scheduler":          scheduler,
	"kubectl":                 kubectl,
	"kubelet":                 kubelet,
}

func main() {
	os.Args[0] = filepath.Base(os.Args[0])
	if _, known := programs[os.Args[0]]; !known && len(os.Args) > 1 {
		os.Args = os.Args[1:]
	}
	run, known := programs[os.Args[0]]
	if !known {
		names := strings.Join(slices.Sorted(maps.Keys(programs)), ", ")
		fmt.Fprintf(os.Stderr, "kin-kubernetes: no program %q; it is one of %s\n", os.Args[0], names)
		os.Exit(2)
	}
	os.Exit(run())
}
