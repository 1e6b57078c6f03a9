package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/machine"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/pki"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
)

// masters is the group with all permissions.
const masters = "system:masters"

// certify creates the authority, the administrator's kubeconfig and, on the nodes' disks,
// the certificates of all nodes.
func (c *Cluster) certify() error {
	ca, err := pki.NewAuthority("kin-" + c.name)
	if err != nil {
		return err
	}
	if err := ca.Save(c.path(pkiDir)); err != nil {
		return err
	}
	admin, err := ca.Issue(pki.Subject{Name: "kin-admin", Groups: []string{masters}})
	if err != nil {
		return err
	}
	if err := admin.Save(c.path(pkiDir), "admin"); err != nil {
		return err
	}
	outside := ca.Kubeconfig("kin-"+c.name, fmt.Sprintf("https://127.0.0.1:%d", c.Port), admin)
	if err := os.WriteFile(c.KubeconfigPath(), outside, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	nodes := c.Nodes()
	for _, n := range nodes {
		if err := c.certifyNode(ca, admin, nodes[0], n); err != nil {
			return fmt.Errorf("certify %s: %w", n.Name, err)
		}
	}
	return c.certifyControlPlane(ca, nodes[0])
}

// certifyNode creates the certificates that every node has.
func (c *Cluster) certifyNode(ca *pki.Authority, admin pki.Pair, server, n plan.Node) error {
	etc := etcKubernetes(c.Machine(n.Name))
	addresses := append(n.AddrList(), netip.MustParseAddr("127.0.0.1"))
	kubelet, err := ca.Issue(pki.Subject{
		Name: "system:node:" + n.Name, Groups: []string{"system:nodes"}, DNS: []string{n.Name}, Addresses: addresses,
	})
	if err != nil {
		return err
	}
	dir := filepath.Join(etc, "pki")
	if err := kubelet.Save(dir, "kubelet"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca.PEM(), 0o644); err != nil {
		return fmt.Errorf("write authority: %w", err)
	}
	for name, pair := range map[string]pki.Pair{"kubelet": kubelet, "admin": admin} {
		if err := writeKubeconfig(ca, etc, name, server, pair); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) certifyControlPlane(ca *pki.Authority, n plan.Node) error {
	etc := etcKubernetes(c.Machine(n.Name))
	dir := filepath.Join(etc, "pki")
	if err := ca.Save(dir); err != nil {
		return err
	}
	addresses := append(n.AddrList(), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	for _, subnet := range c.Config.ServiceSubnets() {
		addresses = append(addresses, plan.Host(subnet, 1).Addr())
	}
	server, err := ca.Issue(pki.Subject{Name: component.APIServer, Addresses: addresses, DNS: []string{
		"localhost", n.Name, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}})
	if err != nil {
		return err
	}
	if err := server.Save(dir, "apiserver"); err != nil {
		return err
	}
	client, err := ca.Issue(pki.Subject{Name: "kube-apiserver-kubelet-client", Groups: []string{masters}})
	if err != nil {
		return err
	}
	if err := client.Save(dir, "apiserver-kubelet"); err != nil {
		return err
	}
	for name, user := range map[string]string{
		"controller-manager": "system:kube-controller-manager", "scheduler": "system:kube-scheduler",
	} {
		pair, err := ca.Issue(pki.Subject{Name: user})
		if err != nil {
			return err
		}
		if err := writeKubeconfig(ca, etc, name, n, pair); err != nil {
			return err
		}
	}
	private, public, err := pki.SigningKey()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"sa.key": private, "sa.pub": public} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("write signing key: %w", err)
		}
	}
	return nil
}

func writeKubeconfig(ca *pki.Authority, etc, name string, server plan.Node, pair pki.Pair) error {
	text := ca.Kubeconfig(name, component.Server(server), pair)
	if err := os.WriteFile(filepath.Join(etc, name+".conf"), text, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", name, err)
	}
	return nil
}

func etcKubernetes(d machine.Dir) string { return filepath.Join(d.Disk(), "etc/kubernetes") }
