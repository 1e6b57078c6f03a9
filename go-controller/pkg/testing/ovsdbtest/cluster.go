package ovsdbtest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// Cluster is a northbound database replicated over several servers.
type Cluster struct {
	t       testing.TB
	Servers []*Server
}

// StartCluster runs a RAFT cluster of n servers and waits until it has a leader.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var first string
	for i := range n {
		s := newServer(t)
		local := "unix:" + filepath.Join(s.dir, "raft") // a free port may be taken when the server is restarted
		if i == 0 {
			first = local
			run(t, "ovsdb-tool", "create-cluster", s.db, NorthboundSchema, local)
		} else {
			run(t, "ovsdb-tool", "join-cluster", s.db, "OVN_Northbound", local, first)
		}
		s.Start()
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		eventually.Succeeds(t, "server to join its cluster", func() error {
			if status := s.clusterStatus(); !strings.Contains(status, "Status: cluster member") {
				return errors.New(status)
			}
			return nil
		})
	}
	c.Leader()
	return c
}

// Address returns the sockets of all servers, separated by commas.
func (c *Cluster) Address() string {
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.Socket())
	}
	return strings.Join(all, ",")
}

// Leader waits until a running server leads the cluster and returns it.
func (c *Cluster) Leader() *Server {
	c.t.Helper()
	var leader *Server
	eventually.Succeeds(c.t, "a leader", func() error {
		for _, s := range c.Servers {
			if s.cmd != nil && strings.Contains(s.clusterStatus(), "Role: leader") {
				leader = s
				return nil
			}
		}
		return fmt.Errorf("no leader among %d servers", len(c.Servers))
	})
	return leader
}

func (s *Server) clusterStatus() string {
	out, err := s.Appctl("cluster/status", "OVN_Northbound")
	if err != nil {
		return err.Error()
	}
	return out
}
