// Command ovn-k8s-cni-overlay is the CNI plugin that attaches pods to the cluster network. The container runtime
// calls it; ovnkube on the node does the work.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni/shim"
	build "github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

func main() {
	skel.PluginMainFuncs(shim.Funcs(),
		version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"),
		"CNI plugin ovn-k8s-cni-overlay "+build.Get().String())
}
