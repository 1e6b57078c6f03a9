// Package statefile keeps small files on the host: state that a node must know after a restart of a
// process, a database or the machine, or that others read. A file always has either its new or its
// previous content, even if the writer or the machine crashes.
//
// Callers: the node's gateway and the CNI server.
package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// temporary is the suffix of the name of a file that is being written.
const temporary = ".new"

// Read returns the content of a file, or nil if it does not exist.
func Read(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return content, nil
}

// Write replaces the content of a file, and reports whether it changed. It creates the directory if
// it is missing.
func Write(path string, content []byte, mode fs.FileMode) (bool, error) {
	have, err := os.ReadFile(path)
	if err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, fmt.Errorf("make the directory of %s: %w", path, err)
	}
	if err := replace(path, content, mode); err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

func replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path+temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+temporary, path)
}

// Remove removes a file; it is not an error if it does not exist.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}
