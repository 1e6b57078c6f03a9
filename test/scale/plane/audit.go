package plane

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// auditLog is what the API server has noted.
type auditLog struct {
	path string
	read int64 // bytes, by the last look
}

// request is an entry of it.
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
// this and of Requests, without leases, Events and the ConfigMap with the reachability of
// nodes, which is written time after time; those that were refused count, too.
func (p *Plane) Writes() (map[string]int, error) {
	return p.audit.next(func(r request) string {
		kind := r.ObjectRef.Resource
		if r.User.Username != masterUser || kind == "leases" || kind == "events" || kind == "configmaps" {
			return ""
		}
		return r.kind()
	})
}

// Requests returns how many times the agent has asked for what since the last call of this
// and of Writes; a watch counts when it begins.
func (p *Plane) Requests() (map[string]int, error) {
	const began, ended = "ResponseStarted", "ResponseComplete"
	return p.audit.next(func(r request) string {
		if r.User.Username != agentUser || r.Verb == "watch" && r.Stage != began || r.Verb != "watch" && r.Stage != ended {
			return ""
		}
		return r.Verb + " " + r.kind()
	})
}

// next counts what is new by the names that it is given; "" is not counted.
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
		if err != nil { // the rest is half a line, if anything
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
