package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"
)

// masterDir is the directory on the host in which a master keeps its identity.
const masterDir = "/var/run/ovn-kubernetes/master"

// identity returns the name of a master in the election and in the northbound database: the node
// and a random part. No two running processes have the same one. The random part is in a file that
// a process locks while it lives, even while it is suspended: a master that gets the lock is the
// successor of a dead one, and takes over that one's identity, and with it the lease, without
// waiting for it to expire. If it cannot get the lock, it has an identity of its own. The returned
// function releases the file.
func identity(dir, node string) (string, func()) {
	part, release, err := inherit(dir)
	if err != nil {
		klog.InfoS("Cannot inherit the identity of an earlier master", "reason", err.Error())
		part, release = string(uuid.NewUUID()), func() {}
	}
	return node + "_" + part, release
}

// inherit locks the file in dir and returns the random part in it.
func inherit(dir string) (string, func(), error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("make the directory of the identity: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "identity"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("open the identity: %w", err)
	}
	part, err := lockIdentity(f)
	if err != nil {
		_ = f.Close()
		return "", nil, err
	}
	return part, func() { _ = f.Close() }, nil
}

// identityLength is the length of a UUID as text.
const identityLength = 36

func lockIdentity(f *os.File) (string, error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return "", fmt.Errorf("lock %s, which another master may hold: %w", f.Name(), err)
	}
	content, err := os.ReadFile(f.Name())
	if err != nil {
		return "", fmt.Errorf("read the identity: %w", err)
	}
	if part := strings.TrimSpace(string(content)); len(part) == identityLength {
		return part, nil
	}
	part := string(uuid.NewUUID()) // there is none yet, or it was written incompletely
	if err := f.Truncate(0); err != nil {
		return "", fmt.Errorf("write the identity: %w", err)
	}
	if _, err := f.WriteAt([]byte(part+"\n"), 0); err != nil {
		return "", fmt.Errorf("write the identity: %w", err)
	}
	return part, nil
}
