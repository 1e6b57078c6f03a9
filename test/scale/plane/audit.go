package plane

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// auditLog is what the API server has noted of the masters' writes.
type auditLog struct {
	path string
	read int64 // bytes, by the last look
}

// Writes returns how many times the masters have written each kind since the last call,
// without leases, Events and the ConfigMap with the reachability of nodes, which is written
// time after time; those that were refused count, too.
func (p *Plane) Writes() (map[string]int, error) { return p.audit.next() }

func (a *auditLog) next() (map[string]int, error) {
	file, err := os.Open(a.path)
	if err != nil {
		return nil, fmt.Errorf("read what masters write: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(a.read, io.SeekStart); err != nil {
		return nil, err
	}
	writes := map[string]int{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil { // the rest is half a line, if anything
			return writes, nil
		}
		a.read += int64(len(line))
		var entry struct {
			ObjectRef struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, fmt.Errorf("read what masters write: %w", err)
		}
		kind := entry.ObjectRef.Resource
		if kind == "leases" || kind == "events" || kind == "configmaps" {
			continue
		}
		if s := entry.ObjectRef.Subresource; s != "" {
			kind += "/" + s
		}
		writes[kind]++
	}
}
