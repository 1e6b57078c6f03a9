package raft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// retry is how long to wait before checking again for others' progress.
const retry = time.Second

// Registry stores the IDs of clusters by database name. ID returns "" if there is none yet.
type Registry interface {
	ID(ctx context.Context, database string) (string, error)
	// Record stores an ID permanently: it fails if there is a different one.
	Record(ctx context.Context, database, id string) error
}

// Member is this node's member of a database's cluster.
type Member struct {
	Database Database
	// Address is the address of this node, one of Members.
	Address  netip.Addr
	Members  Members
	Registry Registry
}

// Check returns an error if this node is not one of the members.
func (m Member) Check() error {
	if m.Members.has(m.Address) {
		return nil
	}
	var all []string
	for _, c := range m.Members.Clients {
		all = append(all, c.Addr().String())
	}
	return fmt.Errorf("node address %s is not among the members %s: the databases run on these nodes only", m.Address, strings.Join(all, ", "))
}

// kind is the kind of a database file.
type kind int

const (
	absent kind = iota // or empty
	standalone
	clustered
)

// action is the next step towards a member's database file.
type action int

const (
	nothing action = iota
	record         // the ID of the cluster that the file belongs to
	create         // a cluster, from the content of the file if there is one
	join           // the cluster; the content of the file is no longer needed
	await          // creation of the cluster by the first member
)

// next returns the next step, given the kind of the file, the cluster that it belongs to, the recorded cluster, and
// whether this is the first member.
func next(file kind, id, recorded string, first bool) (action, error) {
	switch {
	case file == clustered && recorded == "":
		return record, nil
	case file == clustered && id != recorded:
		return nothing, fmt.Errorf("it belongs to cluster %s, but the cluster is %s", id, recorded)
	case file == clustered:
		return nothing, nil
	case recorded != "":
		return join, nil
	case first:
		return create, nil
	}
	return await, nil
}

// Prepare makes sure that there is a database file that a server can serve as a member of its cluster. It waits,
// until ctx is done, for the first member to create the cluster, and for the registry to respond.
func (m Member) Prepare(ctx context.Context) error {
	db := m.Database
	if err := m.Check(); err != nil {
		return err
	}
	logged := false
	return wait.PollUntilContextCancel(ctx, retry, true, func(ctx context.Context) (bool, error) {
		for {
			recorded, err := m.Registry.ID(ctx, db.Name)
			if err != nil {
				klog.ErrorS(err, "Cannot find out about the cluster, will retry", "database", db.Name)
				return false, nil
			}
			todo, err := m.next(ctx, recorded)
			if err != nil || todo == nothing {
				return err == nil, err
			}
			if todo == await {
				if !logged {
					klog.InfoS("Waiting for the first member to create the cluster", "database", db.Name, "first", m.Members.Clients[0].Addr())
				}
				logged = true
				return false, nil
			}
			later, err := m.do(ctx, todo, recorded)
			if errors.Is(err, errInUse) {
				klog.ErrorS(err, "Cannot create the member, will retry", "database", db.Name)
				return false, nil
			}
			if later || err != nil {
				return false, err
			}
		}
	})
}

func (m Member) next(ctx context.Context, recorded string) (action, error) {
	db := m.Database
	file, err := db.kind(ctx)
	if err != nil {
		return nothing, err
	}
	id := ""
	if file == clustered {
		if id, err = clusterID(ctx, db.File); err != nil {
			return nothing, err
		}
	}
	todo, err := next(file, id, recorded, m.Address == m.Members.Clients[0].Addr())
	if err != nil {
		return nothing, fmt.Errorf("database file %s: %w; move the file away to join that", db.File, err)
	}
	return todo, nil
}

// do performs one step. If the API server refuses it, it is retried later.
func (m Member) do(ctx context.Context, todo action, recorded string) (later bool, err error) {
	db := m.Database
	local := m.Members.endpoint(m.Address, db.Port)
	switch todo {
	case record:
		id, err := clusterID(ctx, db.File)
		if err != nil {
			return false, err
		}
		klog.InfoS("Recording the cluster", "database", db.Name, "id", id)
		if err := m.Registry.Record(ctx, db.Name, id); err != nil {
			klog.ErrorS(err, "Cannot record the cluster, will retry", "database", db.Name)
			return true, nil
		}
	case create:
		klog.InfoS("Creating the cluster", "database", db.Name, "address", local)
		content := db.SchemaFile
		if hasContent, err := db.hasContent(); err != nil {
			return false, err
		} else if hasContent {
			content = db.File
		}
		return false, db.replace(ctx, []string{"create-cluster"}, content, local)
	case join:
		klog.InfoS("Joining the cluster", "database", db.Name, "id", recorded, "address", local)
		args := []string{db.Schema, local}
		for _, c := range m.Members.Clients {
			if c.Addr() != m.Address {
				args = append(args, m.Members.endpoint(c.Addr(), db.Port))
			}
		}
		return false, db.replace(ctx, []string{"--cid=" + recorded, "join-cluster"}, args...)
	}
	return false, nil
}

// replace makes another file with ovsdb-tool, given the arguments after the file's name, and replaces the existing
// file, which is kept next to it. The file is always complete, whenever this process ends.
func (db Database) replace(ctx context.Context, command []string, args ...string) error {
	unlock, err := db.lock()
	if err != nil {
		return err
	}
	defer unlock()
	made := db.File + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := tool(ctx, append(append(command, made), args...)...); err != nil {
		return err
	}
	if err := flush(made); err != nil {
		return err
	}
	if hasContent, err := db.hasContent(); err != nil {
		return err
	} else if hasContent {
		if err := os.Link(db.File, db.File+".standalone"); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("keep the database before: %w", err)
		}
	}
	return os.Rename(made, db.File)
}

// flush writes a file to the disk: ovsdb-tool does not do that with all files that it makes.
func flush(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// hasContent reports whether the database file has any content. A loss of power can leave an empty file of one that was not
// written to the disk yet, which is as good as none.
func (db Database) hasContent() (bool, error) {
	info, err := os.Stat(db.File)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// errInUse means that another server uses the file.
var errInUse = errors.New("another server uses the database file")

// lock takes ovsdb-server's lock of the file: if the standalone server that the cluster replaces is still running,
// whatever it writes from now on would be lost.
func (db Database) lock() (unlock func(), err error) {
	name := filepath.Join(filepath.Dir(db.File), "."+filepath.Base(db.File)+".~lock~")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%s: %w", db.File, errInUse)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// kind returns the kind of the database file.
func (db Database) kind(ctx context.Context) (kind, error) {
	if hasContent, err := db.hasContent(); err != nil || !hasContent {
		return absent, err
	}
	switch _, err := tool(ctx, "db-is-clustered", db.File); {
	case err == nil:
		return clustered, nil
	case status(err) == 2: // it is not clustered
		return standalone, nil
	default:
		return absent, err
	}
}

func clusterID(ctx context.Context, file string) (string, error) {
	out, err := tool(ctx, "db-cid", file)
	return strings.TrimSpace(out), err
}

func tool(ctx context.Context, args ...string) (string, error) {
	return run(ctx, append([]string{"ovsdb-tool", "-vconsole:warn"}, args...)...)
}

// run runs a program and returns its output. The error includes its error output.
func run(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// status returns a program's exit status, or 0 if it did not run.
func status(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
