package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

const (
	// requestRate and requestBurst limit the requests to the API server, per second. They only
	// guard against runaway programs: the requests for a failover of hundreds of EgressServices or
	// for a thousand new pods must not wait, and if they are too much for the server, its own
	// priority and fairness throttles them.
	requestRate  = 1000
	requestBurst = 2000

	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// restConfig returns how to reach the API server: by the kubeconfig if there is one, else at the
// configured server, else as the pod's service account. A server without credentials gets those of
// the service account in dir, if any.
func restConfig(k config.Kubernetes, dir string) (*rest.Config, error) {
	var (
		rc  *rest.Config
		err error
	)
	switch {
	case k.Kubeconfig != "":
		if rc, err = clientcmd.BuildConfigFromFlags("", k.Kubeconfig); err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", k.Kubeconfig, err)
		}
	case k.APIServer != "":
		rc = &rest.Config{Host: k.APIServer, BearerToken: k.Token, BearerTokenFile: k.TokenFile}
		rc.CAFile = k.CACert
		if k.Token == "" && k.TokenFile == "" {
			rc.BearerTokenFile = existing(filepath.Join(dir, "token"))
		}
		if k.CACert == "" {
			rc.CAFile = existing(filepath.Join(dir, "ca.crt"))
		}
	default:
		if rc, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("find the API server (no --k8s-kubeconfig, no --k8s-apiserver): %w", err)
		}
	}
	rc.QPS, rc.Burst = requestRate, requestBurst
	rc.UserAgent = "ovnkube/" + version.Get().Version
	kube.NoticeOutages(rc)
	kube.RetryInformers(rc)
	return rc, nil
}

// Kube returns an API server client for a command that is neither a master nor a node.
func Kube(k config.Kubernetes) (kubernetes.Interface, error) {
	rc, err := restConfig(k, serviceAccountDir)
	if err != nil {
		return nil, err
	}
	web, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("make the client of the API server: %w", err)
	}
	return kubeClient(rc, web)
}

// existing returns path if that file exists, else "".
func existing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// kubeClient returns the client for the built-in kinds, which sends its requests with web.
func kubeClient(rc *rest.Config, web *http.Client) (kubernetes.Interface, error) {
	cs, err := kubernetes.NewForConfigAndClient(kube.Protobuf(rc), web)
	if err != nil {
		return nil, fmt.Errorf("make the client of the API server: %w", err)
	}
	return cs, nil
}
