package host

import (
	"slices"
	"testing"
)

// TestFlowList adds and deletes flows one by one, and each is found by its key.
func TestFlowList(t *testing.T) {
	first := func(f Flow) string { return string(f[:1]) }
	l := NewFlowList(first, []Flow{"a1", "b1", "a2", "c1"})
	is := func(what string, want ...Flow) {
		t.Helper()
		if got := slices.Sorted(slices.Values(l.Flows())); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		for _, f := range want {
			if l.Get(first(f)) != f {
				t.Errorf("%s: %q is %q", what, first(f), l.Get(first(f)))
			}
		}
	}
	is("the first of a key wins", "a1", "b1", "c1")
	l.Delete("a")
	is("one deleted", "b1", "c1")
	l.Delete("a")
	l.Put("d1")
	l.Put("c2")
	is("one added, one replaced", "b1", "c2", "d1")
	for _, key := range []string{"d", "b", "c"} {
		l.Delete(key)
	}
	is("all deleted")
	if l.Has("b") || (*FlowList)(nil).Has("b") || (*FlowList)(nil).Flows() != nil {
		t.Error("there is what was deleted")
	}
}
