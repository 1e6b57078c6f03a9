package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// clustered is how many servers a clustered northbound database has.
const clustered = 3

// ClusterNorthbound turns the northbound database into a clustered one of three servers, which has the
// same rows. Programs that are running reach only one of them.
func (p *Plane) ClusterNorthbound(ctx context.Context) error {
	server, northd := p.databases[0], p.databases[2]
	p.forget(northd, northd.Stop)
	p.forget(server, server.Stop)
	standalone := p.path("standalone.db")
	if err := os.Rename(p.path("nb.db"), standalone); err != nil {
		return err
	}
	raft := func(i int) string { return "unix:" + p.path("raft"+strconv.Itoa(i)) }
	p.members = map[string]*Process{}
	for i := range clustered {
		name := nth("nb", i)
		arguments := []string{"join-cluster", p.path(name + ".db"), Northbound, raft(i), raft(0)}
		if i == 0 {
			arguments = []string{"create-cluster", p.path(name + ".db"), standalone, raft(i)}
		} else if err := p.Proxy.Listen(p.path(nth("nbproxy", i)+".sock"), p.path(name+".sock")); err != nil {
			return err
		}
		if err := p.tool(arguments...); err != nil {
			return err
		}
		member, err := p.serve(ctx, name)
		if err != nil {
			return err
		}
		p.members[name] = member
		joined := func() error {
			if status := p.raftStatus(name); !strings.Contains(status, "Status: cluster member") {
				return errors.New(status)
			}
			return nil
		}
		if err := member.ready(ctx, joined); err != nil {
			return err
		}
	}
	_, err := p.startNorthd(p.northbound("nb"))
	return err
}

// KillNorthboundLeader kills the leading server of the clustered northbound database.
func (p *Plane) KillNorthboundLeader() error {
	for name, member := range p.members {
		if strings.Contains(p.raftStatus(name), "Role: leader") {
			p.forget(member, member.Kill)
			delete(p.members, name)
			return nil
		}
	}
	return fmt.Errorf("none of %d servers leads", len(p.members))
}

// northbound returns the addresses of all servers of the northbound database; sockets have the given name.
func (p *Plane) northbound(socket string) string {
	all := []string{"unix:" + p.path(socket+".sock")}
	if p.members != nil {
		for i := 1; i < clustered; i++ {
			all = append(all, "unix:"+p.path(nth(socket, i)+".sock"))
		}
	}
	return strings.Join(all, ",")
}

// nth returns a name for the server with an index; the first has the plain name.
func nth(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + strconv.Itoa(i+1)
}

// raftStatus returns what a server says about its cluster, or why it says nothing.
func (p *Plane) raftStatus(name string) string {
	text, err := exec.Command("ovs-appctl", "--timeout=5", "-t", p.path(name+".ctl"), "cluster/status", Northbound).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, text)
	}
	return string(text)
}
