// Command kin makes Kubernetes clusters in namespaces of this machine.
package main

import (
	"os"
	"runtime"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/cli"
)

func main() {
	// Other threads enter machines and end there. The first thread cannot end,
	// and what it sees is what /proc/self shows: it stays where it is.
	runtime.LockOSThread()
	os.Exit(cli.Run(os.Args))
}
