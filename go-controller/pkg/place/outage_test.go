package place

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// letters returns a node for each letter: r is ready, b is ready again since the time back, n is not ready. The
// kubelets of u, d and q have stopped reporting: u answers probes, d does not, and q was not probed long enough.
func letters(text string, back time.Time) []Node {
	var nodes []Node
	for i, r := range text {
		n := Node{Node: topology.Node{Name: fmt.Sprint("n", i), Ready: r == 'r' || r == 'b', ReadyUnknown: r == 'u' || r == 'd' || r == 'q'}, Reach: Alive}
		switch r {
		case 'b':
			n.ReadySince = back
		case 'd':
			n.Reach = Dead
		case 'q':
			n.Reach = Unknown
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// counted returns text with the letters of nodes that count as ready in upper case.
func counted(text string, nodes []Node) string {
	got := []byte(text)
	for i, n := range nodes {
		if n.Ready {
			got[i] -= 'a' - 'A'
		}
	}
	return string(got)
}

func TestReadyInOutage(t *testing.T) {
	for _, c := range []struct{ nodes, want string }{
		{"", ""},
		{"r", "R"},
		{"u", "U"},
		{"d", "D"},
		{"n", "n"},
		{"uu", "UU"},
		{"ur", "uR"},
		{"uur", "uuR"},
		{"uuu", "UUU"},
		{"udq", "UDQ"},
		{"uun", "uun"},
		{"uuun", "UUUn"},
		{"uuur", "UUUR"},
		{"uuurr", "UUURR"},
		{"uuurrr", "uuuRRR"},
		{"uddrr", "UDDRR"},
		{"nddrr", "nddRR"},
		{"uuuuuurrrrr", "uuuuuuRRRRR"},
		{"uuuuuuurrrrr", "UUUUUUURRRRR"},
		{"uub", "UUB"},
		{"dbb", "DBB"},
		{"ub", "UB"},
		{"ubr", "uBR"},
		{"nbb", "nBB"},
		{"unbb", "UnBB"},
		{"ubbrr", "UBBRR"},
		{"ubbrrr", "uBBRRR"},
	} {
		now := time.Now()
		nodes := letters(c.nodes, now)
		before := slices.Clone(nodes)
		ready, _ := ReadyInOutage(now, nodes)
		if got := counted(c.nodes, ready); got != c.want {
			t.Errorf("%q: got %q, want %q", c.nodes, got, c.want)
		}
		for i := range nodes {
			if nodes[i].Ready != before[i].Ready {
				t.Errorf("%q: changed what it was given", c.nodes)
			}
		}
	}
}

// TestBackSince: a node that is ready again counts as lost for a minute, if clocks differ by less
// than that.
func TestBackSince(t *testing.T) {
	for _, c := range []struct {
		since time.Duration
		want  string
		rest  time.Duration
	}{
		{0, "UBB", time.Minute},
		{59 * time.Second, "UBB", time.Second},
		{time.Minute, "uBB", 0},
		{time.Hour, "uBB", 0},
		{-time.Minute, "UBB", 2 * time.Minute},
		{-61 * time.Second, "uBB", 0},
	} {
		now := time.Now()
		nodes, rest := ReadyInOutage(now, letters("ubb", now.Add(-c.since)))
		if got := counted("ubb", nodes); got != c.want || rest != c.rest {
			t.Errorf("ready since %s: got %q, again after %s; want %q, %s", c.since, got, rest, c.want, c.rest)
		}
	}
	now := time.Now()
	nodes := letters("ubb", now.Add(-10*time.Second))
	nodes[1].ReadySince = now.Add(-20 * time.Second)
	if _, rest := ReadyInOutage(now, nodes); rest != 40*time.Second {
		t.Errorf("again after %s, not when the first one has been ready for a minute", rest)
	}
}

// TestUnheard: each step has a time, and how long to wait for a different result.
func TestUnheard(t *testing.T) {
	type step struct {
		after       time.Duration
		nodes, want string
		rest        time.Duration
	}
	for name, steps := range map[string][]step{
		"one alone":              {{0, "urr", "URR", 5 * time.Second}, {2 * time.Second, "urr", "URR", 3 * time.Second}, {3 * time.Second, "urr", "uRR", 0}},
		"one that is dead":       {{0, "drr", "DRR", 5 * time.Second}, {5 * time.Second, "drr", "dRR", 0}},
		"dies meanwhile":         {{0, "urr", "URR", 5 * time.Second}, {time.Second, "drr", "DRR", 4 * time.Second}},
		"says so itself":         {{0, "nrr", "nRR", 0}},
		"one after the other":    {{0, "urr", "URR", 5 * time.Second}, {time.Second, "uur", "UUR", 4 * time.Second}, {time.Second, "uuu", "UUU", 0}, {time.Hour, "uuu", "UUU", 0}},
		"the end of an outage":   {{0, "uuu", "UUU", 0}, {time.Hour, "uub", "UUB", time.Minute}, {0, "ubb", "UBB", time.Minute}, {time.Second, "bbb", "BBB", 0}},
		"not back from it":       {{0, "duu", "DUU", 0}, {time.Hour, "dbb", "DBB", time.Minute}, {time.Second, "drr", "dRR", 0}},
		"one dies after it":      {{0, "bbbb", "BBBB", 0}, {0, "ubbb", "UBBB", time.Minute}, {time.Minute, "urrr", "uRRR", 0}},
		"comes back, goes again": {{0, "urr", "URR", 5 * time.Second}, {5 * time.Second, "rrr", "RRR", 0}, {time.Second, "urr", "URR", 5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var u Readiness
			now := time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				nodes, rest := u.Ready(now, letters(s.nodes, now))
				if got := counted(s.nodes, nodes); got != s.want || rest != s.rest {
					t.Errorf("step %d: got %q, again after %s; want %q, %s", i, got, rest, s.want, s.rest)
				}
			}
		})
	}
}
