package audit

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
)

// story returns what two masters record: the first is killed before it records that the address has moved to n3 and
// that prod/db is gone.
func story(t *testing.T) (first, second *files) {
	t.Helper()
	first, second = newFiles(), newFiles()
	flush := func(r *Recorder) {
		if err := r.flush(); err != nil {
			t.Fatal(err)
		}
	}
	a := NewRecorder("ovn-control-plane", clock(start), first)
	a.Complete()
	a.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "ovn-worker")}, why)
	a.Set("pod prod/web", []Fact{use("prod", "172.18.0.33", "prod/web", "10.244.1.3")}, why)
	a.Set("pod prod/db", []Fact{use("prod", "172.18.0.33", "prod/db", "10.244.1.4")}, why)
	a.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "ovn-worker2")}, why)
	flush(a)
	b := NewRecorder("ovn-control-plane2", clock(start.Add(time.Minute)), second)
	b.Found("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "ovn-worker3")})
	b.Found("pod prod/web", []Fact{use("prod", "172.18.0.33", "prod/web", "10.244.1.3")})
	b.Complete()
	b.Set("pod prod/web", nil, func(Fact, string, bool) (string, string) { return ReasonPodDeleted, "" })
	flush(b)
	return first, second
}

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// TestHistory: the examples of docs/egress-history.md.
func TestHistory(t *testing.T) {
	first, second := story(t)
	tl := NewTimeline(append(second.read(t, 0), first.read(t, 0)...))
	address := netip.MustParseAddr("172.18.0.33")
	doc, err := os.ReadFile("../../../docs/egress-history.md")
	if err != nil {
		t.Fatal(err)
	}
	inDoc := func(name, text string) {
		golden.Check(t, name, text)
		if !strings.Contains(string(doc), text) {
			t.Errorf("docs/egress-history.md does not have the content of testdata/%s.golden", name)
		}
	}
	for name, h := range map[string]History{
		"address-at":       tl.AddressHistory(address, at(5), nil),
		"address":          tl.AddressHistory(address, time.Time{}, nil),
		"pod":              tl.PodHistory("prod/web", at(0).Add(time.Second), at(100), nil),
		"address-observed": tl.AddressHistory(address, at(30), nil),
	} {
		var text bytes.Buffer
		h.Text(&text)
		inDoc(name, text.String())
	}
	inDoc("lines", first.all[0].String())
}

// TestAt: who had an address, and who used it, at times around those of the records.
func TestAt(t *testing.T) {
	first, second := story(t)
	tl := NewTimeline(append(first.read(t, 0), second.read(t, 0)...))
	for _, tc := range []struct {
		at       int
		complete bool
		want     string
	}{
		{0, false, ""},
		{2, true, ""},
		{3, true, ""},
		{4, true, "ovn-worker"},
		{5, true, "ovn-worker web"},
		{6, true, "ovn-worker web db"},
		{7, true, "ovn-worker2 web db"},
		{30, false, "ovn-worker2? ovn-worker3? web db?"},
		{62, false, "ovn-worker2? ovn-worker3? web db?"},
		{63, false, "ovn-worker3 web db?"},
		{65, true, "ovn-worker3 web"},
		{66, true, "ovn-worker3"},
		{1000, true, "ovn-worker3"},
	} {
		h := tl.AddressHistory(netip.MustParseAddr("172.18.0.33"), at(tc.at), nil)
		var got []string
		for _, p := range slices.Concat(h.Assignments, h.Pods) {
			name := p.Node
			if p.Pod != nil {
				name = p.Pod.Name
			}
			if !p.certain(at(tc.at)) {
				name += "?"
			}
			got = append(got, name)
		}
		if text := strings.Join(got, " "); text != tc.want || h.Complete != tc.complete {
			t.Errorf("after %d s %q, complete %v; want %q, %v", tc.at, text, h.Complete, tc.want, tc.complete)
		}
	}
}

