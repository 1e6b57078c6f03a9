package suite

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// request matches a request logged by an API server, with kin's setting of logRequests.
var request = regexp.MustCompile(`verb="([A-Z]+)" URI="([^"]+)".* userAgent="ovnkube/.* srcIP="([^"]+)".* resp=(\d+)`)

// permissions checks what ovnkube requested in all that happened to the cluster: it runs with the
// accounts, roles and admission policies in dist, and none of its requests may have been refused.
func (s *suite) permissions(t *testing.T) {
	log, err := s.Logs(t.Context(), lab.ControlPlane, "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	asked := map[what]bool{}
	refused := map[string]int{}
	ready := false // an API server that starts refuses everything until it has read the roles
	for line := range strings.Lines(log) {
		switch {
		case strings.Contains(line, "] Version: "):
			ready = false
		case strings.Contains(line, ` URI="/readyz" `) && strings.Contains(line, " resp=200"):
			ready = true
		}
		found := request.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		a, err := attributes(found[1], found[2])
		if err != nil {
			t.Fatal(err)
		}
		asked[a] = true
		if ready && (found[4] == "401" || found[4] == "403") {
			refused[fmt.Sprintf("%s %s from %s: %s", found[1], found[2], found[3], found[4])]++
		}
	}
	for text, times := range refused {
		t.Errorf("%s (%d times)", text, times)
	}
	// If nothing were parsed from the log, nothing would be found refused.
	for _, a := range []what{
		{verb: "patch", resource: "nodes"}, {verb: "patch", resource: "nodes", subresource: "status"}, {verb: "list", resource: "services"},
		{verb: "create", group: "coordination.k8s.io", resource: "leases", namespace: "ovn-kubernetes"},
	} {
		if !asked[a] {
			t.Errorf("the log does not show that ovnkube asked to %s %s/%s", a.verb, a.resource, a.subresource)
		}
	}
	t.Logf("%d kinds of requests", len(asked))
}

// what is a kind of request.
type what struct{ verb, group, resource, subresource, namespace string }

// attributes returns what a request is about, without the object's name. The URI is
// /api/VERSION/... or /apis/GROUP/VERSION/..., followed by
// [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func attributes(verb, uri string) (what, error) {
	a := what{verb: strings.ToLower(verb)}
	parsed, err := url.Parse(uri)
	if err != nil {
		return a, err
	}
	parts := strings.Split(strings.Trim(parsed.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		a.group, parts = parts[1], parts[3:]
	default:
		return a, fmt.Errorf("path %s is not about a resource", parsed.Path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		a.namespace, parts = parts[1], parts[2:]
	}
	a.resource = parts[0]
	if len(parts) > 2 {
		a.subresource = parts[2]
	}
	switch {
	case a.verb == "post":
		a.verb = "create"
	case a.verb == "put":
		a.verb = "update"
	case a.verb == "get" && len(parts) == 1:
		a.verb = "list"
		if w := parsed.Query().Get("watch"); w == "true" || w == "1" {
			a.verb = "watch"
		}
	}
	return a, nil
}
