package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/authn"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	routefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned/fake"
	servicefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	ipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/metadatatest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

// proxied is a fake clientset with a real path through the proxy of an API server.
type proxied struct {
	*fake.Clientset
	rest rest.Interface
}

func (p proxied) CoreV1() corev1client.CoreV1Interface {
	return proxiedCore{p.Clientset.CoreV1(), p.rest}
}

type proxiedCore struct {
	corev1client.CoreV1Interface
	rest rest.Interface
}

func (p proxiedCore) RESTClient() rest.Interface { return p.rest }

// traceCluster returns a cluster whose nodes answer with f, and the clientset that records the requests; it has the
// objects of egressCluster unless others are given.
func traceCluster(t *testing.T, f http.HandlerFunc, objects ...runtime.Object) (kubernetes.Interface, *fake.Clientset) {
	t.Helper()
	if objects == nil {
		objects = egressCluster()
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	kube := fakeapi.NewClientset(objects...)
	kube.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		r.Status.Token = a.(clienttesting.CreateActionImpl).Name + " for " + strings.Join(r.Spec.Audiences, ",")
		return true, r, nil
	})
	return proxied{kube, clients.CoreV1().RESTClient()}, kube
}

func askTrace(t *testing.T, kube kubernetes.Interface, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	e := &egress{out: &stdout, now: func() time.Time { return egressTime }, wait: wait, connect: func(string, string) (reader.Clients, error) {
		return reader.Clients{Kube: kube, IPs: ipfake.NewSimpleClientset(), Services: servicefake.NewSimpleClientset(), Routes: routefake.NewSimpleClientset(),
			Metadata: metadatatest.Pods(t, fakeapi.NewClientset())}, nil
	}}
	status = e.run(t.Context(), append([]string{"trace"}, args...), &stderr)
	return status, stdout.String(), stderr.String()
}

const proxyPath = "/api/v1/namespaces/ovn-kubernetes/services/https:ovnkube-trace:trace/proxy"

var probedFrom = netip.MustParseAddrPort("10.244.1.3:40123")

// leaving answers like node n1, whose pods leave with the given address.
func leaving(source string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, proxyPath)
		q, err := trace.Decode(path, r.URL.Query())
		switch {
		case !ok || err != nil:
			http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		case r.Header.Get(authn.Header) != "egress-"+map[bool]string{true: "prober", false: "tracer"}[q.About == trace.AboutProbe]+" for trace.egress.ovnkube/n1":
			http.Error(w, "unauthenticated: "+r.Header.Get(authn.Header), http.StatusUnauthorized)
		case q.About == trace.AboutOVN:
			fmt.Fprintf(w, `{"ovn":{"steps":[{"datapath":"GR_n1","stage":"lr_out_snat","match":"ip4.src == 10.244.0.0/16","priority":17,"actions":["ct_snat(%s);"]}],
				"outputs":[{"datapath":"ext_n1","port":"breth0_n1","type":"localnet"}],"source":%q}}`, source, source)
		case q.About == trace.AboutProbe:
			if r.Method != http.MethodPost {
				http.Error(w, "allowed: POST", http.StatusMethodNotAllowed)
				return
			}
			_ = json.NewEncoder(w).Encode(trace.Facts{Probed: &trace.Probed{From: probedFrom, Outcome: trace.ProbeConnected}})
		case q.About == trace.AboutConnection:
			_ = json.NewEncoder(w).Encode(trace.Facts{Connection: &trace.Connection{Entries: []trace.Entry{
				{Table: trace.TableSwitch, Zone: 5, From: probedFrom, Becomes: netip.MustParseAddrPort(source + ":40123")}}}})
		default:
			_ = json.NewEncoder(w).Encode(trace.Facts{Bridge: &trace.Bridge{Name: "breth0", Flows: []trace.Flow{{Priority: 100}}, Outputs: []string{"eth0"}}})
		}
	}
}

