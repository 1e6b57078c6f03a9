// Command kin creates Kubernetes clusters in namespaces of this machine.
package main

import (
	"os"
	"runtime"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/cli"
)

func main() {
	// Other threads enter machines and end there. The first thread cannot end,
	// and /proc/self shows its namespaces, so it must not enter any.
	runtime.LockOSThread()
	os.Exit(cli.Run(os.Args))
}
