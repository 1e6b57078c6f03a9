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

// retry is how long to wait for what others have to do.
const retry = time.Second

// Registry keeps the IDs of clusters, by the names of their databases. Where there is
// none yet, ID returns "".
type Registry interface {
	ID(ctx context.Context, database string) (string, error)
	// Record keeps an ID for good: it fails where there is another one.
	Record(ctx context.Context, database, id string) error
}

// Member is this node's part in the cluster of a database.
type Member struct {
	Database Database
	// Address is that of this node, one of Members.
	Address  netip.Addr
	Members  Members
	Registry Registry
}

// Check refuses a member that is none.
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

// kind is what a database file is.
type kind int

const (
	absent kind = iota
	standalone
	clustered
)

// action is what has to be done to have a member's file.
type action int

const (
	nothing action = iota
	record         // keep the ID of the cluster that the file belongs to
	create         // a cluster, of what is in the file if there is one
	join           // the cluster; what is in the file is not needed any more
	await          // that the first member creates the cluster
)

// next decides what has to be done, from the kind of the file, the cluster that it belongs
// to, the cluster that is recorded, and whether this is the first member.
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

// Prepare sees to it that there is a file of the database that a server can serve as a member
// of its cluster. It waits, until ctx is done, for the first member to create the cluster,
// and for the registry to answer.
func (m Member) Prepare(ctx context.Context) error {
	db := m.Database
	if err := m.Check(); err != nil {
		return err
	}
	said := false
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
				if !said {
					klog.InfoS("Waiting for the first member to create the cluster", "database", db.Name, "first", m.Members.Clients[0].Addr())
				}
				said = true
				return false, nil
			}
			later, err := m.do(ctx, todo, recorded)
			if errors.Is(err, errInUse) {
				klog.ErrorS(err, "Cannot make the member, will retry", "database", db.Name)
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
	file, err := kindOf(ctx, db.File)
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

// do takes one step. What the API server refuses is tried again after a while.
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
		if _, err := os.Stat(db.File); err == nil {
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

// replace has ovsdb-tool make another file, with the arguments after its name, and puts it in the place of the one that
// there is, which stays beside it. A file that is there is a complete one, whenever this
// process ends.
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
	before := db.File + ".standalone"
	if err := os.Link(db.File, before); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep the database before: %w", err)
	}
	return os.Rename(made, db.File)
}

// errInUse is that another server has the file.
var errInUse = errors.New("another server uses the database file")

// lock takes the lock of ovsdb-server for the file: where one still runs, that the cluster
// is to replace, what it writes from now on would be lost.
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

func kindOf(ctx context.Context, file string) (kind, error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	} else if err != nil {
		return absent, err
	}
	switch _, err := tool(ctx, "db-is-clustered", file); {
	case err == nil:
		return clustered, nil
	case status(err) == 2: // it is not
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

// run runs a program and returns what it prints. The error has what it complains of.
func run(ctx context.Context, args ...string) (string, error) {
	var complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaints.String()))
	}
	return string(out), nil
}

// status is with what a program ended, 0 where it did not run.
func status(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
