package host_test

import (
	"errors"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
)

// TestRepaired checks that what others removed or changed counts once it is repaired, and that
// nothing counts because contributors changed what they want.
func TestRepaired(t *testing.T) {
	k := hostfake.NewKernel(map[int]string{1: "left"})
	s := newSet(k)
	want := func(n uint64) {
		t.Helper()
		if got := s.Repaired(); got != n {
			t.Errorf("%d repaired, want %d", got, n)
		}
	}
	apply := func(things map[int]string) {
		t.Helper()
		if err := s.Apply(t.Context(), "a", things); err != nil {
			t.Fatal(err)
		}
	}
	apply(map[int]string{1: "x", 2: "y"})
	apply(map[int]string{1: "z", 2: "y", 3: "y"})
	apply(map[int]string{1: "z"})
	apply(map[int]string{1: "z", 2: "y"})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(0)
	k.Drop(1)
	k.Put(2, "foreign")
	if err := s.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(2)
	apply(map[int]string{1: "z", 2: "y"})
	want(2)

	// What cannot be repaired does not count.
	k.Drop(1)
	k.Fail = func(op string, _ int) error {
		if op == "add" {
			return errors.New("no")
		}
		return nil
	}
	if err := s.Resync(t.Context()); err == nil {
		t.Error("no error")
	}
	want(2)
}
