package raft

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// interval is how often a member checks its cluster.
const interval = 5 * time.Second

// Maintain maintains the clusters of members until ctx is done: see once.
func Maintain(ctx context.Context, members []Member) {
	last := ""
	absent := make([]int, len(members))
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var errs []error
		for i, m := range members {
			if err := m.once(ctx, &absent[i]); err != nil {
				errs = append(errs, fmt.Errorf("database %s: %w", m.Database.Name, err))
			}
		}
		text := ""
		if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
			text = err.Error()
			if text != last { // once, while it lasts
				klog.ErrorS(err, "Cannot maintain the clusters, will retry")
			}
		}
		last = text
	}, interval)
}

// once removes other members with this member's address from the cluster: such a member used this node's disk
// before it was lost, and counts for the majority although it never returns. If this member leads, it also upgrades
// the database to a newer schema. It ends a server that has left its cluster, once that can rejoin, and replaces the
// file of one that cannot start. absent counts the checks since the server was last seen.
func (m Member) once(ctx context.Context, absent *int) error {
	db := m.Database
	if _, err := os.Stat(db.Control); errors.Is(err, fs.ErrNotExist) {
		return m.missed(ctx, absent, nil) // it is about to start
	}
	text, err := run(ctx, "ovs-appctl", "--timeout=5", "-t", db.Control, "cluster/status", db.Schema)
	if failed(text, err) {
		return end(ctx, db)
	}
	if err != nil { // a server that was killed leaves its socket
		return m.missed(ctx, absent, err)
	}
	*absent = 0
	s := parseStatus(text)
	if !s.member {
		return nil
	}
	for _, id := range s.former(m.Members.endpoint(m.Address, db.Port)) {
		klog.InfoS("Removing the member that this node was before its disk was lost", "database", db.Name, "member", id)
		if _, err := run(ctx, "ovs-appctl", "--timeout=5", "-t", db.Control, "cluster/kick", db.Schema, id); err != nil {
			return err
		}
	}
	if !s.leader {
		return nil
	}
	return upgrade(ctx, db)
}

// absentChecks is after how many checks without a server its file is examined.
const absentChecks = 3

// missed counts a check that did not find a server, and examines its file after some. Otherwise it returns why.
func (m Member) missed(ctx context.Context, absent *int, why error) error {
	if *absent++; *absent < absentChecks {
		return why
	}
	if err := m.rejoin(ctx); err != nil {
		return err
	}
	return why
}

// rejoin replaces this member's file by one of a new member of the same cluster if ovsdb-server cannot read it. The
// unreadable file is kept next to it.
func (m Member) rejoin(ctx context.Context) error {
	db := m.Database
	switch file, err := db.kind(ctx); {
	case err != nil:
		return err
	case file == absent: // which cluster it belonged to is known to Prepare only
		return fmt.Errorf("%s is empty or absent: the member joins its cluster again when its pod is deleted", db.File)
	case file != clustered:
		return nil
	}
	unlock, err := db.lock()
	if errors.Is(err, errInUse) {
		return nil // it has started
	}
	if err != nil {
		return err
	}
	_, unreadable := tool(ctx, "check-cluster", db.File)
	unlock()
	if status(unreadable) <= 0 { // it is readable, or the program did not finish
		return unreadable
	}
	if err := hasRoom(db); err != nil {
		return err
	}
	id, err := clusterID(ctx, db.File)
	if err != nil {
		return err
	}
	klog.ErrorS(unreadable, "Replacing the file of the database, which the server cannot read", "database", db.Name, "kept", db.File+".unreadable")
	kept := db.File + ".unreadable"
	if err := os.Remove(kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(db.File, kept); err != nil { // there is always a file, whenever this process ends
		return err
	}
	_, err = m.do(ctx, join, id)
	return err
}

// room is how much space a disk must have for a server to be started again.
const room = 1 << 20

// hasRoom returns an error if there is no room on the disk of a database. With a full disk, a server that starts
// would accept changes that it cannot write, and leave a file that it cannot read.
func hasRoom(db Database) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(db.File), &disk); err != nil {
		return fmt.Errorf("look for room for %s: %w", db.File, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < room {
		return fmt.Errorf("the server has left its cluster, and there is no room for %s: %d bytes are free, less than %d", db.File, free, room)
	}
	return nil
}

// end ends a server, so that it is started again, if there is room on its disk.
func end(ctx context.Context, db Database) error {
	if err := hasRoom(db); err != nil {
		return err
	}
	klog.InfoS("Ending the server, which left its cluster because it could not write its file", "database", db.Name)
	_, err := run(ctx, "ovs-appctl", "--timeout=5", "-t", db.Control, "exit")
	return err
}

// upgrade converts the database to the installed schema if that is newer. An older one means that this member has
// yet to be updated.
func upgrade(ctx context.Context, db Database) error {
	have, err := run(ctx, "ovsdb-client", "--timeout=5", "get-schema-version", db.Socket, db.Schema)
	if err != nil {
		return err
	}
	want, err := tool(ctx, "schema-version", db.SchemaFile)
	if err != nil {
		return err
	}
	have, want = strings.TrimSpace(have), strings.TrimSpace(want)
	switch _, err := tool(ctx, "compare-versions", have, "<", want); {
	case status(err) == 2: // it is not
		return nil
	case err != nil:
		return err
	}
	klog.InfoS("Converting the database", "database", db.Name, "from", have, "to", want)
	_, err = run(ctx, "ovsdb-client", "--timeout=60", "convert", db.Socket, db.SchemaFile)
	return err
}

// failed reports whether a server, with the given answer to cluster/status, could not write its file, for example
// because the disk was full. Then it has left its cluster: it stays like this when it could write again, but
// rejoins when it is restarted, as containers are.
func failed(status string, err error) bool {
	if err != nil { // it no longer serves the database
		return strings.Contains(err.Error(), "unknown cluster")
	}
	return slices.Contains(strings.Split(status, "\n"), "Status: failed")
}

// clusterStatus is the part of a server's cluster status that is needed.
type clusterStatus struct {
	member, leader bool
	servers        []server
}

type server struct {
	id, endpoint string
	self         bool
}

// serverLine matches a line of the server list in the output of cluster/status.
var serverLine = regexp.MustCompile(`(?m)^ +([0-9a-f]{4,}) \([0-9a-f]+ at ([^)]+)\)( \(self\))?`)

func parseStatus(text string) clusterStatus {
	lines := strings.Split(text, "\n")
	s := clusterStatus{member: slices.Contains(lines, "Status: cluster member"), leader: slices.Contains(lines, "Role: leader")}
	for _, found := range serverLine.FindAllStringSubmatch(text, -1) {
		s.servers = append(s.servers, server{id: found[1], endpoint: found[2], self: found[3] != ""})
	}
	return s
}

// former returns the IDs of servers that previously had this member's endpoint.
func (s clusterStatus) former(endpoint string) []string {
	var ids []string
	listed := false
	for _, other := range s.servers {
		switch {
		case other.self:
			listed = true
		case other.endpoint == endpoint:
			ids = append(ids, other.id)
		}
	}
	if !listed { // it has not joined yet
		return nil
	}
	return ids
}
