package component

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

func nodes(t *testing.T, c config.Cluster) []Node {
	t.Helper()
	c, err := c.Default()
	if err != nil {
		t.Fatal(err)
	}
	planned := plan.Nodes(c)
	var list []Node
	for _, n := range planned {
		list = append(list, Node{Node: n, Config: c, Server: planned[0], ChassisID: "id-" + n.Name, Ovnkube: true})
	}
	return list
}

func unit(t *testing.T, n Node, name string) supervise.Unit {
	t.Helper()
	units := n.Units()
	i := slices.IndexFunc(units, func(u supervise.Unit) bool { return u.Name == name })
	if i < 0 {
		t.Fatalf("%s does not run %s", n.Name, name)
	}
	return units[i]
}

func TestUnitsHaveAnOrder(t *testing.T) {
	for _, family := range []string{config.FamilyDual, config.FamilyIPv4, config.FamilyIPv6} {
		for _, ovnkube := range []bool{true, false} {
			for _, n := range nodes(t, config.Cluster{IPFamily: family}) {
				n.Ovnkube = ovnkube
				if err := supervise.Check(n.Units()); err != nil {
					t.Errorf("%s, %s: %v", family, n.Name, err)
				}
			}
		}
	}
}

func TestWhoRunsWhat(t *testing.T) {
	names := func(n Node) string {
		var list []string
		for _, u := range n.Units() {
			list = append(list, u.Name)
		}
		return strings.Join(list, " ")
	}
	list := nodes(t, config.Cluster{})
	if got, want := names(list[0]), "etcd kube-apiserver kube-controller-manager kube-scheduler ovn-nb ovn-sb ovn-northd "+
		"ovsdb-server ovs-vswitchd ovn-controller containerd kubelet ovnkube-master ovnkube-node"; got != want {
		t.Errorf("control plane runs %s", got)
	}
	if got, want := names(list[1]), "ovsdb-server ovs-vswitchd ovn-controller containerd kubelet ovnkube-node"; got != want {
		t.Errorf("worker runs %s", got)
	}
	list[1].Ovnkube = false
	if got := names(list[1]); strings.Contains(got, "ovnkube") {
		t.Errorf("without ovnkube a worker runs %s", got)
	}
}

func TestOvnkubeCommandLines(t *testing.T) {
	list := nodes(t, config.Cluster{GatewayMode: "local", Ovnkube: config.Ovnkube{Args: []string{"--both"}, MasterArgs: []string{"--master"}, NodeArgs: []string{"--node"}}})
	const common = " --k8s-kubeconfig=/etc/kubernetes/ovnkube-%ROLE%.conf --cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48/64" +
		" --k8s-service-cidrs=10.96.0.0/16,fd00:10:96::/112 --gateway-mode=local --gateway-interface=eth0" +
		" --nb-address=tcp:172.18.0.2:6641 --sb-address=tcp:172.18.0.2:6642 --encap-ip=%IP% --nodeport --enable-egress-ip --enable-egress-service" +
		" --enable-multi-external-gateway --loglevel=4 --metrics-bind-address=%IP%:%PORT% --metrics-insecure --both "
	for _, c := range []struct {
		node                         Node
		unit, head, ip, port, ending string
	}{
		{list[0], OvnkubeMaster, "ovnkube --init-master ovn-control-plane", "172.18.0.2", "9409", "--master"},
		{list[0], OvnkubeNode, "ovnkube --init-node ovn-control-plane", "172.18.0.2", "9410", "--trace-bind-address=172.18.0.2:9413 --node"},
		{list[2], OvnkubeNode, "ovnkube --init-node ovn-worker2", "172.18.0.4", "9410", "--trace-bind-address=172.18.0.4:9413 --node"},
	} {
		got := strings.Join(unit(t, c.node, c.unit).Exec, " ")
		role := c.ending[strings.LastIndex(c.ending, "--")+2:]
		want := c.head + strings.NewReplacer("%IP%", c.ip, "%PORT%", c.port, "%ROLE%", role).Replace(common) + c.ending
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", c.unit, got, want)
		}
	}
}

func TestIPv6AddressesAreBracketed(t *testing.T) {
	list := nodes(t, config.Cluster{IPFamily: config.FamilyIPv6})
	for name, words := range map[string][]string{
		OvnkubeNode: {"--nb-address=tcp:[fc00:f853:ccd:e793::2]:6641", "--encap-ip=fc00:f853:ccd:e793::2", "--cluster-subnets=fd00:10:244::/48/64"},
		APIServer:   {"--advertise-address=fc00:f853:ccd:e793::2", "--bind-address=::", "--service-cluster-ip-range=fd00:10:96::/112"},
		Kubelet:     {"--node-ip=fc00:f853:ccd:e793::2"},
	} {
		got := unit(t, list[0], name).Exec
		for _, word := range words {
			if !slices.Contains(got, word) {
				t.Errorf("%s lacks %s: %v", name, word, got)
			}
		}
	}
	if got := Server(list[1].Server); got != "https://[fc00:f853:ccd:e793::2]:6443" {
		t.Errorf("server is %s", got)
	}
	if env := strings.Join(list[1].Environment(), " "); !strings.Contains(env, "OVN_SB_DB=tcp:[fc00:f853:ccd:e793::2]:6642") {
		t.Errorf("environment is %s", env)
	}
}

