package component

import (
	"fmt"
	"maps"

	"sigs.k8s.io/yaml"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// AuditLog is the audit log of the API server, if it is configured to write one.
const AuditLog = "/var/log/kubernetes/audit.log"

const etcdURL = "http://127.0.0.1:2379"

// etcd does not sync to disk: what it has written survives the node's power
// failure in the page cache of the machine that kin runs on.
func (n Node) etcd() supervise.Unit {
	const peer = "http://127.0.0.1:2380"
	return supervise.Unit{
		Name: Etcd,
		Exec: []string{Etcd,
			"--name=" + n.Name, "--data-dir=/var/lib/etcd", "--unsafe-no-fsync",
			"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + n.Name + "=" + peer, "--log-level=warn",
		},
		Ready: &supervise.Probe{HTTP: etcdURL + "/health"},
	}
}

func (n Node) apiServer() supervise.Unit {
	args := []string{APIServer,
		"--advertise-address=" + n.Primary().String(),
		"--bind-address=" + n.anyAddress(),
		fmt.Sprintf("--secure-port=%d", plan.APIServerPort),
		"--etcd-servers=" + etcdURL,
		"--service-cluster-ip-range=" + joined(n.Config.ServiceSubnets()),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + pkiDir + "/ca.crt",
		"--tls-cert-file=" + pkiDir + "/apiserver.crt",
		"--tls-private-key-file=" + pkiDir + "/apiserver.key",
		"--kubelet-certificate-authority=" + pkiDir + "/ca.crt",
		"--kubelet-client-certificate=" + pkiDir + "/apiserver-kubelet.crt",
		"--kubelet-client-key=" + pkiDir + "/apiserver-kubelet.key",
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pkiDir + "/sa.pub",
		"--service-account-signing-key-file=" + pkiDir + "/sa.key",
	}
	if len(n.Config.APIServer.AuditPolicy) > 0 {
		args = append(args, "--audit-policy-file="+auditPolicyFile, "--audit-log-path="+AuditLog)
	}
	return supervise.Unit{
		Name:  APIServer,
		Exec:  append(args, n.Config.APIServer.ExtraArgs...),
		After: []string{Etcd},
		Ready: &supervise.Probe{HTTP: fmt.Sprintf("https://127.0.0.1:%d/readyz", plan.APIServerPort)},
	}
}

// controllerManager does not allocate pod subnets, which ovnkube does.
func (n Node) controllerManager() supervise.Unit {
	args := []string{ControllerManager,
		"--kubeconfig=/etc/kubernetes/controller-manager.conf",
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--allocate-node-cidrs=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + pkiDir + "/sa.key",
		"--root-ca-file=" + pkiDir + "/ca.crt",
		"--cluster-signing-cert-file=" + pkiDir + "/ca.crt",
		"--cluster-signing-key-file=" + pkiDir + "/ca.key",
	}
	return supervise.Unit{
		Name:  ControllerManager,
		Exec:  append(args, n.Config.ControllerManager.ExtraArgs...),
		After: []string{APIServer},
		Ready: &supervise.Probe{HTTP: "https://127.0.0.1:10257/healthz"},
	}
}

func (n Node) scheduler() supervise.Unit {
	args := []string{Scheduler,
		"--kubeconfig=/etc/kubernetes/scheduler.conf",
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
	}
	return supervise.Unit{
		Name:  Scheduler,
		Exec:  append(args, n.Config.Scheduler.ExtraArgs...),
		After: []string{APIServer},
		Ready: &supervise.Probe{HTTP: "https://127.0.0.1:10259/healthz"},
	}
}

func (n Node) kubelet() supervise.Unit {
	args := []string{Kubelet,
		"--config=" + kubeletConfigFile,
		"--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--hostname-override=" + n.Name,
		"--node-ip=" + addrs(n.AddrList()),
	}
	return supervise.Unit{
		Name:   Kubelet,
		Before: [][]string{n.await()},
		Exec:   append(args, n.Config.Kubelet.ExtraArgs...),
		After:  []string{Containerd},
		Ready:  &supervise.Probe{HTTP: "http://127.0.0.1:10248/healthz"},
	}
}

const (
	auditPolicyFile      = "/etc/kubernetes/audit.yaml"
	kubeletConfigFile    = "/var/lib/kubelet/config.yaml"
	containerdConfigFile = "/etc/containerd/config.toml"
	containerdSocket     = "/run/containerd/containerd.sock"
)

// The images kin builds.
const (
	PauseImage   = "kin.local/pause:1"
	AgnhostImage = "kin.local/agnhost:1"
	CoreDNSImage = "kin.local/coredns:1"
)

// kubeletConfig disables what a kubelet in namespaces cannot or must
// not do: manage control groups above its pods, or evict pods because of the disk, which all
// nodes share.
func (n Node) kubeletConfig() ([]byte, error) {
	full := map[string]string{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"}
	settings := map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": pkiDir + "/ca.crt"},
		},
		"authorization":                 map[string]any{"mode": "Webhook"},
		"tlsCertFile":                   pkiDir + "/kubelet.crt",
		"tlsPrivateKeyFile":             pkiDir + "/kubelet.key",
		"cgroupDriver":                  "cgroupfs",
		"cgroupsPerQOS":                 false,
		"enforceNodeAllocatable":        []string{},
		"failCgroupV1":                  false,
		"failSwapOn":                    false,
		"localStorageCapacityIsolation": false,
		"evictionHard":                  full,
		"imageGCHighThresholdPercent":   100,
		"oomScoreAdj":                   0,
		"volumePluginDir":               "/var/lib/kubelet/volume-plugins",
		"clusterDomain":                 clusterDomain,
		"clusterDNS":                    DNSAddresses(n.Config),
		"serializeImagePulls":           false,
		"nodeStatusReportFrequency":     "1m",
	}
	maps.Copy(settings, n.Config.Kubelet.Config)
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("encode kubelet configuration: %w", err)
	}
	return text, nil
}

func (n Node) containerd() supervise.Unit {
	return supervise.Unit{
		Name:  Containerd,
		Exec:  []string{Containerd, "--config=" + containerdConfigFile, "--log-level=warn"},
		Ready: &supervise.Probe{Exec: []string{"ctr", "--address=" + containerdSocket, "version"}},
	}
}

// containerdConfig: oom scores cannot be lowered without CAP_SYS_RESOURCE.
func containerdConfig() []byte {
	return fmt.Appendf(nil, `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing"]
oom_score = 0

[grpc]
  address = %[1]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[2]q
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_selinux = false
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
  conf_dir = "/etc/cni/net.d"
  max_conf_num = 1

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
`, containerdSocket, PauseImage)
}

// Files are the configuration files of the node, by path.
func (n Node) Files() (map[string][]byte, error) {
	kubelet, err := n.kubeletConfig()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		kubeletConfigFile:    kubelet,
		containerdConfigFile: containerdConfig(),
		// The tools of containerd look here for the same socket.
		"/etc/crictl.yaml": []byte("runtime-endpoint: unix://" + containerdSocket + "\n"),
	}
	if n.ControlPlane() && len(n.Config.APIServer.AuditPolicy) > 0 {
		policy := map[string]any{"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
		maps.Copy(policy, n.Config.APIServer.AuditPolicy)
		if files[auditPolicyFile], err = yaml.Marshal(policy); err != nil {
			return nil, fmt.Errorf("encode audit policy: %w", err)
		}
	}
	return files, nil
}

// ImportImage is the command that reads an image archive from standard input.
func ImportImage() []string {
	return []string{"ctr", "--address=" + containerdSocket, "--namespace=k8s.io", "images", "import", "-"}
}
