package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
	"github.com/ovnkube/ovnkube/test/e2e/services"
	"github.com/ovnkube/ovnkube/test/e2e/walkthrough"
)

var nodes = labtest.Nodes

func TestLocalGateway(t *testing.T)  { testCluster(t, "local") }
func TestSharedGateway(t *testing.T) { testCluster(t, "shared") }

// testCluster creates a cluster, runs all tests on it, and checks that nothing of it is left when
// it is deleted.
func testCluster(t *testing.T, mode string) {
	before := tracesOf(t)
	s := start(t, mode)
	t.Run("Connectivity", s.connectivity)
	t.Run("Services", func(t *testing.T) { services.Test(t, s.Lab, mode) })
	s.once(t, "Names", s.names)
	s.in(t, "local", "Walkthrough", s.walkthrough)
	t.Run("ExternalGateways", s.externalGateways)
	t.Run("EgressNetwork", s.network)
	t.Run("EgressIP", s.egressIPs)
	s.once(t, "NodeAnnotations", s.nodeAnnotations)
	s.once(t, "PodAddresses", s.podAddresses)
	s.once(t, "EgressSchema", s.schema)
	t.Run("EgressChanges", s.changes)
	s.in(t, "local", "EgressConnections", s.connections)
	s.in(t, "local", "FirstPackets", s.firstPackets)
	s.in(t, "local", "Replies", s.replies)
	s.in(t, "shared", "Strays", s.strays)
	s.in(t, "shared", "QuietRestart", s.quiet)
	s.in(t, "local", "NoLeak", s.leak)
	s.in(t, "local", "FailoverLatency", s.latency)
	s.once(t, "BlindMaster", s.blindMaster)
	if os.Getenv("BLIND") == "all" {
		s.once(t, "BlindLeaders", s.blindLeaders)
	}
	s.once(t, "SilentHost", s.silentHost)
	s.in(t, "local", "LostSwitch", s.lostSwitch)
	s.full(t, "Churn", s.churn)
	s.in(t, "local", "Faults", s.faults)
	if os.Getenv("OUTAGES") != "" {
		s.in(t, "local", "Outage", s.outage)
	}
	s.in(t, "local", "Chaos", s.chaos)
	s.full(t, "PowerFailure", s.powerFailure)
	s.in(t, "local", "Removal", s.removal)
	s.once(t, "Manifests", s.manifests)
	t.Run("Permissions", s.permissions)
	t.Run("Datapath", func(t *testing.T) { labtest.Datapath(t, s.Lab) })
	if t.Failed() { // there are no logs after the deletion
		labtest.KeepLogs(t.Context(), t, s.Lab, t.Name())
	}
	t.Run("Deletion", func(t *testing.T) { s.deletion(t, before) })
}

// TestLocalPaths and TestSharedPaths run the tests that measure nothing: which address and which path
// packets have where features combine, and whether "ovnkube egress" says so.
func TestLocalPaths(t *testing.T)  { testPaths(t, "local") }
func TestSharedPaths(t *testing.T) { testPaths(t, "shared") }

func testPaths(t *testing.T, mode string) {
	s := start(t, mode, func(o *lab.Options) {
		o.Name = fmt.Sprintf("e2e-%s-paths-%d", mode, os.Getpid())
		// On a busy machine a node may be silent for more than the usual second, or take more than the
		// usual 5 s to acknowledge an address, which would then move to another node than foretold.
		o.Config += "ovnkube: {args: [--egressip-reachability-total-timeout=10, --egressip-acknowledge-timeout=60]}\n"
	})
	newGatewayTest(t, s)
	s.addShore(t)
	s.addBlue(t)
	before := s.steadyState(t)
	s.in(t, "local", "Trace", s.trace)
	t.Run("Combinations", s.combinations)
	t.Run("TraceFeatures", s.traceFeatures) // what Combinations leaves for a while goes away meanwhile
	s.full(t, "WhatIf", s.whatIf)
	t.Run("Nothing stays", func(t *testing.T) { s.sameState(t, before) })
	t.Run("Permissions", s.permissions)
	t.Run("Datapath", func(t *testing.T) { labtest.Datapath(t, s.Lab) })
	s.once(t, "Admission", s.admission) // last: ovnkube does not run
}

// once runs a test in one gateway mode only, if what it tests does not depend on the mode, such as
// what the API server refuses and what the master decides. docs/development.md lists these tests.
func (s *suite) once(t *testing.T, name string, test func(*testing.T)) {
	if s.mode == "shared" {
		t.Run(name, test)
	}
}

