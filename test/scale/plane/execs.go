package plane

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Execs counts the programs that are started in this mount namespace, by name. As long as the caller starts none
// itself, these are the agent's: etcd, the API server, the databases and the
// switch start none.
type Execs struct {
	events *os.File

	mu     sync.Mutex
	counts map[string]int
	last   time.Time
}

// WatchExecs starts counting.
func WatchExecs() (*Execs, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch which programs start: %w", err)
	}
	e := &Execs{events: os.NewFile(uintptr(fd), "fanotify"), counts: map[string]int{}}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, unix.FAN_OPEN_EXEC, unix.AT_FDCWD, "/"); err != nil {
		return nil, errors.Join(fmt.Errorf("watch which programs start: %w", err), e.Close())
	}
	go e.follow()
	return e, nil
}

// Close stops counting.
func (e *Execs) Close() error { return e.events.Close() }

// Counts returns how often each program has been started.
func (e *Execs) Counts() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
}

// Last returns when the last program was started.
func (e *Execs) Last() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

func (e *Execs) follow() {
	const header = int(unsafe.Sizeof(unix.FanotifyEventMetadata{}))
	buffer := make([]byte, 64<<10)
	for {
		n, err := e.events.Read(buffer)
		if err != nil && !errors.Is(err, io.EOF) {
			return
		}
		for rest := buffer[:n]; len(rest) >= header; {
			event := (*unix.FanotifyEventMetadata)(unsafe.Pointer(&rest[0]))
			if event.Event_len < uint32(header) || int(event.Event_len) > len(rest) {
				break
			}
			if event.Fd >= 0 {
				e.note(int(event.Fd))
			}
			rest = rest[event.Event_len:]
		}
	}
}

// note counts a file that was opened for execution, except for the dynamic loader, which is opened
// each time as well.
func (e *Execs) note(fd int) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	_ = unix.Close(fd)
	name := filepath.Base(path)
	if err != nil || strings.HasPrefix(name, "ld-") {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[name]++
	e.last = time.Now()
}