func TestTrace(t *testing.T) {
	answers := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if w.Header().Set("Content-Type", "text/plain"); strings.HasPrefix(text, "{") {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(status)
			fmt.Fprintln(w, text)
		}
	}
	to := []string{"prod/web", "--to", "192.0.2.1:443"}
	for name, tc := range map[string]struct {
		nodes      http.HandlerFunc
		args       []string
		status     int
		out, error string
	}{
		"as planned":        {leaving("172.18.0.3"), to, 0, "> leaves node n1 by eth0 with source 172.18.0.3: as planned", ""},
		"as JSON":           {leaving("172.18.0.3"), append(to, "-o", "json"), 0, `"kind": "Trace"`, ""},
		"UDP":               {leaving("172.18.0.3"), append(to, "--protocol", "udp"), 0, "sends UDP from 10.244.1.3", ""},
		"with a probe":      {leaving("172.18.0.3"), append(to, "--probe"), 0, "> left node n1 with source 172.18.0.3: as planned", ""},
		"probe first":       {leaving("172.18.0.3"), append([]string{"--probe"}, to...), 0, "Probe: TCP from 10.244.1.3:40123, connected after 0 ms", ""},
		"probe differs":     {leaving("172.18.0.9"), append(to, "--probe"), 1, "ProbeDiffers: it left with 172.18.0.9 from node n1; planned: 172.18.0.3 from node n1", ""},
		"differs":           {leaving("172.18.0.9"), to, 1, "PathDiffers: the other side sees 172.18.0.9 from node n1; planned: 172.18.0.3 from node n1", ""},
		"a node is down":    {answers(502, "ovnkube of node n1 cannot be reached from node n2: connection refused"), to, 1, "! Node/n1 NodeSilent: what node n1 does is not known: ovnkube of node n1 cannot be reached from node n2: connection refused", ""},
		"no node answers":   {answers(503, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no endpoints available for service \"ovnkube-trace\"","reason":"ServiceUnavailable","code":503}`), to, 1, "no endpoints available for service", ""},
		"the node refuses":  {answers(403, "forbidden: ann may not get nodes/trace n1"), to, 2, "", "you may not trace; a binding of the role egress-tracer in namespace ovn-kubernetes lets you: forbidden: ann may not get nodes/trace n1"},
		"no JSON":           {answers(200, "hello"), to, 1, "read the answer of node n1", ""},
		"to the metadata":   {leaving("172.18.0.3"), []string{"prod/web", "--to", "169.254.169.254:80"}, 0, "> leaves node n1 by eth0 with source 172.18.0.3: as planned", ""},
		"probe of metadata": {leaving("172.18.0.3"), []string{"prod/web", "--to", "169.254.169.254:80", "--probe"}, 2, "", "--probe: nothing is sent to 169.254.169.254"},
		"no destination":    {leaving(""), []string{"prod/web"}, 2, "", "--to=: no destination; allowed: ADDRESS:PORT"},
		"no port":           {leaving(""), []string{"prod/web", "--to", "192.0.2.1"}, 2, "", "--to=192.0.2.1: no destination; allowed: ADDRESS:PORT"},
		"unknown protocol":  {leaving(""), append(to, "--protocol", "sctp"), 2, "", "--protocol=sctp: unknown; allowed: tcp, udp"},
		"no such pod":       {leaving(""), []string{"prod/db", "--to", "192.0.2.1:443"}, 2, "", "pod prod/db: not found"},
		"in another family": {leaving(""), []string{"prod/web", "--to", "[2001:db8::1]:443"}, 2, "", "pod prod/web has no way to send: the pod has no IPv6 address"},
	} {
		t.Run(name, func(t *testing.T) {
			kube, _ := traceCluster(t, tc.nodes)
			status, out, errs := askTrace(t, kube, tc.args...)
			if status != tc.status || !strings.Contains(out, tc.out) || !strings.Contains(errs, tc.error) || (errs == "") != (tc.error == "") {
				t.Errorf("status %d, want %d; output:\n%s\nerrors: %s\nwant %q and %q", status, tc.status, out, errs, tc.out, tc.error)
			}
		})
	}
}

// The API server chooses any node of the Service, even one that is down: retries reach others, which forward the
// question.
func TestTraceChoosesAgain(t *testing.T) {
	answer := leaving("172.18.0.3")
	down := 0
	kube, _ := traceCluster(t, func(w http.ResponseWriter, r *http.Request) {
		if down++; down%attempts != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"error trying to reach service: dial tcp 172.18.0.3:9413: connect: connection refused"}`)
			return
		}
		answer(w, r)
	})
	if status, out, errs := askTrace(t, kube, "prod/web", "--to", "192.0.2.1:443"); status != 0 || down != 2*attempts {
		t.Errorf("status %d after %d requests: %s%s", status, down, out, errs)
	}
	down = -100 * attempts
	kube, _ = traceCluster(t, func(w http.ResponseWriter, r *http.Request) {
		down++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"error trying to reach service: connection refused"}`)
	})
	if status, out, _ := askTrace(t, kube, "prod/web", "--to", "192.0.2.1:443"); status != 1 || !strings.Contains(out, "NodeSilent") || down != -99*attempts {
		t.Errorf("status %d after %d requests: %s", status, down, out)
	}
}

// If there is no answer for a while, another node is asked: the API server may have chosen one that has lost power.
// If that one responds that it is busy with the first question, this is not an answer.
func TestTraceSlow(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	answer := leaving("172.18.0.3")
	for name, second := range map[string]http.HandlerFunc{"another node answers": answer, "the node is only slow": func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too many questions", http.StatusTooManyRequests)
	}} {
		refused := make(chan struct{})
		kube, _ := traceCluster(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked++
			first := asked%2 == 1
			mu.Unlock()
			switch {
			case !first:
				second(w, r)
				close(refused)
			case name == "another node answers":
				<-r.Context().Done()
			default:
				<-refused
				answer(w, r)
			}
		})
		waits := 0
		a := &traceClient{clients: reader.Clients{Kube: kube}, namespace: "ovn-kubernetes", tokens: map[[2]string]string{}, wait: func(ctx context.Context, _ time.Duration) bool {
			if waits++; waits > 1 {
				<-ctx.Done()
			}
			return ctx.Err() == nil
		}}
		facts, err := a.ask(t.Context(), trace.Question{Node: "n1", About: trace.AboutOVN, Pod: "prod/web", To: netip.MustParseAddrPort("192.0.2.1:443"), Protocol: trace.TCP})
		if err != nil || facts.OVN == nil {
			t.Errorf("%s: %+v, %v", name, facts, err)
		}
	}
	if asked != 4 {
		t.Errorf("%d requests", asked)
	}
}

// A request to send is repeated only if it has not reached a node.
func TestProbeOnce(t *testing.T) {
	for said, want := range map[string]int{"dial tcp 172.18.0.3:9413: connect: connection refused": attempts, "EOF": 1} {
		answer := leaving("172.18.0.3")
		asked := 0
		kube, _ := traceCluster(t, func(w http.ResponseWriter, r *http.Request) {
			if !trace.IsProbe(r.URL.Path) {
				answer(w, r)
				return
			}
			asked++
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"error trying to reach service: %s"}`, said)
		})
		if status, out, _ := askTrace(t, kube, "prod/web", "--to", "192.0.2.1:443", "--probe"); status != 1 || asked != want || !strings.Contains(out, "does not say whether it has sent") {
			t.Errorf("%s: status %d after %d requests, want %d: %s", said, status, asked, want, out)
		}
	}
}

