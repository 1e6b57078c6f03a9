package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIdentity: two running masters of one node have different identities; the successor of a dead
// one has that one's identity.
func TestIdentity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "master")
	first, end := identity(dir, "n1")
	if !strings.HasPrefix(first, "n1_") {
		t.Errorf("identity is %q", first)
	}
	second, endSecond := identity(dir, "n1")
	if second == first {
		t.Errorf("two masters are %q", first)
	}
	end()
	next, endNext := identity(dir, "n1")
	if next != first {
		t.Errorf("the one that follows %q is %q", first, next)
	}
	endSecond()
	endNext()

	if err := os.WriteFile(filepath.Join(dir, "identity"), []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	odd, end := identity(dir, "n1")
	end()
	if again, end := identity(dir, "n1"); again != odd || len(odd) != len(first) {
		t.Errorf("after a file that was cut identities are %q and %q", odd, again)
	} else {
		end()
	}
	nowhere, _ := identity("/proc/nowhere", "n1")
	if len(nowhere) != len(first) {
		t.Errorf("without a directory the identity is %q", nowhere)
	}
}
