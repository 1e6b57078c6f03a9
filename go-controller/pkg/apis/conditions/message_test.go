package conditions

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCut: messages that are too long are cut between two characters, the others are not changed.
func TestCut(t *testing.T) {
	for name, f := range map[string]struct {
		cut  func(string) string
		most int
	}{"condition": {Cut, MaxMessage}, "Event": {CutNote, maxNote}} {
		for _, text := range []string{"", strings.Repeat("x", f.most)} {
			if got := f.cut(text); got != text {
				t.Errorf("%s: %d bytes became %d", name, len(text), len(got))
			}
		}
		for _, text := range []string{strings.Repeat("x", f.most+1), strings.Repeat("ü", f.most), "x" + strings.Repeat("ü", f.most)} {
			got := f.cut(text)
			if len(got) > f.most || len(got) < f.most-2 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") ||
				!strings.HasPrefix(text, strings.TrimSuffix(got, "…")) {
				t.Errorf("%s: %d bytes became %d: %q", name, len(text), len(got), got)
			}
		}
	}
}