// A user who may trace cannot probe, and is told which permission is missing.
func TestProbeStranger(t *testing.T) {
	kube, fakes := traceCluster(t, leaving("172.18.0.3"))
	fakes.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.(clienttesting.CreateActionImpl).Name == probeAccount, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, probeAccount, fmt.Errorf("User eve cannot create it"))
	})
	if status, out, errs := askTrace(t, kube, "prod/web", "--to", "192.0.2.1:443"); status != 0 {
		t.Errorf("without a probe: status %d: %s%s", status, out, errs)
	}
	status, out, errs := askTrace(t, kube, "prod/web", "--to", "192.0.2.1:443", "--probe")
	if status != 2 || out != "" || !strings.Contains(errs, "you may not probe; a binding of the role egress-prober") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}

// A user who may not request a token is told which permission is missing.
func TestTraceStranger(t *testing.T) {
	kube, fakes := traceCluster(t, leaving("172.18.0.3"))
	fakes.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, traceAccount, fmt.Errorf("User eve cannot create it"))
	})
	status, out, errs := askTrace(t, kube, "prod/web", "--to", "192.0.2.1:443")
	if status != 2 || out != "" || !strings.Contains(errs, "you may not trace; a binding of the role egress-tracer") || !strings.Contains(errs, "User eve cannot create it") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}

