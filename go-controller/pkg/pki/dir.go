package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// File names in a directory, as in ovs-pki.
const (
	caCertFile = "cacert.pem"
	caKeyFile  = "cakey.pem"
	certSuffix = "-cert.pem"
	keySuffix  = "-privkey.pem"
)

// Dir is a directory with an authority and what it signed.
type Dir string

// Files are the paths of a certificate, its key and the certificate of the authority, as passed to OVN's programs
// and ovnkube.
type Files struct{ Key, Cert, CA string }

// Files returns the paths of a certificate in the directory.
func (d Dir) Files(name string) Files {
	return Files{Key: d.path(name + keySuffix), Cert: d.path(name + certSuffix), CA: d.path(caCertFile)}
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// Init creates the directory if it does not exist, and an authority in it. An existing authority is never replaced:
// all that it signed would become worthless.
func (d Dir) Init(name string, now time.Time, lifetime time.Duration) (*Authority, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := d.absent(caCertFile, caKeyFile); err != nil {
		return nil, err
	}
	a, err := NewAuthority(name, now, lifetime)
	if err != nil {
		return nil, err
	}
	return a, d.writePair(caCertFile, a.Cert, caKeyFile, a.key, false)
}

// Authority reads the authority of the directory.
func (d Dir) Authority() (*Authority, error) {
	cert, err := readCert(d.path(caCertFile))
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(d.path(caKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read key of the authority: %w", err)
	}
	a, err := newAuthority(cert, data)
	if err != nil {
		return nil, fmt.Errorf("read authority: %s with the key %s: %w", d.path(caCertFile), d.path(caKeyFile), err)
	}
	return a, nil
}

func newAuthority(cert *x509.Certificate, keyText []byte) (*Authority, error) {
	key, err := parseKey(keyText)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA || !belongs(cert, key) {
		return nil, errors.New("not the certificate of an authority and its key")
	}
	return &Authority{Cert: cert, key: key}, nil
}

// belongs reports whether a certificate is for a key.
func belongs(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := cert.PublicKey.(*ecdsa.PublicKey)
	return ok && public.Equal(key.Public())
}

// Issue makes a key and a certificate in the directory. If the name exists, it is replaced if overwrite is set;
// otherwise Issue fails.
func (d Dir) Issue(name string, s Subject, now time.Time, lifetime time.Duration, overwrite bool) (*x509.Certificate, error) {
	if !overwrite {
		if err := d.absent(name+certSuffix, name+keySuffix); err != nil {
			return nil, err
		}
	}
	a, err := d.Authority()
	if err != nil {
		return nil, err
	}
	cert, key, err := a.Issue(s, now, lifetime)
	if err != nil {
		return nil, err
	}
	return cert, d.writePair(name+certSuffix, cert, name+keySuffix, key, overwrite)
}

// Named is a certificate in the directory, with its name.
type Named struct {
	Name    string
	Cert    *x509.Certificate
	Renewed bool
}

// Renew renews the certificates that expire within the given time or are not valid yet, for as long as they were valid before or until
// the authority expires, and returns all certificates, sorted by name. If one cannot be renewed, it continues with
// the others.
func (d Dir) Renew(now time.Time, within time.Duration) ([]Named, error) {
	a, err := d.Authority()
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(d.path("*" + certSuffix))
	if err != nil {
		return nil, fmt.Errorf("list certificates: %w", err)
	}
	slices.Sort(paths)
	var out []Named
	var errs []error
	for _, path := range paths {
		n := Named{Name: strings.TrimSuffix(filepath.Base(path), certSuffix)}
		n.Cert, err = readCert(path)
		if err == nil && (now.Before(n.Cert.NotBefore) || n.Cert.NotAfter.Before(now.Add(within)) && n.Cert.NotAfter.Before(a.Cert.NotAfter)) {
			n.Renewed = true
			n.Cert, err = d.renew(a, path, n.Cert, now)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, n)
	}
	return out, errors.Join(errs...)
}

func (d Dir) renew(a *Authority, path string, old *x509.Certificate, now time.Time) (*x509.Certificate, error) {
	cert, err := a.Renew(old, now, lifetime(old))
	if err != nil {
		return nil, fmt.Errorf("renew %s: %w", path, err)
	}
	return cert, d.replace(strings.TrimSuffix(filepath.Base(path), certSuffix), cert)
}

// replace replaces a certificate by another one for the same key. Open vSwitch's programs read a certificate again
// only once they see that the key's file has changed as well: its modification time is set after the certificate is
// replaced, so that they find both together.
func (d Dir) replace(name string, cert *x509.Certificate) error {
	if err := write(d.path(name+certSuffix), encodeCert(cert), 0o644, true); err != nil {
		return err
	}
	if err := os.Chtimes(d.path(name+keySuffix), time.Time{}, time.Now()); err != nil {
		return fmt.Errorf("set time of key: %w", err)
	}
	return nil
}

// lifetime returns how long a certificate was valid for when it was signed.
func lifetime(cert *x509.Certificate) time.Duration {
	return cert.NotAfter.Sub(cert.NotBefore) - backdated
}

// absent returns an error if one of the files exists.
func (d Dir) absent(names ...string) error {
	for _, name := range names {
		_, err := os.Lstat(d.path(name))
		switch {
		case err == nil:
			return &fs.PathError{Op: "create", Path: d.path(name), Err: fs.ErrExist}
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("look for file: %w", err)
		}
	}
	return nil
}

// writePair writes the key before the certificate, so that there is never a certificate without its key.
func (d Dir) writePair(certFile string, cert *x509.Certificate, keyFile string, key crypto.Signer, overwrite bool) error {
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := write(d.path(keyFile), data, 0o600, overwrite); err != nil {
		return err
	}
	return write(d.path(certFile), encodeCert(cert), 0o644, overwrite)
}

// write writes a file atomically. An existing file is replaced only if overwrite is set.
func write(path string, data []byte, mode fs.FileMode, overwrite bool) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		_ = os.Remove(f.Name()) // already gone after a rename
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	switch {
	case err != nil:
		return err
	case overwrite:
		err = os.Rename(f.Name(), path)
	default:
		err = os.Link(f.Name(), path) // fails if the file exists
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes changes of a directory's entries durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return dir.Sync()
}

func readCert(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	cert, err := parseCert(data)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %s: %w", path, err)
	}
	return cert, nil
}
