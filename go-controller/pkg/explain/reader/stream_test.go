package reader

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// anItem returns an EgressIP as stored by an API server.
func anItem(name string) string {
	return fmt.Sprintf(`{"apiVersion":"k8s.ovn.org/v1","kind":"EgressIP","metadata":{"name":%q,"uid":"u-%[1]s","resourceVersion":"7","generation":3,
		"creationTimestamp":"2026-03-01T11:00:00Z","labels":{"team":"<shop> \u00e9"},"managedFields":[{"manager":"ovnkube","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},
		"spec":{"egressIPs":["172.18.0.33","fd00::33"],"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b","c"]}]},"podSelector":{}},
		"status":{"items":[{"node":"n1","egressIP":"172.18.0.33"}],"programmed":[{"node":"n1","egressIPs":["172.18.0.33"]}],
		"conditions":[{"type":"Assigned","status":"True","reason":"Assigned","message":"","observedGeneration":3,"lastTransitionTime":"2026-03-01T11:55:00Z"}]},
		"unknown":{"items":[1,{"metadata":{"continue":"no"}}]}}`, name)
}

// lister returns clients whose requests f answers.
func lister(t *testing.T, f http.HandlerFunc) Clients {
	t.Helper()
	web := httptest.NewServer(f)
	t.Cleanup(web.Close)
	c, err := NewClients(&rest.Config{Host: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func egressIPsOf(t *testing.T, c Clients) (all []*ipv1.EgressIP, err error) {
	t.Helper()
	err = listEgressIPs(t.Context(), c, func(e *ipv1.EgressIP) { all = append(all, e) })
	return all, err
}

// TestEgressIPsAsListed: objects decoded while they arrive equal those decoded by the client of the kind, except
// for managed fields.
func TestEgressIPsAsListed(t *testing.T) {
	items := []string{anItem("a"), anItem("b"), `{"metadata":{"name":"c","creationTimestamp":null},"spec":{"egressIPs":null,"namespaceSelector":{}}}`}
	for name, body := range map[string]string{
		"metadata last":  `{"apiVersion":"k8s.ovn.org/v1","items":[` + strings.Join(items, ",") + `],"kind":"EgressIPList","metadata":{"continue":"","resourceVersion":"9"}}` + "\n",
		"metadata first": `{"kind":"EgressIPList","apiVersion":"k8s.ovn.org/v1","metadata":{"resourceVersion":"9"},"items":[` + strings.Join(items, ",") + `]}`,
		"none":           `{"kind":"EgressIPList","apiVersion":"k8s.ovn.org/v1","metadata":{"resourceVersion":"9"},"items":[]}`,
		"null":           `{"kind":"EgressIPList","apiVersion":"k8s.ovn.org/v1","metadata":{"resourceVersion":"9"},"items":null}`,
	} {
		c := lister(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
		l, err := c.IPs.EgressIPV1().EgressIPs().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := grow([]*ipv1.EgressIP(nil), l.Items)
		if got, err := egressIPsOf(t, c); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v and %v, want %v", name, got, err, want)
		}
	}
}

// TestEgressIPsWhileTheyArrive: the API server takes as long to write many EgressIPs as a client
// to decode them, so both must work concurrently.
func TestEgressIPsWhileTheyArrive(t *testing.T) {
	decoded := make(chan struct{})
	c := lister(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"EgressIPList","apiVersion":"k8s.ovn.org/v1","items":[%s,`, anItem("a"))
		w.(http.Flusher).Flush()
		select {
		case <-decoded:
			fmt.Fprintf(w, `%s],"metadata":{"resourceVersion":"9"}}`, anItem("b"))
		case <-r.Context().Done():
		}
	})
	var names []string
	err := listEgressIPs(t.Context(), c, func(e *ipv1.EgressIP) {
		if names = append(names, e.Name); len(names) == 1 {
			close(decoded)
		}
	})
	if err != nil || len(names) != 2 {
		t.Errorf("got %q and %v", names, err)
	}
}

// TestEgressIPsIncomplete: a partial list of EgressIPs is an error.
func TestEgressIPsIncomplete(t *testing.T) {
	for name, body := range map[string]string{
		"cut off in an item":     `{"items":[` + anItem("a") + `,{"metadata":{"na`,
		"cut off between items":  `{"items":[` + anItem("a"),
		"cut off after items":    `{"items":[` + anItem("a") + `]`,
		"without items":          `{"kind":"EgressIPList","metadata":{}}`,
		"something else":         `"no"`,
		"items that are no list": `{"items":{"a":` + anItem("a") + `}}`,
		"nothing":                ``,
	} {
		c := lister(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
		if got, err := egressIPsOf(t, c); err == nil || !strings.Contains(err.Error(), "list egressips.k8s.ovn.org: ") {
			t.Errorf("%s: %d EgressIPs and %v", name, len(got), err)
		}
	}
}

// TestEgressIPsRefused: errors of the API server are returned unchanged.
func TestEgressIPsRefused(t *testing.T) {
	for status, is := range map[int]func(error) bool{http.StatusForbidden: apierrors.IsForbidden, http.StatusNotFound: apierrors.IsNotFound} {
		c := lister(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"no"}`, strings.ReplaceAll(http.StatusText(status), " ", ""), status)
		})
		if _, err := egressIPsOf(t, c); !is(errors.Unwrap(err)) && !is(err) {
			t.Errorf("status %d: %v", status, err)
		}
	}
}