// Without read access to the cluster's settings, the address ranges in the match of the policy for external
// gateways are not known: it must not be reported as missing.
func TestTraceWithoutSettings(t *testing.T) {
	policy := func(ranges string) http.HandlerFunc {
		answer := leaving("172.18.0.3")
		return func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/"+trace.AboutOVN) {
				answer(w, r)
				return
			}
			source := netip.MustParseAddr("172.18.0.3")
			_ = json.NewEncoder(w).Encode(trace.Facts{OVN: &trace.OVN{Source: source, Outputs: []trace.Output{{Datapath: "ext_n1", Port: "breth0_n1", Type: "localnet"}}, Steps: []trace.Step{
				{Datapath: "ovn_cluster_router", Stage: "lr_in_policy", Priority: 501, Match: `inport == "rtos-n1" && ip4.src == $external_gateway_pods_n1_ip4` + ranges},
				{Datapath: "GR_n1", Stage: "lr_in_ip_routing", Priority: 100, Match: "ip4.src == 10.244.1.3", Actions: []string{"reg0 = 172.18.0.51;"}},
			}}})
		}
	}
	const right, wrong = " && ip4.dst != 10.244.0.0/16 && ip4.dst != 100.64.0.0/16", " && ip4.dst != 10.245.0.0/16 && ip4.dst != 100.64.0.0/16"
	for name, tc := range map[string]struct {
		ranges   string
		stranger bool
		status   int
		says     string
	}{
		"who may":              {right, false, 0, ""},
		"who may sees another": {wrong, false, 1, "Missing: OVN did not take the planned Logical_Router_Policy"},
		"a stranger":           {right, true, 0, "settings: ConfigMap ovn-kubernetes/ovnkube cannot be read (Forbidden)"},
	} {
		t.Run(name, func(t *testing.T) {
			kube, fakes := traceCluster(t, policy(tc.ranges), withGateway()...)
			if tc.stranger {
				fakes.PrependReactor("get", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, a.(clienttesting.GetAction).GetName(), fmt.Errorf("User eve cannot get it"))
				})
			}
			status, out, errs := askTrace(t, kube, "prod/web", "--to", "192.0.2.1:443")
			if status != tc.status || !strings.Contains(out, "Planned: ExternalGateways") || !strings.Contains(out, tc.says) || errs != "" {
				t.Errorf("status %d, want %d and %q: %s%s", status, tc.status, tc.says, out, errs)
			}
		})
	}
}