// in runs a test that takes long in the gateway mode in which it shows more, and in both modes in a
// full run.
func (s *suite) in(t *testing.T, mode, name string, test func(*testing.T)) {
	labtest.In(t, mode, s.mode, name, test)
}

// full runs a test in a full run only.
func (s *suite) full(t *testing.T, name string, test func(*testing.T)) {
	labtest.In(t, "", s.mode, name, test)
}

// clusterConfig makes the API server log every request, lets the kubelets run static pods, and adds
// a second wire.
var clusterConfig = configure(apiServerLog)

const apiServerLog = "extraArgs: [--vmodule=httplog=3]"

// restartAtOnce are settings for kubelets that start containers again within a second, however often
// these ended; by default the time grows to five minutes.
var restartAtOnce = []string{"featureGates: {KubeletCrashLoopBackOffMax: true}", "crashLoopBackOff: {maxContainerRestartPeriod: 1s}"}

// configure returns a kin configuration with settings for the API server and more for kubelets.
func configure(apiServer string, kubelet ...string) string {
	kubelet = append([]string{"staticPodPath: " + lab.StaticPodPath}, kubelet...)
	return "apiServer: {" + apiServer + "}\n" +
		fmt.Sprintf("kubelet: {config: {%s}}\n", strings.Join(kubelet, ", ")) +
		fmt.Sprintf("networks: [{name: %s, subnets: [%q, %q]}]\n", secondNetwork, secondSubnets[0], secondSubnets[1])
}

// suite is what the tests of a cluster share.
type suite struct {
	*lab.Lab
	mode string // the gateway mode
	// installed reports whether ovnkube and OVN run as pods from the manifests.
	installed bool
	servers   map[string]lab.Pod // by name
	// The outside gateways, and the machine on the second network, once a test has added them.
	gateways []lab.Gateway
	hasShore bool
	hasBlue  bool // the machine in the network of an EgressService
}

// start creates the cluster with a server pod on the first worker, two on the second (without one, on
// the control plane), and a server on every node. The name of the cluster is unique to the run, so that two runs do not collide.
func start(t *testing.T, mode string, change ...func(*lab.Options)) *suite {
	options := lab.Options{Name: fmt.Sprintf("e2e-%s-%d", mode, os.Getpid()), GatewayMode: mode, Config: clusterConfig, Install: os.Getenv("E2E_INSTALL")}
	if options.Install == "manifests" {
		options.Config, options.Stoppable = configure(apiServerLog, restartAtOnce...), true
	}
	for _, f := range change {
		f(&options)
	}
	l := labtest.Start(t, t.Name(), options)
	s := &suite{Lab: l, mode: mode, installed: options.Install == "manifests"}
	for _, node := range nodes {
		if err := l.Serve(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	second := nodes[2%len(nodes)]
	s.servers = byName(s.runServers(t, map[string]string{"a": nodes[1], "b": second, "b2": second}, nil))
	return s
}

// runServers starts labelled server pods at the same time, given their nodes by name, and returns them in
// the order of their names.
func (s *suite) runServers(t *testing.T, where map[string]string, labels map[string]string) []lab.Pod {
	t.Helper()
	names := slices.Sorted(maps.Keys(where))
	pods := make([]lab.Pod, len(names))
	err := atOnce(len(names), func(i int) (err error) {
		pods[i], err = s.RunServer(t.Context(), names[i], where[names[i]], labels)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func byName(pods []lab.Pod) map[string]lab.Pod {
	named := map[string]lab.Pod{}
	for _, pod := range pods {
		named[pod.Name] = pod
	}
	return named
}

// atOnce calls f for each index below n, all at the same time, and returns all errors.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { errs[i] = f(i) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// removePods deletes pods, all at the same time, and waits until they are gone.
func (s *suite) removePods(t *testing.T, names ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the test's own may have ended
	if err := atOnce(len(names), func(i int) error { return s.DeletePod(ctx, names[i]) }); err != nil {
		t.Error(err)
	}
}

func (s *suite) walkthrough(t *testing.T) {
	stopped, err := walkthrough.Run(t.Context(), s.Lab, walkthrough.ByHand{Lab: s.Lab}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := walkthrough.End(t.Context(), s.Lab); err != nil {
		t.Fatal(err)
	}
	s.powerOn(t, stopped)
}
