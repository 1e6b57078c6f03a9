package auditfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
)

// Stdout is the name of standard output.
const Stdout = "-"

// Open returns a sink that writes to a file and rotates it at the given size in bytes. It keeps the given number of
// rotated files, all of them if backups is 0. If path is Stdout, the sink writes to standard output.
func Open(path string, size int64, backups int) (audit.Sink, error) {
	if path == Stdout {
		return stream{os.Stdout}, nil
	}
	f := &file{path: path, max: size,
		// The recorder decides when to rotate: each file begins with a statement of the current state.
		out: &lumberjack.Logger{Filename: path, MaxSize: math.MaxInt32, MaxBackups: backups}}
	return f, f.look()
}

// stream is a sink that cannot be rotated.
type stream struct{ io.Writer }

func (stream) Sync() error   { return nil }
func (stream) Full() bool    { return false }
func (stream) Rotate() error { return nil }

type file struct {
	path      string
	max, size int64
	out       *lumberjack.Logger
	torn      bool // the last line has no line end
}

// look checks what an earlier process has left, and that the file can be written.
func (f *file) look() error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return fmt.Errorf("make the directory of the egress audit log: %w", err)
	}
	h, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the egress audit log: %w", err)
	}
	defer h.Close()
	info, err := h.Stat()
	if err != nil {
		return fmt.Errorf("check the egress audit log: %w", err)
	}
	if f.size = info.Size(); f.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := h.ReadAt(last, f.size-1); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the end of the egress audit log: %w", err)
	}
	f.torn = last[0] != '\n'
	return nil
}

// Write implements audit.Sink.
func (f *file) Write(lines []byte) (int, error) {
	text := lines
	if f.torn {
		text = append([]byte{'\n'}, bytes.Clone(lines)...)
	}
	n, err := f.out.Write(text)
	f.size += int64(n)
	if f.torn = err != nil; err != nil {
		return 0, fmt.Errorf("write %s: %w", f.path, err)
	}
	return len(lines), nil
}

// Sync implements audit.Sink. It syncs the file, whichever file handle it is called on.
func (f *file) Sync() error {
	h, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", f.path, err)
	}
	defer h.Close()
	if err := h.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.path, err)
	}
	return nil
}

// Full implements audit.Sink.
func (f *file) Full() bool { return f.size >= f.max }

// Rotate implements audit.Sink.
func (f *file) Rotate() error {
	if err := f.out.Rotate(); err != nil {
		return fmt.Errorf("rotate %s: %w", f.path, err)
	}
	f.size, f.torn = 0, false
	return nil
}