// withGateway makes the pods of egressCluster leave through an external gateway, in local gateway mode.
func withGateway() []runtime.Object {
	all := egressCluster()
	for _, o := range all {
		switch o := o.(type) {
		case *corev1.Node:
			address := []netip.Prefix{netip.MustParsePrefix("172.18.0.3/16")}
			o.Annotations[kube.AnnotationChassisID] = "chassis-n1"
			o.Annotations[kube.AnnotationGatewayLRPIfAddr] = kube.FormatGatewayLRPIfAddr([]netip.Prefix{netip.MustParsePrefix("100.64.0.3/16")})
			o.Annotations[kube.AnnotationL3Gateway] = kube.FormatL3Gateway(topology.Gateway{Mode: topology.GatewayLocal, InterfaceID: "breth0_n1", MAC: "02:42:ac:12:00:03",
				Addrs: address, NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1")}})
		case *corev1.Namespace:
			o.Annotations = map[string]string{kube.AnnotationRoutingExternalGWs: "172.18.0.51", kube.AnnotationGatewaysInUse: "172.18.0.51"}
		case *corev1.ConfigMap:
			o.Data["ovnkube.conf"] += "enable-multi-external-gateway=true\n"
		}
	}
	return all
}

// The manifest allows users exactly what the command does besides reading, and the accounts exactly what the nodes
// require.
func TestTraceManifest(t *testing.T) {
	data, err := os.ReadFile("../../../dist/base/trace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var service corev1.Service
	rules, accounts := map[string][]rbacv1.PolicyRule{}, map[string]bool{}
	bound := map[string]string{} // roles of accounts
	for doc := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var raw runtime.RawExtension
		if err := doc.Decode(&raw); err != nil {
			break
		}
		var head struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []rbacv1.PolicyRule
			RoleRef  rbacv1.RoleRef
			Subjects []rbacv1.Subject
		}
		if err := json.Unmarshal(raw.Raw, &head); err != nil {
			t.Fatal(err)
		}
		switch head.Kind {
		case "Service":
			if err := json.Unmarshal(raw.Raw, &service); err != nil {
				t.Fatal(err)
			}
		case "ServiceAccount":
			accounts[head.Metadata.Name] = true
		case "ClusterRoleBinding":
			bound[head.Subjects[0].Name] = head.RoleRef.Name
		default:
			rules[head.Kind+" "+head.Metadata.Name] = head.Rules
		}
	}
	if name := "https:" + service.Name + ":" + service.Spec.Ports[0].Name; name != traceService {
		t.Errorf("the Service is %s, want %s", name, traceService)
	}
	allowed := func(kind string, want ...rbacv1.PolicyRule) {
		t.Helper()
		if !slices.EqualFunc(rules[kind], want, func(a, b rbacv1.PolicyRule) bool { return a.String() == b.String() }) {
			t.Errorf("the %s allows %v, want %v", kind, rules[kind], want)
		}
	}
	for account, may := range map[string][2]string{traceAccount: {"get", "nodes/trace"}, probeAccount: {"create", "nodes/probe"}} {
		if !accounts[account] {
			t.Errorf("there is no account %s", account)
		}
		allowed("ClusterRole "+bound[account], rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{may[1]}, Verbs: []string{may[0]}})
		allowed("Role "+account,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{account}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services/proxy"}, ResourceNames: []string{traceService}, Verbs: []string{may[0]}})
	}
	var paths []string
	answer := leaving("172.18.0.3")
	kube, fakes := traceCluster(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.Path)
		answer(w, r)
	})
	if status, out, errs := askTrace(t, kube, "prod/web", "--to", "192.0.2.1:443", "--probe"); status != 0 {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	for _, a := range fakes.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			if a.GetVerb() != "create" || a.GetResource().Resource != "serviceaccounts" || a.GetSubresource() != "token" {
				t.Errorf("the command does a %s of %s/%s", a.GetVerb(), a.GetResource().Resource, a.GetSubresource())
			}
		}
	}
	for _, p := range paths {
		if !strings.HasPrefix(p, "GET "+proxyPath+"/trace/v1/n1/") && p != "POST "+proxyPath+"/trace/v1/n1/probe" {
			t.Errorf("the command does %s", p)
		}
	}
}
