package main

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/scale/agents"
	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/plane"
)

// losses measures the loss of a host of EgressServices, and of a node with egress
// addresses. Times count from when the node stops answering, so they include the
// time the master needs to notice that.
func (b *bench) losses(ctx context.Context) error {
	if host := b.host(); host != "" {
		err := b.loss(ctx, "host of EgressServices lost", host, func() bool { return b.hostedBy(host) == 0 && b.allServed() })
		if err != nil {
			return err
		}
	}
	if holder := b.holder(); holder != "" {
		return b.loss(ctx, "node with egress addresses lost", holder, func() bool { return b.heldBy(holder) == 0 && b.allHeld() })
	}
	return nil
}

func (b *bench) loss(ctx context.Context, phase, node string, done func() bool) error {
	known, err := kube.Node(b.agents.Node(node))
	if err != nil {
		return err
	}
	addrs := known.ManagementAddrs()
	for _, p := range known.Primary {
		addrs = append(addrs, p.Addr())
	}
	err = b.measureEvent(ctx, event{phase, func(context.Context) error {
		b.agents.SetLost(node, true)
		return plane.Silence(true, addrs...)
	}, done}, long)
	if err != nil {
		return err
	}
	if err := plane.Silence(false, addrs...); err != nil {
		return err
	}
	b.agents.SetLost(node, false)
	return b.settled(ctx)
}

// settled waits until nothing moves any more because of a node that is back, which the
// master treats like any other node after a while, and every object is in force: what is left to do for it would
// be counted as part of what is measured next.
func (b *bench) settled(ctx context.Context) error {
	m, err := b.mark()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	if err := b.settle(ctx, m, time.Now().Add(long), long); err != nil {
		return err
	}
	err = plane.Until(ctx, "egress addresses to be in force", func() error {
		if !b.allHeld() || !b.allServed() {
			return errors.New("a status says otherwise")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.settle(ctx, m, time.Now(), long)
}

// host returns the node that is the host of the most EgressServices, or "" if there is none.
func (b *bench) host() (node string) {
	most := 0
	for i := range b.size.Nodes {
		if n := b.hostedBy(load.NodeName(i)); n > most {
			node, most = load.NodeName(i), n
		}
	}
	return node
}

func (b *bench) hostedBy(node string) (n int) {
	for _, eg := range b.agents.Services() {
		if eg.Status.Host == node {
			n++
		}
	}
	return n
}

func (b *bench) allServed() bool {
	for _, eg := range b.agents.Services() {
		if !agents.Programmed(eg) {
			return false
		}
	}
	return true
}

// leaderChange measures the time from when the leader
// is told to end until the next master has nothing left to do.
func (b *bench) leaderChange(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	next, err := b.plane.StartMaster(load.NodeName(1), 1)
	if err != nil {
		return err
	}
	if _, err := b.awaitIdle(ctx, next.Process, 0, time.Now()); err != nil {
		return err
	}
	leader := b.master
	b.master, b.idle = next, 0
	m, err := b.mark()
	if err != nil {
		return err
	}
	leader.Stop()
	if err := plane.Until(ctx, "the next leader", func() error { return next.Leads(ctx) }); err != nil {
		return err
	}
	elected := time.Now()
	done, err := b.awaitIdle(ctx, next.Process, b.controllers, elected)
	if err != nil {
		return err
	}
	if err := b.settle(ctx, m, done, long); err != nil {
		return err
	}
	if _, last := b.changes(m); last.After(done) {
		done = last
	}
	b.say("the next master was elected after %.0f ms", milliseconds(m.at, elected))
	return b.record("leader change", m, done, nil)
}

// northboundLeaderLost measures how long a Service that is created when the leading server of a clustered northbound
// database is killed waits for its rows. It makes the database a clustered one, which no other phase has.
func (b *bench) northboundLeaderLost(ctx context.Context) error {
	b.master.Stop()
	if err := b.plane.ClusterNorthbound(ctx); err != nil {
		return err
	}
	var err error
	b.master, err = b.plane.StartMaster(load.NodeName(0), 0)
	if err != nil {
		return err
	}
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := b.awaitIdle(start, b.master.Process, b.controllers, time.Now()); err != nil {
		return err
	}
	b.say("the northbound database has three servers")
	return b.measureEvent(ctx, event{phase: "northbound leader lost", cause: func(ctx context.Context) error {
		if err := b.plane.KillNorthboundLeader(); err != nil {
			return err
		}
		return b.clients.MakeService(ctx, load.SpareService, measuredService, corev1.ServiceTypeClusterIP, 0, b.agents.PodsOf(load.SpareService))
	}}, long)
}
