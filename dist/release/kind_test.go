# Installation

This page describes the installation on a cluster that has no network yet. To try ovnkube on one machine, see [getting started](getting-started.md). A
cluster that runs with another network cannot be converted, with [one exception](operations.md#taking-over-a-cluster-from-ovn-kubernetes) that has not been tested on real clusters.

## Requirements

| what | needed | tested |
| --- | --- | --- |
| Kubernetes | 1.31 or newer: the schema of EgressIPs uses functions that the 1.30 API server does not have. The [admission policies](permissions.md) alone need 1.30 | 1.34.4. No other version; the expressions in the CRDs and the admission policies, compiled with the functions that each version from 1.28 to 1.35 has, are all accepted from 1.31 on |
| nodes | Linux | amd64. The binaries for arm64 are compiled and have not been run |
| OVN and Open vSwitch | those in the image; hosts need no packages. A host must not run an Open vSwitch of its own beside the DaemonSet `openvswitch`: both would use the same sockets and files | OVN 23.03.1 and Open vSwitch 3.1.0 of Debian 12. No other version |
| kernel | the modules `openvswitch` and `geneve`; connection tracking and NAT; iptables, as nftables or legacy, with the matches `addrtype`, `comment`, `conntrack`, `mark`, `sctp`, `statistic`, `tcp` and `udp`, and the targets `CONNMARK`, `DNAT`, `MARK`, `MASQUERADE`, `SNAT` and `TEE`; nftables, for ovnkube's own table. If nodes are to reset connections of pods that they no longer know: `nft_reject_inet`, `nft_limit` and `nft_fib_inet`, and Linux 5.9 where the gateway router translates | iptables, nftables, routes and rules of the kernel. Open vSwitch on the kernel's datapath, and with it the two modules: in a virtual machine, on a cluster of two nodes in each gateway mode; all other tests run it in user space. See the list in [development.md](development.md#the-kernels-datapath) |
| SELinux | the manifests give containers that are not privileged and use directories of the host the type `spc_t` of the policy `container-selinux`, since the kubelet does not label these directories; privileged containers need nothing | no host with SELinux, enforcing or not |
| container runtime | one that reads `/etc/cni/net.d` and `/opt/cni/bin`; for host ports of pods ([Services](services.md)) also the plugin `portmap` in that directory | containerd 1.6.20 |
| IP families | IPv4, IPv6, dual stack | dual stack in both gateway modes, IPv4 in shared and IPv6 in local mode. From the manifests: dual stack in shared mode |
| MTU | that of the nodes' network exceeds the MTU of pods by 58 bytes (tunnels over IPv4) or 78 (IPv6); a node with less is not set up | 1400 for pods on 1500 |
| labels | control-plane nodes have `node-role.kubernetes.io/control-plane` with an empty value: masters and databases run there | |
| absent | kube-proxy (ovnkube serves Services itself), and every other CNI plugin | |

The nodes reach each other at these ports; none of them has to be reachable from outside the cluster:

| port | where | what |
| --- | --- | --- |
| UDP 6081 | all nodes | Geneve tunnels |
| TCP 6641, 6643 | the node with the databases | northbound and southbound database for masters, with TLS; clients without a master's [certificate](certificates.md) are refused |
| TCP 6642 | the node with the databases | southbound database for nodes, with TLS; clients without a node's certificate are refused, and a node may write only its own rows |
| TCP 6644, 6645 | the nodes with the databases, where there are [three](high-availability.md) | traffic between the members of the databases, with TLS |
| TCP 9409 | nodes with a master | [metrics](monitoring.md#access), `/healthz`, `/readyz`, over TLS |
| TCP 9410 | all nodes | the same for the node's ovnkube |
| TCP 9413 | all nodes | requests of `ovnkube egress trace`, over TLS, from API servers and other nodes ([trace](trace.md)) |

Masters probe nodes at TCP port 9 of their management addresses, through the tunnels; a refused connection counts as an answer, so a firewall
of the host must not drop these packets. With `egressip-node-healthcheck-port` they probe that port instead.

On every node ovnkube moves the addresses and routes of the uplink, the interface of the default route, to a bridge (`br` and its name, for instance `breth0`), and
sets `net.ipv4.ip_forward`, IPv6 forwarding, and `net.ipv4.conf.all.send_redirects=0`. Programs that configure the uplink themselves, such as NetworkManager, systemd-networkd or a DHCP
client, have not been tested together with it. With `gateway-interface`, a bridge that you created is used as it is.

## The image

The image is not in a registry. `make image` builds it as root, without a container engine, and writes the OCI archive `_output/image.tar`, with the
name `ovnkube:latest`; a [release](release.md) has `ovnkube-image-linux-amd64.tar`. With Docker, `docker build -f dist/images/Dockerfile -t ovnkube:latest .`
builds one from the same packages; the tests do not cover that. Import the image on every node (`ctr -n k8s.io images import`), or push it to a registry of your own.

## What you have to edit

Put all your changes into an overlay of your own, beside a copy of this repository. Three things depend on your cluster: the image's name, the settings,
and the node with the databases. `my-cluster/kustomization.yaml`:

```yaml
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../ovnkube/dist/overlays/shared # or local: the gateway mode
images:
  - name: ovnkube
    newName: registry.example/network/ovnkube
    newTag: v0.1.0
patches:
  - path: config.yaml
  - path: databases.yaml
```

The certificates need no configuration: the cluster issues and renews them ([certificates.md](certificates.md)). Node names may have at most 64 characters.

`my-cluster/config.yaml` has the settings of all processes; [configuration.md](configuration.md) lists them. The pod and Service ranges must be those
that Kubernetes uses (`--cluster-cidr`, `--service-cluster-ip-range`), here for dual stack. For the API server, give the address of a node or of a load balancer in front of it: its
cluster address works only once ovnkube runs. Write IPv6 addresses in brackets.

```yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: ovnkube
  namespace: ovn-kubernetes
data:
  northbound: ssl:192.0.2.11:6641
  masters-southbound: ssl:192.0.2.11:6643
  ovnkube.conf: |
    [default]
    cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48/64
    mtu=1400
    [kubernetes]
    apiserver=https://192.0.2.10:6443
    service-cidrs=10.96.0.0/16,fd00:10:96::/112
    [ovnsouth]
    address=ssl:192.0.2.11:6642
    [gateway]
    nodeport=true
    [ovnkubernetesfeature]
    enable-egress-service=true
    enable-egress-ip=true
    enable-multi-external-gateway=true
```

Three masters and clustered databases, on three control-plane nodes, need one more line and more addresses: [high-availability.md](high-availability.md).

`my-cluster/databases.yaml` keeps the databases on the node with that address. Their files are in `/var/lib/ovn` on that node. A cluster with one control-plane node does not need this patch.

```yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: ovn-databases
  namespace: ovn-kubernetes
spec:
  template:
    spec:
      nodeSelector:
        kubernetes.io/hostname: control-plane-1
```

Without an overlay of your own, edit `dist/base/config.yaml`, or the file `ovnkube-shared.yaml` (or `ovnkube-local.yaml`) of a [release](release.md): replace `CONTROLPLANE` by the address of the
only control-plane node, and replace the two ranges. For three masters and clustered databases a release has `ovnkube-ha.yaml` and `ovnkube-ha-local.yaml`: replace `MEMBER1`, `MEMBER2` and `MEMBER3` by the addresses of the three control-plane nodes, and `CONTROLPLANE` in
the address of the API server by one that survives the loss of a node. If you use a namespace other than `ovn-kubernetes`, also change it in the settings (`ovn-config-namespace` in section `[kubernetes]`), in the [admission policies](permissions.md), in the arguments of `ovnkube-pki`, and in those of the container `prepare` of [clustered databases](high-availability.md) (`--namespace`); `ovnkube egress` then needs `--system-namespace`.

## Install

    kubectl apply -f ovnkube/dist/crds
    kubectl apply -k my-cluster
    kubectl wait --for=condition=Ready nodes --all --timeout=5m

The file of a release has the definitions as well: `kubectl apply -f ovnkube-shared.yaml` replaces the first two commands.

A node becomes Ready when its network is. Pods that another network attached before have to be re-created. If a node does not become Ready:

    kubectl -n ovn-kubernetes get pods -o wide
    kubectl -n ovn-kubernetes logs daemonset/ovnkube-node
    kubectl -n ovn-kubernetes logs daemonset/ovnkube-node -c certificate; kubectl get csr

[`/readyz?verbose`](operations.md#health-checks) of a node says what it waits for.

`kubectl apply -k ovnkube/dist/monitoring` adds [alerts and a dashboard](monitoring.md) if the cluster has the Prometheus Operator.
Continue with [operations](operations.md).

## What is tested

The end-to-end tests install the manifests and the image of `make image` on kin (`kin create cluster`), use an EgressService, an
EgressIP and external gateways there, also on clusters with only IPv4 or IPv6, try to access the databases from a pod, and restart each workload but the DaemonSet `openvswitch`: the nodes of kin run the switch themselves. The API server of kin accepts the overlays. A separate test continues with [three masters and clustered databases](high-availability.md#what-is-tested). Tests render the overlay above and
have ovnkube parse its settings. The manifests have not been installed on a cluster of real machines yet. `contrib/kind.sh` does all of the above on a
[kind](https://kind.sigs.k8s.io) cluster; that has not been run either, see [development.md](development.md#hosted-ci).