// TestGaps: missing records are reported, and what they may have contained is not made up.
func TestGaps(t *testing.T) {
	first, _ := story(t)
	all := first.read(t, 0)
	for i := range all {
		some := slices.Delete(slices.Clone(all), i, i+1)
		gaps := len(NewTimeline(some).Gaps)
		want := 1
		if i == len(all)-1 || i == 0 { // a missing last record leaves no trace; a file may begin with Complete
			want = 0
		}
		if gaps != want {
			t.Errorf("without record %d there are %d gaps, want %d", i+1, gaps, want)
		}
	}
}

// TestRead: lines that are not records are reported, except for an unterminated last line.
func TestRead(t *testing.T) {
	good := `{"apiVersion":"egress.ovnkube/v1","time":"2026-03-01T12:00:00.5Z","leader":"m","term":"2026-03-01T12:00:00Z","sequence":1,"type":"Started"}`
	about := func(fields string) string {
		return strings.Replace(strings.Replace(good, `"Started"`, `"Assigned"`, 1), "}", `,`+fields+"}", 1)
	}
	for _, tc := range []struct{ name, text, want string }{
		{"good", good + "\n", "1 "},
		{"no end of line", good, "1 "},
		{"being written", good + "\n" + good[:40], "1 "},
		{"more fields", strings.Replace(good, "{", `{"later":1,`, 1) + "\n", "1 "},
		{"empty lines", "\n\n" + good + "\n\n", "1 "},
		{"torn", good[:40] + "\n" + good + "\n", "1 f:1: unexpected end of JSON input"},
		{"another version", "\n" + strings.Replace(good, "/v1", "/v2", 1), `0 f:2: apiVersion "egress.ovnkube/v2" is not egress.ovnkube/v1`},
		{"another type", strings.Replace(good, "Started", "Stolen", 1) + "\n", `0 f:1: unknown type "Stolen"`},
		{"no leader", strings.Replace(good, `"m"`, `""`, 1) + "\n", "0 f:1: time, leader, term or sequence is missing"},
		{"no object", about(`"to":"n1"`) + "\n", "0 f:1: object is missing"},
		{"no node", about(`"object":{"kind":"EgressIP","name":"prod"}`) + "\n", "0 f:1: node is missing"},
		{"no address", about(`"object":{"kind":"EgressIP","name":"prod"},"to":"n1","address":"172.18.0.033"`) + "\n", `0 f:1: address "172.18.0.033" is none`},
		{"a pod without an address", about(`"object":{"kind":"EgressIP","name":"prod"},"pod":{"namespace":"a","name":"b"}`) + "\n", "0 f:1: pod or address is missing"},
		{"no JSON", "I1123 started\n", "0 f:1: invalid character 'I' looking for beginning of value"},
	} {
		records, problems, err := Read(strings.NewReader(tc.text), "f")
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(len(records), " ")
		for _, p := range problems {
			got += p.String()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestSchemaIsDocumented: the tables of docs/egress-history.md list exactly the existing fields and types.
func TestSchemaIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/egress-history.md")
	if err != nil {
		t.Fatal(err)
	}
	var fields func(prefix string, of reflect.Type) []string
	fields = func(prefix string, of reflect.Type) (names []string) {
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if names = append(names, prefix+name); f.Type.Kind() == reflect.Pointer {
				names = append(names, fields(prefix+name+".", f.Type.Elem())...)
			}
		}
		return names
	}
	var kinds []string
	for k := range types {
		kinds = append(kinds, string(k))
	}
	for heading, want := range map[string][]string{
		"field": fields("", reflect.TypeFor[Record]()),
		"type":  kinds,
	} {
		_, table, _ := strings.Cut(string(doc), "\n| "+heading+" | meaning |\n| --- | --- |\n")
		table, _, _ = strings.Cut(table, "\n\n")
		var got []string
		for _, row := range strings.Split(table, "\n") {
			cells := strings.Split(row, "|")
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[min(1, len(cells)-1)], -1) {
				got = append(got, m[1])
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the table of each %s has\n%q\nwant\n%q", heading, got, want)
		}
	}
	for _, reason := range []string{ReasonObjectDeleted, ReasonAddressRemoved, ReasonPodDeleted, ReasonNotSelected} {
		if !strings.Contains(string(doc), "`"+reason+"`") {
			t.Errorf("the document does not tell of reason %s", reason)
		}
	}
}
