package page

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

// Limits on the size of an answer; clients request further parts separately.
const (
	defaultLimit = 50
	maxLimit     = 1000
)

// requestError is an error of the request.
type requestError struct{ error }

func wrong(format string, args ...any) error { return &requestError{fmt.Errorf(format, args...)} }

// plain is an answer in human-readable form.
type plain []byte

// number returns a numeric parameter of a request.
func number(q url.Values, name string, otherwise, most int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, wrong("%s=%s: no number that is allowed: 0 to %d", name, text, most)
	}
	return n, nil
}

// Status is the answer of "ovnkube egress status", with the oldest problems only.
type Status struct {
	explain.Status
	// Outage says since when and why the API server does not answer, so that all answers are from before; absent if it does.
	Outage string `json:"outage,omitempty"`
}

// status answers with a Status.
func status(v *view, r *http.Request) (any, error) {
	most, err := number(r.URL.Query(), "problems", defaultLimit, maxLimit)
	if err != nil {
		return nil, err
	}
	s := Status{v.status, v.outage}
	if more := len(s.Problems) - most; more > 0 {
		s.Problems = shortened(s.Problems, most)
		s.Notes = append(slices.Clone(s.Notes), fmt.Sprintf("problems: %d more are left out", more))
	}
	return s, nil
}

// shortened returns the oldest problems, among them that no master runs, which the page shows before everything else.
func shortened(problems []explain.Problem, most int) []explain.Problem {
	first, rest := problems[:most], problems[most:]
	silent := slices.IndexFunc(rest, func(p explain.Problem) bool { return p.Reason == explain.ReasonMasterSilent })
	if most == 0 || silent < 0 {
		return first
	}
	return append(slices.Clone(first[:most-1]), rest[silent])
}

// objects answers with a range of the objects.
func objects(v *view, r *http.Request) (any, error) {
	q := r.URL.Query()
	f := explain.ObjectFilter{Feature: q.Get("feature"), State: explain.State(q.Get("state")), Node: q.Get("node"), Text: q.Get("text")}
	var err error
	const most = 10_000_000
	if f.Offset, err = number(q, "offset", 0, most); err != nil {
		return nil, err
	}
	if f.Limit, err = number(q, "limit", defaultLimit, maxLimit); err != nil {
		return nil, err
	}
	if f.Limit == 0 {
		return nil, wrong("limit=0: nothing would be answered")
	}
	if err := f.Validate(); err != nil {
		return nil, &requestError{err}
	}
	return v.cluster.Objects(f), nil
}

// timeline answers with the latest entries of the timeline.
func timeline(v *view, r *http.Request) (any, error) {
	limit, err := number(r.URL.Query(), "limit", defaultLimit, maxLimit)
	if err != nil {
		return nil, err
	}
	t := Timeline{Header: v.status.Header, Entries: v.timeline, Total: len(v.timeline)}
	t.Kind = KindTimeline
	t.Entries = t.Entries[:min(limit, len(t.Entries))]
	return t, nil
}

// explained answers like "ovnkube egress explain".
func explained(v *view, r *http.Request) (any, error) {
	q := r.URL.Query()
	a, err := explanation(v.cluster, r.PathValue("kind"), strings.TrimSpace(q.Get("name")), strings.TrimSpace(q.Get("to")))
	if err != nil {
		return nil, err
	}
	switch output := q.Get("output"); output {
	case "", "json":
		return a, nil
	case "text":
		var text bytes.Buffer
		a.Text(&text)
		return plain(text.Bytes()), nil
	default:
		return nil, wrong("output=%s: unknown format; allowed: json, text", output)
	}
}

// texter is an answer of package explain.
type texter interface{ Text(w io.Writer) }

func explanation(c *explain.Cluster, kind, name, to string) (texter, error) {
	if name == "" {
		return nil, wrong("name is missing")
	}
	if to != "" && kind != "pod" {
		return nil, wrong("to is for pods")
	}
	switch kind {
	case "pod":
		at, err := explain.ParseDestination(to)
		if err != nil {
			return nil, &requestError{err}
		}
		return c.Pod(name, at)
	case "egressip":
		return c.EgressIP(name)
	case "service":
		return c.Service(name)
	case "node":
		return c.Node(name)
	case "address":
		at, err := explain.ParseAddress(name)
		if err != nil {
			return nil, &requestError{err}
		}
		return c.Address(at), nil
	}
	return nil, wrong("%s: nothing of this kind is explained; allowed: pod, egressip, service, address, node", kind)
}
