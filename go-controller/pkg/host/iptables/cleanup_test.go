package iptables

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

const chainOfTest = host.ChainPrefix + "TEST"

// chainsOf writes a chain of ours and a foreign one for both families with the programs of a backend.
func chainsOf(ns *netnstest.NS, backend string) {
	for _, program := range []string{"iptables-" + backend, "ip6tables-" + backend} {
		ns.Run(program, "-t", "nat", "-N", chainOfTest)
		ns.Run(program, "-t", "nat", "-A", chainOfTest, "-j", "RETURN")
		ns.Run(program, "-t", "nat", "-A", "POSTROUTING", "-j", chainOfTest)
		ns.Run(program, "-t", "nat", "-N", "THEIRS")
	}
}

// TestCleanupOfBothBackends: what the iptables of the image has written is removed even if that of the host, which is first
// in the path of an administrator, has another backend.
func TestCleanupOfBothBackends(t *testing.T) {
	for _, wrote := range []string{"nft", "legacy"} {
		for _, first := range []string{"nft", "legacy"} {
			t.Run(wrote+", "+first+" first", func(t *testing.T) {
				ns := netnstest.New(t)
				chainsOf(ns, wrote)
				t.Setenv("PATH", programsOf(t, first)+":"+os.Getenv("PATH"))
				for range 2 {
					if err := Cleanup(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for _, program := range []string{"iptables-" + wrote + "-save", "ip6tables-" + wrote + "-save"} {
					if text := ns.Run(program); strings.Contains(text, host.ChainPrefix) || !strings.Contains(text, ":THEIRS ") {
						t.Errorf("%s after clean-up:\n%s", program, text)
					}
				}
				for _, file := range []string{"/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"} {
					// cat is in the namespace with all of its threads.
					if names := ns.Run("cat", file); wrote == "nft" && names != "" {
						t.Errorf("clean-up created legacy tables (%s): %s", file, names)
					}
				}
			})
		}
	}
}

// TestCleanupWithoutNFTables: if the host has no iptables that can remove the chains, clean-up fails and says which stay.
func TestCleanupWithoutNFTables(t *testing.T) {
	ns := netnstest.New(t)
	chainsOf(ns, "nft")
	t.Setenv("PATH", programsOf(t, "legacy"))
	err := Cleanup(t.Context())
	if err == nil {
		t.Fatal("clean-up reports success")
	}
	for _, want := range []string{"ip nat " + chainOfTest, "ip6 nat " + chainOfTest, "iptables-nft", "ip6tables-nft"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %q", err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := Cleanup(t.Context()); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "ip6 nat "+chainOfTest) {
		t.Errorf("without any iptables: error %v", err)
	}
}

// TestCleanupWithoutLegacy: if the host has no legacy iptables, and its kernel has chains of ours in legacy tables, clean-up fails and
// says which stay.
func TestCleanupWithoutLegacy(t *testing.T) {
	ns := netnstest.New(t)
	chainsOf(ns, "legacy")
	t.Setenv("PATH", programsOf(t, "nft"))
	err := Cleanup(t.Context())
	if err == nil {
		t.Fatal("clean-up reports success")
	}
	for _, want := range []string{"; install iptables-legacy if the host does not have it: nat " + chainOfTest + "\n", "; install ip6tables-legacy if the host does not have it: nat " + chainOfTest} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %q", err, want)
		}
	}
}
