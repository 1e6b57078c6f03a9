package component

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// The service accounts of ovnkube, as in dist/base/rbac.yaml.
const (
	accountNamespace = "ovn-kubernetes"
	masterAccount    = "ovnkube-master"
	nodeAccount      = "ovnkube-node"
)

const (
	// tokenLifetime outlasts any cluster of this kind.
	tokenLifetime = 10 * 365 * 24 * time.Hour
	// accountPatience is how long to wait for the account and the node to exist.
	accountPatience = 2 * time.Minute
	// oldTokenPatience is how long to wait for a server that does not answer if
	// there is an earlier token.
	oldTokenPatience = 20 * time.Second
)

// accountKubeconfig is the path of a service account's kubeconfig.
func accountKubeconfig(account string) string { return "/etc/kubernetes/" + account + ".conf" }

// account is the step that requests a token for a daemon, as the kubelet does for
// pods: if a node is given, the token is bound to it, and tells the API server the node's
// name. It waits for the account and the node.
func (n Node) account(name, node string) []string {
	return hook(hookAccount, name, node, AdminKubeconfig, accountKubeconfig(name))
}

// noNode requests a token that is bound to no node.
const noNode = "-"

// kubeconfig has the fields of a kubeconfig that kin reads and writes.
type kubeconfig struct {
	APIVersion     string `json:"apiVersion"`
	Kind           string `json:"kind"`
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server string `json:"server"`
			CA     []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User struct {
			Cert  []byte `json:"client-certificate-data,omitempty"`
			Key   []byte `json:"client-key-data,omitempty"`
			Token string `json:"token,omitempty"`
		} `json:"user"`
	} `json:"users"`
}

// getAccount writes the kubeconfig of a service account: ACCOUNT NODE ADMIN FILE.
func getAccount(ctx context.Context, args []string) error {
	name, node, adminFile, file := args[0], args[1], args[2], args[3]
	text, err := os.ReadFile(adminFile)
	if err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	var config kubeconfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	if len(config.Clusters) != 1 || len(config.Users) != 1 {
		return errors.New("read the administrator's kubeconfig: not one cluster and one user")
	}
	client, err := config.client()
	if err != nil {
		return err
	}
	_, err = os.Stat(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for %s: %w", file, err)
	}
	token, err := awaitToken(ctx, client, config.Clusters[0].Cluster.Server, name, node, err == nil)
	if err != nil || token == "" {
		return err
	}
	config.Users[0].User.Cert, config.Users[0].User.Key, config.Users[0].User.Token = nil, nil, token
	if text, err = yaml.Marshal(config); err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	// Write the file atomically, since the node may lose power.
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	return nil
}

func (k kubeconfig) client() (*http.Client, error) {
	pair, err := tls.X509KeyPair(k.Users[0].User.Cert, k.Users[0].User.Key)
	if err != nil {
		return nil, fmt.Errorf("load the administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(k.Clusters[0].Cluster.CA) {
		return nil, errors.New("load authority: no certificate in the administrator's kubeconfig")
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}}, nil
}

// errAnswer means that the server answered, but not with a token, because the account or
// the node does not exist yet.
var errAnswer = errors.New("API server refuses")

// awaitToken returns an empty token if the server does not answer and there is
// an earlier token.
func awaitToken(ctx context.Context, client *http.Client, server, account, node string, before bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, accountPatience)
	defer cancel()
	silence := time.NewTimer(oldTokenPatience)
	defer silence.Stop()
	for {
		token, err := requestToken(ctx, client, server, account, node)
		if err == nil {
			return token, nil
		}
		select {
		case <-silence.C:
			if before && !errors.Is(err, errAnswer) {
				fmt.Fprintf(os.Stderr, "kin: going on with the token that is there: %v\n", err)
				return "", nil
			}
		default:
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return "", fmt.Errorf("no token of service account %s after %s: %w", account, accountPatience, err)
		}
	}
}

func requestToken(ctx context.Context, client *http.Client, server, account, node string) (string, error) {
	spec := map[string]any{"expirationSeconds": int(tokenLifetime.Seconds())}
	if node != noNode {
		spec["boundObjectRef"] = map[string]string{"apiVersion": "v1", "kind": "Node", "name": node}
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/serviceaccounts/%s/token", server, accountNamespace, account)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("ask API server: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask API server: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read API server's answer: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return "", fmt.Errorf("%w: %s: %s", errAnswer, response.Status, bytes.TrimSpace(text))
	}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", fmt.Errorf("read API server's answer: %w", err)
	}
	if answer.Status.Token == "" {
		return "", errors.New("API server's answer has no token")
	}
	return answer.Status.Token, nil
}