func TestIPv4OnlyListensOnIPv4(t *testing.T) {
	list := nodes(t, config.Cluster{IPFamily: config.FamilyIPv4})
	if got := unit(t, list[0], APIServer).Exec; !slices.Contains(got, "--bind-address=0.0.0.0") {
		t.Errorf("API server: %v", got)
	}
	started := unit(t, list[0], Southbound).Started
	if got := strings.Join(started[1], " "); got != "ovn-sbctl --inactivity-probe=60000 set-connection ptcp:6642:0.0.0.0" {
		t.Errorf("southbound: %s", got)
	}
}

func TestControllerIsHeldWhileTheSwitchStarts(t *testing.T) {
	u := unit(t, nodes(t, config.Cluster{})[1], VSwitch)
	if !slices.Equal(u.Freeze, []string{OVNController}) || len(u.Started) != 1 || u.Started[0][2] != hookRestrictDatapath {
		t.Errorf("got %+v", u)
	}
}

func TestDatapaths(t *testing.T) {
	for datapath, want := range map[string]struct {
		exec, setting string
		hooks         int
	}{
		config.DatapathUserspace: {"ovs-vswitchd --pidfile -vsyslog:off --disable-system", "external_ids:ovn-bridge-datapath-type=netdev", 2},
		config.DatapathKernel:    {"ovs-vswitchd --pidfile -vsyslog:off", "external_ids:ovn-bridge-datapath-type=system", 0},
	} {
		n := nodes(t, config.Cluster{Datapath: datapath})[1]
		u := unit(t, n, VSwitch)
		if got := strings.Join(u.Exec, " "); got != want.exec || len(u.Before)+len(u.Started) != want.hooks || len(u.Freeze) != want.hooks/2 {
			t.Errorf("%s: got %+v", datapath, u)
		}
		if got := unit(t, n, OVSDatabase).Started[1]; !slices.Contains(got, want.setting) {
			t.Errorf("%s: got %v", datapath, got)
		}
	}
}

func TestKubeletConfigurationCanBeOverridden(t *testing.T) {
	n := nodes(t, config.Cluster{Kubelet: config.Kubelet{Config: map[string]any{"maxPods": 20, "oomScoreAdj": -1}}})[0]
	files, err := n.Files()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(files[kubeletConfigFile], &got); err != nil {
		t.Fatal(err)
	}
	if got["maxPods"] != 20.0 || got["oomScoreAdj"] != -1.0 || got["cgroupDriver"] != "cgroupfs" {
		t.Errorf("got %v", got)
	}
	if !strings.Contains(string(files[containerdConfigFile]), `sandbox_image = "kin.local/pause:1"`) {
		t.Error("containerd does not use the pause image that kin builds")
	}
}

// TestAuditLog: if there is an audit policy, the API server gets it as a file, and writes a log.
func TestAuditLog(t *testing.T) {
	for _, policy := range []map[string]any{nil, {"rules": []any{map[string]any{"level": "Metadata"}}}} {
		list := nodes(t, config.Cluster{APIServer: config.APIServer{AuditPolicy: policy}})
		files, err := list[0].Files()
		if err != nil {
			t.Fatal(err)
		}
		const want = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"
		if got := string(files[auditPolicyFile]); got != want && policy != nil || got != "" && policy == nil {
			t.Errorf("with %v the policy is %q", policy, got)
		}
		if slices.Contains(unit(t, list[0], APIServer).Exec, "--audit-log-path="+AuditLog) != (policy != nil) {
			t.Errorf("with %v the API server runs as %v", policy, unit(t, list[0], APIServer).Exec)
		}
		if files, err = list[1].Files(); err != nil || files[auditPolicyFile] != nil {
			t.Errorf("a worker has the policy: %v", err)
		}
	}
}

// TestPodsAreNotUnits: programs that run as pods are not among a node's daemons, and the switch
// does not wait for them.
func TestPodsAreNotUnits(t *testing.T) {
	for _, n := range nodes(t, config.Cluster{Datapath: config.DatapathUserspace}) {
		n.Pods = true
		for _, u := range n.Units() {
			if slices.Contains([]string{Northbound, Southbound, Northd, OVNController, OvnkubeMaster, OvnkubeNode}, u.Name) {
				t.Errorf("%s runs %s", n.Name, u.Name)
			}
			if len(u.Freeze) > 0 {
				t.Errorf("%s of %s holds %v", u.Name, n.Name, u.Freeze)
			}
		}
		unit(t, n, VSwitch)
	}
}
