package suite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// clusteredFollowed is followed for the member of the northbound database on a node, which may not be
// the leader.
var clusteredFollowed = append([]string{"ovn-nbctl", "--no-leader-only", "--db=unix:/run/ovn/ovnnb_db.sock"}, followed[1:]...)

// clusteredProcesses are the processes of a cluster with three masters and clustered databases. All
// but the API server run on every node.
var clusteredProcesses = []process{
	{name: "ovnkube master", pattern: "ovnkube .*--init-master", ready: 9409, cut: "{ 6443, 6641, 6643 }"},
	{name: "ovnkube node", pattern: "ovnkube .*--init-node", ready: 9410, cut: "{ 6443, 6641 }"},
	{name: "northbound member", pattern: "ovsdb-server .*ovnnb_db.db", works: clusteredFollowed, cut: "{ 6641, 6644 }"},
	{name: "southbound member", pattern: "ovsdb-server .*ovnsb_db.db", works: clusteredFollowed, cut: "{ 6643, 6645 }"},
	{name: "southbound relay", pattern: "ovsdb-server .* relay:", works: clusteredFollowed},
	{name: "northd", pattern: "^ovn-northd ", works: clusteredFollowed},
	{name: "ovn-controller", pattern: "^ovn-controller ", works: clusteredFollowed, cut: "6642"},
	{name: "switch database", pattern: "ovsdb-server .*conf.db", works: clusteredFollowed},
	{name: "switch", pattern: "^ovs-vswitchd ", works: clusteredFollowed},
	{name: "API server", node: lab.ControlPlane, pattern: "kube-apiserver .*--secure-port", cut: "{ 2379, 6443 }",
		works: []string{"kubectl", "get", "--raw", "/readyz"}},
}

// TestHighAvailabilityChaos is Chaos on what users install: pods from the manifests with TLS, three
// masters and clustered databases, whose leaders are faults of their own. Kubelets start containers
// again within a second, however often these ended; otherwise the test would wait minutes for them.
func TestHighAvailabilityChaos(t *testing.T) {
	s := start(t, "shared", func(o *lab.Options) {
		o.Name, o.Install = fmt.Sprintf("e2e-ha-chaos-%d", os.Getpid()), "manifests"
		o.Before = func(ctx context.Context, l *lab.Lab) error { // see smallDisk
			_, err := l.Kin.Exec(ctx, lab.ControlPlane, "sh", "-ec", "mkdir -p /var/lib/ovn; mount -t tmpfs -o size=64m tmpfs /var/lib/ovn")
			return err
		}
		o.Config = configure(apiServerLog, restartAtOnce...)
	})
	h := &haTest{s.newFaultTest(t)}
	h.migrate(t)
	h.whole(t)
	cluster := chaosCluster(clusteredProcesses)
	for _, db := range clusteredDatabases {
		cluster.Databases = append(cluster.Databases, db.schema)
	}
	c := &chaosTest{faultTest: h.faultTest, processes: clusteredProcesses, clustered: true, states: map[string]lab.State{}}
	c.run(t, "high-availability-chaos", cluster)
}

// killLeader kills the leading member of a database.
func (c *chaosTest) killLeader(t *testing.T, schema string) {
	t.Helper()
	db := clusteredDatabases[slices.IndexFunc(clusteredDatabases, func(db database) bool { return db.schema == schema })]
	h := &haTest{c.faultTest}
	node := h.leader(t, db)
	t.Logf("the leader of %s is on %s", schema, node)
	h.signal(t, "KILL", node, db)
}
