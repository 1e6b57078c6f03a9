package ovsdb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

// Config is the address of the northbound database and how to connect to it.
type Config struct {
	// Address lists the servers, separated by commas: "tcp:HOST:PORT",
	// "ssl:HOST:PORT" (IPv6 in brackets) or "unix:/PATH".
	Address string
	// PrivateKey, Certificate and CACert are paths of PEM files, all required for ssl:
	// endpoints. They are read again for each connection.
	PrivateKey, Certificate, CACert string
	// ServerName is the name that the server's certificate must contain. Empty: any
	// certificate signed by the CA is accepted, as in OVN's own programs.
	ServerName string
	// ProbeInterval is how often an idle connection is probed, and how long an
	// answer may take. Zero: 5 s.
	ProbeInterval time.Duration
	// TransactTimeout bounds one transaction. Zero: 60 s.
	TransactTimeout time.Duration
	// Fence makes transactions of this client fail once another one has claimed the
	// database; nil: there is no other writer of our rows.
	Fence *Fence
	// Observe is called for each transaction, for metrics; it may be nil. It must not
	// block.
	Observe func(Transaction)
}

// Transaction describes a transaction that was sent.
type Transaction struct {
	Took time.Duration
	// Stats counts the rows that it wrote, if Err is nil.
	Stats nb.Stats
	Err   error
}

func (c Config) withDefaults() Config {
	if c.ProbeInterval == 0 {
		c.ProbeInterval = 5 * time.Second
	}
	if c.TransactTimeout == 0 {
		c.TransactTimeout = time.Minute
	}
	return c
}

// target returns the database with model m at the address of c.
func (c Config) target(m model.ClientDBModel, accept func(endpoint string, now state) error) (*target, error) {
	c = c.withDefaults()
	endpoints, err := ParseAddress(c.Address)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	return &target{endpoints, m, tlsConfig, c.ProbeInterval, accept}, nil
}

// ParseAddress splits a comma-separated list of endpoints and checks each.
func ParseAddress(address string) ([]string, error) {
	var out []string
	for part := range strings.SplitSeq(address, ",") {
		part = strings.TrimSpace(part)
		if err := checkEndpoint(part); err != nil {
			return nil, fmt.Errorf("parse endpoint %q: %w", part, err)
		}
		out = append(out, part)
	}
	return out, nil
}

func checkEndpoint(endpoint string) error {
	scheme, rest, _ := strings.Cut(endpoint, ":")
	switch scheme {
	case "unix":
		if !filepath.IsAbs(rest) {
			return errors.New("unix: needs an absolute path")
		}
		return nil
	case "tcp", "ssl":
		host, port, err := net.SplitHostPort(rest)
		if err != nil || host == "" {
			return fmt.Errorf("%s: needs HOST:PORT, an IPv6 address in brackets", scheme)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("port %q is not in 1..65535", port)
		}
		return nil
	}
	return errors.New("needs tcp:HOST:PORT, ssl:HOST:PORT or unix:/PATH")
}

// tlsConfig returns the TLS configuration of connections; nil if no files are configured.
// The peer needs a server certificate, so that a chassis cannot pose as the database.
func (c Config) tlsConfig() (*tls.Config, error) {
	if c.PrivateKey == "" && c.Certificate == "" && c.CACert == "" {
		return nil, nil
	}
	return pki.Files{Key: c.PrivateKey, Cert: c.Certificate, CA: c.CACert}.Session(x509.ExtKeyUsageServerAuth, c.ServerName)
}
