package cli

import (
	"strings"
	"testing"
)

func TestFlagsFirst(t *testing.T) {
	for given, want := range map[string]string{
		"kin node kill ovn-worker --name a":         "kin node kill --name a ovn-worker",
		"kin node kill --name=a ovn-worker":         "kin node kill --name=a ovn-worker",
		"kin host add h --ip 1.2.3.4 --ip fd00::1":  "kin host add --ip 1.2.3.4 --ip fd00::1 h",
		"kin --state /x get nodes --name a":         "kin --state /x get nodes --name a",
		"kin get kubeconfig --path":                 "kin get kubeconfig --path",
		"kin create cluster --no-ovnkube --nodes 2": "kin create cluster --no-ovnkube --nodes 2",
		"kin exec n ls -l --name x":                 "kin exec n ls -l --name x",
		"kin exec n -- ls -l --name x":              "kin exec n -- ls -l --name x",
		"kin exec --name a n -- ls --name x":        "kin exec --name a n -- ls --name x",
		"kin exec n --name a -- ls --name x":        "kin exec --name a n -- ls --name x",
		"kin exec n sh -c x -- y":                   "kin exec n sh -c x -- y",
		"kin logs ovn-worker kubelet --tail 5":      "kin logs --tail 5 ovn-worker kubelet",
		"kin machine-setup c m /dir --name x":       "kin machine-setup c m /dir --name x",
		"kin machine-run ls --name x":               "kin machine-run ls --name x",
		"kin service kill n c --help":               "kin service kill --help n c",
		"kin --version":                             "kin --version",
		"kin":                                       "kin",
	} {
		got := strings.Join(flagsFirst(app().Commands, strings.Fields(given)), " ")
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", given, got, want)
		}
	}
}
