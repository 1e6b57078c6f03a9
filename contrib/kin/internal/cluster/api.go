package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// api is a minimal client of the API server.
type api struct {
	url    string
	client *http.Client
}

// api connects as the administrator, over this machine's loopback address.
func (c *Cluster) api() (*api, error) {
	pair, err := tls.LoadX509KeyPair(c.path(pkiDir, "admin.crt"), c.path(pkiDir, "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("load administrator's certificate: %w", err)
	}
	ca, err := os.ReadFile(c.path(pkiDir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("load authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("load authority: no certificate in ca.crt")
	}
	return &api{
		url: fmt.Sprintf("https://127.0.0.1:%d", c.Port),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
			DisableKeepAlives: true,
		}},
	}, nil
}

func (a *api) do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask API server: %w", err)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask API server: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read API server's answer: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(text))
	}
	return text, nil
}

// nodeState has the fields of a Node that kin reads.
type nodeState struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

// ready reports whether the node is ready, and if not, why.
func (n nodeState) ready() (bool, string) {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True", c.Message
		}
	}
	return false, "has not reported yet"
}

func (a *api) nodes(ctx context.Context) (map[string]nodeState, error) {
	text, err := a.do(ctx, http.MethodGet, "/api/v1/nodes", "", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []nodeState `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	byName := map[string]nodeState{}
	for _, n := range list.Items {
		byName[n.Metadata.Name] = n
	}
	return byName, nil
}

// label sets a label of a node; the kubelet may not set labels with this prefix.
func (a *api) label(ctx context.Context, node, key, value string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{key: value}}})
	if err != nil {
		return fmt.Errorf("encode label: %w", err)
	}
	_, err = a.do(ctx, http.MethodPatch, "/api/v1/nodes/"+node, "application/merge-patch+json", body)
	return err
}

// readyReplicas counts the pods of a Deployment that are ready.
func (a *api) readyReplicas(ctx context.Context, namespace, name string) (int, error) {
	text, err := a.do(ctx, http.MethodGet, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name, "", nil)
	if err != nil {
		return 0, err
	}
	var deployment struct {
		Status struct {
			ReadyReplicas int `json:"readyReplicas"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &deployment); err != nil {
		return 0, fmt.Errorf("read deployment: %w", err)
	}
	return deployment.Status.ReadyReplicas, nil
}
