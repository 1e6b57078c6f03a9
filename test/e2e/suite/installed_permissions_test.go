package suite

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// auditPolicy makes the API server log the requests of ovnkube's accounts and of the tests' users,
// and those of nodes about other users.
const auditPolicy = `{omitStages: [RequestReceived], rules: [
  {level: RequestResponse, userGroups: ["system:serviceaccounts:ovn-kubernetes"], resources: [{group: authorization.k8s.io, resources: [subjectaccessreviews]}]},
  {level: Metadata, userGroups: ["system:serviceaccounts:ovn-kubernetes", "system:serviceaccounts:default"]},
  {level: None}]}`

// unaskedFor are permissions that no request in TestInstalled uses, with the reason why they are
// granted anyway. An entry without a verb is a whole role.
var unaskedFor = map[string]string{
	"ovnkube-master assign-network pods":                               "no verb of a request: an admission policy asks for it",
	"ovnkube-pki approve signers.certificates.k8s.io k8s.ovn.org/node": "no verb of a request: the API server asks for it where a request is approved",
	"ovnkube-pki sign signers.certificates.k8s.io k8s.ovn.org/node":    "no verb of a request: the API server asks for it where a certificate is issued",
	"ovnkube-pki update secrets ovn-nb":                                renewed,
	"ovnkube-pki update secrets ovn-sb":                                renewed,
	"ovnkube-pki update secrets ovn-sb-masters":                        renewed,
	"ovnkube-pki update secrets ovnkube-master":                        renewed,
	"ovnkube-pki update secrets ovnkube-metrics":                       renewed,
	"ovnkube-pki create events":                                        "of a lost authority",
	"ovnkube-pki patch events":                                         repeated,
	"ovnkube-master get services":                                      "asked once more before an EgressService is taken for one without a Service",
	"ovnkube-master patch events":                                      repeated,
	"ovnkube-node create events":                                       "of what keeps failing for half a minute",
	"ovnkube-node patch events":                                        repeated,
	"ovnkube-node get pods":                                            "of a pod that its kubelet knows before the agent does: a matter of moments",
	"egress-reader list events":                                        page,
	"egress-reader get /egress":                                        page,
	"ovnkube-page":                                                     page,
	"ovn-databases":                                                    "make high-availability-test has clustered databases",
}

const (
	page     = "make page-test has the page"
	renewed  = "certificates are renewed after months"
	repeated = "of what is reported again within minutes"
)

// permitted formats a permission, for example "ovnkube-pki update secrets ovn-nb".
func permitted(role, verb, group, resource, name string) string {
	if group != "" {
		main, sub, found := strings.Cut(resource, "/")
		resource = main + "." + group
		if found {
			resource += "/" + sub
		}
	}
	return strings.TrimSpace(strings.Join([]string{role, verb, resource, name}, " "))
}

// granted returns all permissions of the roles in dist.
func granted(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("../../../dist", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
			var role rbacv1.ClusterRole
			if err := documents.Decode(&role); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil || role.Kind != "ClusterRole" && role.Kind != "Role" {
				continue // a list of operations, such as a patch
			}
			for _, rule := range role.Rules {
				all = append(all, permissionsOf(role.Name, rule)...)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func permissionsOf(role string, rule rbacv1.PolicyRule) []string {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []string
	for _, verb := range rule.Verbs {
		for _, url := range rule.NonResourceURLs {
			all = append(all, permitted(role, verb, "", url, ""))
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					all = append(all, permitted(role, verb, group, resource, name))
				}
			}
		}
	}
	return all
}

// audited has the fields of an audit log entry that the test reads.
type audited struct {
	Verb           string
	RequestURI     string
	User           struct{ Username string }
	ObjectRef      *struct{ Resource, Subresource, Name, APIGroup string }
	Annotations    map[string]string
	ResponseStatus struct{ Code int }
	ResponseObject struct {
		Spec struct {
			ResourceAttributes    *struct{ Verb, Group, Resource, Subresource, Name string }
			NonResourceAttributes *struct{ Verb, Path string }
		}
		Status struct {
			Allowed bool
			Reason  string
		}
	}
}

// by matches the role in the API server's reason for allowing a request.
var by = regexp.MustCompile(` of (?:Cluster)?Role "([^"]+)"`)

// shows returns the permissions that an entry shows to be needed, each also without a resource
// name.
func (a audited) shows() []string {
	var all []string
	add := func(reason, verb, group, resource, subresource, name string) {
		found := by.FindStringSubmatch(reason)
		if found == nil {
			return
		}
		if subresource != "" {
			resource += "/" + subresource
		}
		all = append(all, permitted(found[1], verb, group, resource, ""), permitted(found[1], verb, group, resource, name))
	}
	reason := a.Annotations["authorization.k8s.io/reason"]
	if o := a.ObjectRef; o != nil {
		add(reason, a.Verb, o.APIGroup, o.Resource, o.Subresource, o.Name)
		if a.Verb == "patch" && a.ResponseStatus.Code == 201 {
			add(reason, "create", o.APIGroup, o.Resource, o.Subresource, o.Name) // applied when it did not exist
		}
	} else {
		path, _, _ := strings.Cut(a.RequestURI, "?")
		add(reason, a.Verb, "", path, "", "")
	}
	if answer := a.ResponseObject; answer.Status.Allowed {
		if r := answer.Spec.ResourceAttributes; r != nil {
			add(answer.Status.Reason, r.Verb, r.Group, r.Resource, r.Subresource, r.Name)
		}
		if r := answer.Spec.NonResourceAttributes; r != nil {
			add(answer.Status.Reason, r.Verb, "", r.Path, "", "")
		}
	}
	return all
}

// installedPermissions fails the test for requests of ovnkube's accounts that were refused, and for
// permissions in dist that nothing used in all that happened to the cluster. The API server's audit
// log says which role allowed a request. If only some of the tests ran before, unused permissions
// mean nothing.
func (s *suite) installedPermissions(t *testing.T) {
	log, err := s.Kin.Exec(t.Context(), lab.ControlPlane, "cat", "/var/log/kubernetes/audit.log")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for line := range strings.Lines(log) {
		var entry audited
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.ResponseStatus.Code == 403 && strings.HasPrefix(entry.User.Username, "system:serviceaccount:ovn-kubernetes:") {
			t.Errorf("%s was refused to %s %s", entry.User.Username, entry.Verb, entry.RequestURI)
		}
		for _, permission := range entry.shows() {
			used[permission] = true
		}
	}
	all := granted(t)
	if len(all) < 50 {
		t.Errorf("found %d permissions only", len(all))
	}
	some := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	excused := map[string]bool{}
	for _, permission := range all {
		role, _, _ := strings.Cut(permission, " ")
		for _, key := range []string{role, permission} {
			if _, ok := unaskedFor[key]; ok {
				excused[key] = true
			}
		}
		if !some && !used[permission] && !excused[role] && !excused[permission] {
			t.Errorf("%s: nobody has asked for it", permission)
		}
	}
	for key := range maps.Keys(unaskedFor) {
		if !excused[key] {
			t.Errorf("%s is excused, and is no permission", key)
		}
	}
	t.Logf("%d permissions, %d excused", len(all), len(excused))
}
