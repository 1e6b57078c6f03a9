package plane

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// auditLog is the audit log of the API server.
type auditLog struct {
	path string
	read int64 // bytes read so far
}

// request is an entry of the log.
type request struct {
	Stage, Verb string
	User        struct{ Username string }
	ObjectRef   struct{ Resource, Subresource string }
}

func (r request) kind() string {
	if r.ObjectRef.Subresource != "" {
		return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
	}
	return r.ObjectRef.Resource
}

// Writes returns how many times the masters have written each kind since the last call of
// Writes or Requests, without leases, Events and the ConfigMap with the reachability of
// nodes, which is written regularly. Refused writes count, too.
func (p *Plane) Writes() (map[string]int, error) {
	return p.audit.next(func(r request) string {
		kind := r.ObjectRef.Resource
		if r.User.Username != masterUser || kind == "leases" || kind == "events" || kind == "configmaps" {
			return ""
		}
		return r.kind()
	})
}

// Requests returns the numbers of the agent's requests, by what they are for, since the last call of Requests
// or Writes; a watch counts when it begins.
func (p *Plane) Requests() (map[string]int, error) {
	const began, ended = "ResponseStarted", "ResponseComplete"
	return p.audit.next(func(r request) string {
		if r.User.Username != agentUser || r.Verb == "watch" && r.Stage != began || r.Verb != "watch" && r.Stage != ended {
			return ""
		}
		return r.Verb + " " + r.kind()
	})
}

// next counts new entries by name; those with the name "" are not counted.
func (a *auditLog) next(name func(request) string) (map[string]int, error) {
	file, err := os.Open(a.path)
	if err != nil {
		return nil, fmt.Errorf("read what was asked for: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(a.read, io.SeekStart); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil { // the rest is at most an incomplete line
			return counts, nil
		}
		a.read += int64(len(line))
		var entry request
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, fmt.Errorf("read what was asked for: %w", err)
		}
		if n := name(entry); n != "" {
			counts[n]++
		}
	}
}
