package plane

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	etcdURL = "http://127.0.0.1:2379"
	apiPort = "6443"
	apiURL  = "https://127.0.0.1:" + apiPort

	// masterUser is the user of the masters, whose writes are counted, agentUser that of the node
	// agent, whose requests are counted, and harnessUser that of everything else.
	masterUser, agentUser, harnessUser = "ovnkube", "ovnkube-node", "scale"
)

// auditPolicy makes the API server log the masters' writes and all requests of the agent.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [` + masterUser + `]
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  users: [` + agentUser + `]
- level: None
`

// startKubernetes runs etcd and the API server. etcd does not sync to disk.
func (p *Plane) startKubernetes(ctx context.Context) error {
	program := filepath.Join(p.config.KubernetesDir, "kin-kubernetes")
	data := cmp.Or(p.config.EtcdDir, p.path("etcd"))
	etcd, err := p.start("etcd", program, "etcd", "--name=scale", "--data-dir="+data, "--unsafe-no-fsync",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL, "--listen-peer-urls=http://127.0.0.1:2380",
		"--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=scale=http://127.0.0.1:2380",
		"--quota-backend-bytes=8589934592", "--log-level=warn")
	if err != nil {
		return err
	}
	if err := etcd.ready(ctx, func() error { return answers(ctx, etcdURL+"/health") }); err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make the key of service accounts: %w", err)
	}
	for name, text := range map[string]string{
		"audit.yaml": auditPolicy,
		"tokens.csv": fmt.Sprintf("%[1]s,%[1]s,1,system:masters\n%[2]s,%[2]s,2,system:masters\n%[3]s,%[3]s,3,system:masters\n", masterUser, harnessUser, agentUser),
		"sa.key":     string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	} {
		if err := os.WriteFile(p.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	api, err := p.start("kube-apiserver", program, "kube-apiserver",
		// The agent is in a network namespace of its own.
		"--bind-address=0.0.0.0", "--advertise-address=127.0.0.1", "--secure-port=6443", "--cert-dir="+p.path("certificates"),
		"--etcd-servers="+etcdURL, "--service-cluster-ip-range="+p.config.ServiceRange.String(),
		"--authorization-mode=AlwaysAllow", "--token-auth-file="+p.path("tokens.csv"),
		// No controller creates service accounts for namespaces, or removes the taints of nodes.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+p.path("sa.key"),
		"--service-account-signing-key-file="+p.path("sa.key"),
		"--audit-policy-file="+p.path("audit.yaml"), "--audit-log-path="+p.path("audit.log"), "--audit-log-maxsize=10000",
		// The harness creates objects as fast as it can.
		"--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0")
	if err != nil {
		return err
	}
	if err := api.ready(ctx, func() error { return answers(ctx, apiURL+"/readyz") }); err != nil {
		return err
	}
	return p.writeKubeconfig("kubeconfig", apiURL, masterUser)
}

// insecure is a client for our own servers, whose certificates are self-signed.
var insecure = &http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	Timeout:   time.Minute,
}

func answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+harnessUser)
	response, err := insecure.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// writeKubeconfig writes a kubeconfig for a user of the API server.
func (p *Plane) writeKubeconfig(name, server, user string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["scale"] = &clientcmdapi.Cluster{Server: server, InsecureSkipTLSVerify: true}
	c.AuthInfos["scale"] = &clientcmdapi.AuthInfo{Token: user}
	c.Contexts["scale"] = &clientcmdapi.Context{Cluster: "scale", AuthInfo: "scale"}
	c.CurrentContext = "scale"
	return clientcmd.WriteToFile(*c, p.path(name))
}

// REST returns the harness's client configuration for the API server, without rate limits.
func (p *Plane) REST() *rest.Config {
	return &rest.Config{Host: apiURL, BearerToken: harnessUser, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}
