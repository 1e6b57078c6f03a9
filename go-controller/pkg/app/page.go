package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/authn"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	"github.com/ovnkube/ovnkube/go-controller/pkg/page"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
)

const (
	// pagePath is the non-resource path for which users of a master's page need permission.
	pagePath = "/egress"
	// pageAge is how old the data of the page may be: generating it reads all objects.
	pageAge = 10 * time.Second
	// pageTimeout is the timeout for reading them.
	pageTimeout = 30 * time.Second
)

// pageServer returns the server of the egress map, or nil if it is disabled. Every master serves
// it, even if it does not lead: the page shows what the API server has.
func pageServer(env *Env) (*server, error) {
	cfg := env.Config
	if cfg.Page.BindAddress == "" {
		return nil, nil
	}
	clients, err := reader.NewClients(env.REST)
	if err != nil {
		return nil, fmt.Errorf("make clients for the egress page: %w", err)
	}
	return newServer("--egress-page-bind-address", cfg.Page.BindAddress, pageHandler(env, clients), certificateFiles(cfg.Page.Key, cfg.Page.Cert))
}

func pageHandler(env *Env, clients reader.Clients) http.Handler {
	reviews := authn.New(clients.Kube)
	return page.New(page.Config{
		Read: func(ctx context.Context) (page.Facts, error) {
			ctx, cancel := context.WithTimeout(ctx, pageTimeout)
			defer cancel()
			return page.Read(ctx, clients, env.Config.Kubernetes.ConfigNamespace, pageSettings(env), time.Now)
		},
		Allow:  func(r *http.Request) error { return mayGetPage(r, reviews) },
		MaxAge: pageAge, Now: time.Now,
	})
}

// pageSettings returns the settings of this master, which also knows the addresses of an API server that it is told by name.
func pageSettings(env *Env) reader.Settings {
	return func(context.Context, kubernetes.Interface, string) (explain.Settings, string, error) {
		s := reader.SettingsOf(env.Config)
		if env.APIServers != nil {
			s.APIServers = reservedsnapshot.ConfiguredAPIServers(env.APIServers)
		}
		return s, "", nil
	}
}

// mayGetPage checks with the API server whose token a request has, and whether that user may see
// the page.
func mayGetPage(r *http.Request, reviews *authn.Reviewer) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return fmt.Errorf("%w: send a token of the API server, as kubectl create token prints it", page.ErrUnauthenticated)
	}
	_, err := reviews.Review(r.Context(), token, authn.Access{Verb: "get", Path: pagePath})
	switch {
	case errors.Is(err, authn.ErrUnauthenticated):
		return fmt.Errorf("%w: the API server does not know the token", page.ErrUnauthenticated)
	case errors.Is(err, authn.ErrForbidden):
		return fmt.Errorf("%w: %w", page.ErrForbidden, err)
	case err != nil:
		klog.ErrorS(err, "Cannot authenticate a request for the egress page")
		return errors.New("cannot tell whether you may see the page: the API server does not answer")
	}
	return nil
}
