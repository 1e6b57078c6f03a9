package master

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestOutdatedMaster: a master that was suspended before it wrote a decision does not undo what another one has assigned since.
// What nodes have written meanwhile is no reason to refuse its write.
func TestOutdatedMaster(t *testing.T) {
	at := func(node string) []v1.EgressIPStatusItem {
		return []v1.EgressIPStatusItem{{Node: node, EgressIP: "172.18.0.33"}}
	}
	entry := []v1.ProgrammedStatus{{Node: "n1", EgressIPs: []string{"172.18.0.33"}}}
	for name, c := range map[string]struct {
		known, now v1.EgressIPStatus
		odd        bool // a test of the items fails, whatever they are
		want       string
	}{
		"assigned by another one":               {v1.EgressIPStatus{}, v1.EgressIPStatus{Items: at("n2")}, false, "n2"},
		"moved by another one":                  {v1.EgressIPStatus{Items: at("n1")}, v1.EgressIPStatus{Items: at("n2")}, false, "n2"},
		"moved and reported by another one":     {v1.EgressIPStatus{Items: at("n1"), Programmed: entry}, v1.EgressIPStatus{Items: at("n2"), Programmed: entry}, false, "n2"},
		"a node has acknowledged":               {v1.EgressIPStatus{Items: at("n1")}, v1.EgressIPStatus{Items: at("n1"), Programmed: entry}, false, "n3"},
		"nothing has changed":                   {v1.EgressIPStatus{Items: at("n1")}, v1.EgressIPStatus{Items: at("n1")}, false, "n3"},
		"odd items":                             {v1.EgressIPStatus{Items: at("n1")}, v1.EgressIPStatus{Items: at("n1")}, true, "n3"},
		"odd items, and a node has written too": {v1.EgressIPStatus{Items: at("n1")}, v1.EgressIPStatus{Items: at("n1"), Programmed: entry}, true, "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewSimpleClientset()
			fakeapi.Strict(api)
			if c.odd {
				api.PrependReactor("patch", "egressips", func(a clienttesting.Action) (bool, runtime.Object, error) {
					if p, ok := a.(clienttesting.PatchAction); !ok || p.GetPatchType() != types.JSONPatchType {
						return false, nil, nil
					}
					return true, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "prod", "test failed", 0, false)
				})
			}
			client := api.EgressIPV1().EgressIPs()
			known, err := client.Create(t.Context(), &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "prod"}, Status: c.known}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if now := known.DeepCopy(); !equality.Semantic.DeepEqual(c.known, c.now) {
				now.Status = c.now
				if _, err := client.UpdateStatus(t.Context(), now, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			want := *known.Status.DeepCopy()
			want.Items = at("n3")
			_, err = (&Controller{deps: Deps{Egress: api}, written: newWritten()}).patch(t.Context(), known, known, want)
			if accepted := err == nil; accepted != (c.want == "n3") {
				t.Errorf("accepted: %t, %v", accepted, err)
			}
			is, err := client.Get(t.Context(), "prod", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := is.Status.Items[0].Node; got != c.want {
				t.Errorf("assigned to %s, want %s", got, c.want)
			}
		})
	}
}
