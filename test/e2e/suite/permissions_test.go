package suite

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// request is what an API server logged, with kin's setting of logRequests.
var request = regexp.MustCompile(`verb="([A-Z]+)" URI="([^"]+)".* userAgent="ovnkube/.* srcIP="([^"]+)"`)

// permissions checks the roles in dist against what ovnkube really asked for. In
// kin clusters it may do everything, so what its roles lack would not show.
func (s *suite) permissions(t *testing.T) {
	roles := filepath.Join("..", "..", "..", "dist", "base", "rbac.yaml")
	if _, err := lab.Run(t.Context(), append(s.Kubectl(), "apply", "-f", roles)...); err != nil {
		t.Fatal(err)
	}
	log, err := s.Kin.Logs(t.Context(), lab.ControlPlane, "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	controlPlane, err := s.NodeAddresses(t.Context(), lab.ControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	// On the control plane run both, and the log does not tell which asked.
	asked := map[authorizationv1.ResourceAttributes][]string{}
	for line := range strings.Lines(log) {
		found := request.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		what, err := attributes(found[1], found[2])
		if err != nil {
			t.Fatal(err)
		}
		from, err := netip.ParseAddrPort(found[3])
		if err != nil {
			t.Fatal(err)
		}
		accounts := []string{"ovnkube-node"}
		if slices.Contains(controlPlane, from.Addr().Unmap()) {
			accounts = []string{"ovnkube-node", "ovnkube-master"}
		}
		if had, known := asked[what]; !known || len(accounts) < len(had) {
			asked[what] = accounts
		}
	}
	// The lease has a namespace in dist; in kin, ovnkube makes one.
	delete(asked, authorizationv1.ResourceAttributes{Verb: "create", Resource: "namespaces"})
	if len(asked) < 10 {
		t.Fatalf("the log shows only %d kinds of requests: %v", len(asked), asked)
	}
	for what, accounts := range asked {
		if !slices.ContainsFunc(accounts, func(account string) bool { return s.may(t, account, what) }) {
			t.Errorf("none of %v may %s %s %s/%s in namespace %q", accounts, what.Verb, what.Group, what.Resource, what.Subresource, what.Namespace)
		}
	}
}

// may asks the API server whether a service account is allowed something.
func (s *suite) may(t *testing.T, account string, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:ovn-kubernetes:" + account, ResourceAttributes: &what,
	}}
	review, err := s.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// attributes tells what a request is about, without the object's name:
// /api/VERSION/... or /apis/GROUP/VERSION/..., then [namespaces/NAMESPACE/]
// RESOURCE[/NAME[/SUBRESOURCE]].
func attributes(verb, uri string) (authorizationv1.ResourceAttributes, error) {
	a := authorizationv1.ResourceAttributes{Verb: strings.ToLower(verb)}
	parsed, err := url.Parse(uri)
	if err != nil {
		return a, err
	}
	parts := strings.Split(strings.Trim(parsed.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		a.Group, parts = parts[1], parts[3:]
	default:
		return a, fmt.Errorf("path %s is not about a resource", parsed.Path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		a.Namespace, parts = parts[1], parts[2:]
	}
	a.Resource = parts[0]
	if len(parts) > 2 {
		a.Subresource = parts[2]
	}
	switch {
	case a.Verb == "post":
		a.Verb = "create"
	case a.Verb == "put":
		a.Verb = "update"
	case a.Verb == "get" && len(parts) == 1:
		a.Verb = "list"
		if w := parsed.Query().Get("watch"); w == "true" || w == "1" {
			a.Verb = "watch"
		}
	}
	return a, nil
}
