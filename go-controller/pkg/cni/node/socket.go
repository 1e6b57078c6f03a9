package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"
)

// listen creates the socket, which only root can access. A socket left by an earlier run is
// replaced, at once: there is always one for the former server to see.
func (s *Server) listen() (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(s.Socket), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the CNI socket: %w", err)
	}
	temporary := s.Socket + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old CNI socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at the CNI socket %s: %w", temporary, err)
	}
	// The socket at either path may be that of the next process by the time this one closes its own: an updated one may
	// start before this one has ended.
	listener.SetUnlinkOnClose(false)
	if err := os.Chmod(temporary, 0o600); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("protect the CNI socket %s: %w", temporary, err)
	}
	file, err := os.Lstat(temporary)
	if err == nil {
		err = os.Rename(temporary, s.Socket)
	}
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("replace the CNI socket: %w", err)
	}
	s.socket.Store(file)
	return listener, nil
}

// listenAgain returns a new listener if the socket is gone. One of another server stays: that has succeeded this one.
func (s *Server) listenAgain() net.Listener {
	if _, err := os.Lstat(s.Socket); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	listener, err := s.listen()
	if err != nil {
		klog.ErrorS(err, "The CNI socket is gone and cannot be restored, will retry", "socket", s.Socket)
		return nil
	}
	klog.InfoS("Restored the CNI socket: somebody had removed it", "socket", s.Socket)
	return listener
}

// succeeded reports whether the socket is that of another server.
func (s *Server) succeeded() bool {
	own, _ := s.socket.Load().(os.FileInfo)
	file, err := os.Lstat(s.Socket)
	return err == nil && own != nil && !os.SameFile(own, file)
}
