// Command kin makes Kubernetes clusters in namespaces of this machine.
package main

import (
	"os"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/cli"
)

func main() { os.Exit(cli.Run(os.Args)) }
