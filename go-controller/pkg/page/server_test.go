package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cluster is what the server under test reads.
type cluster struct {
	t     *testing.T
	now   time.Time
	facts Facts
	err   error
	reads int
	allow error
}

func newCluster(t *testing.T, egressIPs int) *cluster {
	c := &cluster{t: t, now: start}
	s := &c.facts.Snapshot
	s.Settings = explain.Settings{EgressIP: true, EgressService: true, ExternalGateways: true}
	s.Renewed = start
	for i := 1; i <= 3; i++ {
		s.Nodes = append(s.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("worker-%d", i),
			Labels: map[string]string{"k8s.ovn.org/egress-assignable": ""}, Annotations: map[string]string{
				"k8s.ovn.org/node-subnets":        fmt.Sprintf(`{"default":["10.244.%d.0/24"]}`, i),
				"k8s.ovn.org/node-primary-ifaddr": fmt.Sprintf(`{"ipv4":"172.18.0.%d/16"}`, i+1),
			}}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(start.Add(-48 * time.Hour))}}}})
	}
	s.Namespaces = []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}}
	s.Pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}, Spec: corev1.PodSpec{NodeName: "worker-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.1.3", PodIPs: []corev1.PodIP{{IP: "10.244.1.3"}}}}}
	for i := range egressIPs {
		e := &ipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ip-%05d", i)}}
		addr := fmt.Sprintf("172.18.%d.%d", 1+i/250, 1+i%250)
		e.Spec.EgressIPs = []ipv1.Address{ipv1.Address(addr)}
		e.Spec.NamespaceSelector.MatchLabels = map[string]string{"egress": e.Name}
		c.assign(e, fmt.Sprintf("worker-%d", 1+i%3))
		s.EgressIPs = append(s.EgressIPs, e)
	}
	return c
}

// assign assigns the address of an EgressIP to a node in its status.
func (c *cluster) assign(e *ipv1.EgressIP, node string) {
	e.Status.Items = []ipv1.EgressIPStatusItem{{Node: node, EgressIP: string(e.Spec.EgressIPs[0]), Network: "172.18.0.0/16"}}
}

func (c *cluster) server(change ...func(*Config)) *Server {
	config := Config{MaxAge: 10 * time.Second, Now: func() time.Time { return c.now }, Allow: func(*http.Request) error { return c.allow },
		Read: func(context.Context) (Facts, error) {
			c.reads++
			c.facts.Snapshot.Taken = c.now
			return c.facts, c.err
		}}
	for _, f := range change {
		f(&config)
	}
	return New(config)
}

func get(s http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

// answer decodes the response to a request.
func answer[T any](t *testing.T, s http.Handler, target string) T {
	t.Helper()
	w := get(s, target)
	var a T
	if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%s: status %d, %v: %s", target, w.Code, err, w.Body)
	}
	return a
}

func TestAnswers(t *testing.T) {
	c := newCluster(t, 60)
	s := c.server()
	for _, tc := range []struct {
		target string
		code   int
		want   string
	}{
		{"/", 200, "<title>Egress map</title>"},
		{"/page.js", 200, "use strict"},
		{"/page.css", 200, "prefers-color-scheme: dark"},
		{"/icon.svg", 200, "<svg"},
		{"/assets/", 404, "there is nothing here"},
		{"/../server.go", 307, ""},
		{"/api/v1/status", 200, `"kind":"EgressStatus"`},
		{"/api/v1/status?problems=1", 200, "problems: 119 more are left out"},
		{"/api/v1/status?problems=x", 400, "problems=x: no number that is allowed: 0 to 1000"},
		{"/api/v1/objects", 200, `"matched":60,"offset":0`},
		{"/api/v1/objects?text=172.18.1.7&limit=1", 200, `"matched":1,`},
		{"/api/v1/objects?limit=0", 400, "nothing would be answered"},
		{"/api/v1/objects?limit=1001", 400, "limit=1001"},
		{"/api/v1/objects?feature=Pod", 400, "allowed: EgressIP, EgressService"},
		{"/api/v1/objects?state=Fine", 400, "allowed: [Problem"},
		{"/api/v1/timeline", 200, `"kind":"EgressTimeline"`},
		{"/api/v1/timeline?limit=-1", 400, "limit=-1"},
		{"/api/v1/explain/pod?name=prod/web&to=192.0.2.1", 200, `"kind":"PodExplanation"`},
		{"/api/v1/explain/pod?name=prod/web&output=text", 200, "Pod prod/web on node worker-1\n"},
		{"/api/v1/explain/pod?name=prod/web&output=xml", 400, "output=xml: unknown format"},
		{"/api/v1/explain/pod?name=prod/nobody", 404, "not found"},
		{"/api/v1/explain/pod?name=prod/web&to=example", 400, "no destination"},
		{"/api/v1/explain/pod", 400, "name is missing"},
		{"/api/v1/explain/egressip?name=ip-00000", 200, `"egressIP":"ip-00000"`},
		{"/api/v1/explain/egressip?name=ip-00000&to=192.0.2.1", 400, "to is for pods"},
		{"/api/v1/explain/service?name=prod/lb", 404, "not found"},
		{"/api/v1/explain/node?name=worker-1", 200, `"node":"worker-1"`},
		{"/api/v1/explain/address?name=172.18.1.1", 200, `"address":"172.18.1.1"`},
		{"/api/v1/explain/address?name=x", 400, "no address"},
		{"/api/v1/explain/cluster?name=x", 400, "nothing of this kind is explained"},
		{"/api/v1/nothing", 404, `"kind":"Error"`},
	} {
		t.Run(tc.target, func(t *testing.T) {
			w := get(s, tc.target)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("status %d, want %d; body %.300s, want %q in it", w.Code, tc.code, w.Body, tc.want)
			}
			for name, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s: %q", name, got)
				}
			}
		})
	}
	if c.reads != 1 {
		t.Errorf("read %d times, want once", c.reads)
	}
}

func TestNothingCanBeChanged(t *testing.T) {
	s := newCluster(t, 1).server()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
		for _, target := range []string{"/", "/api/v1/status", "/api/v1/explain/pod?name=prod/web"} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader("{}")))
			if w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: status %d", method, target, w.Code)
			}
		}
	}
}

func TestWhoMaySee(t *testing.T) {
	c := newCluster(t, 1)
	s := c.server()
	for _, want := range []struct {
		code int
		err  error
		why  string
	}{
		{401, fmt.Errorf("%w: log in", ErrUnauthenticated), "log in"}, {403, fmt.Errorf("%w: ask", ErrForbidden), "ask"}, {500, errors.New("broken"), "broken"},
	} {
		c.allow = want.err
		for _, target := range []string{"/api/v1/status", "/api/v1/objects", "/api/v1/timeline", "/api/v1/explain/node?name=worker-1"} {
			if w := get(s, target); w.Code != want.code || !strings.Contains(w.Body.String(), `"message":"`+want.why+`"`) || strings.Contains(w.Body.String(), "worker-1") {
				t.Errorf("%s: status %d, want %d: %s", target, w.Code, want.code, w.Body)
			}
		}
		if w := get(s, "/"); w.Code != http.StatusOK {
			t.Errorf("the page itself: status %d", w.Code)
		}
	}
	if c.reads != 0 {
		t.Error("the cluster was read for somebody who may not see it")
	}
}

func TestOtherHostNames(t *testing.T) {
	c := newCluster(t, 1)
	s := c.server(func(config *Config) { config.Hosts = LoopbackHosts("8765") })
	for host, want := range map[string]int{
		"127.0.0.1:8765": 200, "localhost:8765": 200, "[::1]:8765": 200,
		"rebound.example:8765": 421, "localhost": 421, "127.0.0.1:80": 421, "": 421,
	} {
		for _, target := range []string{"/", "/api/v1/status"} {
			r := httptest.NewRequest(http.MethodGet, target, nil)
			r.Host = host
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s of host %q: status %d, want %d", target, host, w.Code, want)
			}
		}
	}
}

func TestFactsGrowOld(t *testing.T) {
	c := newCluster(t, 1)
	s := c.server()
	asOf := func() time.Time { return answer[explain.Status](t, s, "/api/v1/status").AsOf.UTC() }
	first := asOf()
	c.now = start.Add(9 * time.Second)
	if again := asOf(); !again.Equal(first) || c.reads != 1 {
		t.Errorf("read again after 9 s: %v", again)
	}
	c.now = start.Add(10 * time.Second)
	if again := asOf(); !again.Equal(c.now) {
		t.Errorf("not read again after 10 s: %v", again)
	}
}

func TestAPIServerDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		s := c.server()
		c.err = errors.New("connection refused")
		if w := get(s, "/api/v1/status"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "connection refused") {
			t.Fatalf("before anything was read: status %d, %s", w.Code, w.Body)
		}
		c.err = nil
		before := answer[Status](t, s, "/api/v1/status")
		if before.Outage != "" {
			t.Errorf("it answers, and the outage is %q", before.Outage)
		}
		c.err = errors.New("connection refused")
		const note = "the API server cannot be queried since 2026-03-01T12:00:10Z (connection refused): this is what it said before"
		for _, later := range []time.Duration{10 * time.Second, 30 * time.Second} {
			c.now = start.Add(later)
			is := answer[Status](t, s, "/api/v1/status")
			if notes := strings.Join(is.Notes, "\n"); strings.Count(notes, note) != 1 || is.Outage != note || !is.AsOf.Equal(&before.AsOf) {
				t.Errorf("as of %v, outage %q, notes %s", is.AsOf, is.Outage, notes)
			}
			synctest.Wait()
		}
		c.err, c.now = nil, start.Add(time.Minute)
		get(s, "/api/v1/status") // what it reads is there for the next request
		synctest.Wait()
		if is := answer[Status](t, s, "/api/v1/status"); is.Outage != "" || slices.Contains(is.Notes, note) || !is.AsOf.Time.Equal(c.now) {
			t.Errorf("it answers again, and the page says as of %v, outage %q, %v", is.AsOf, is.Outage, is.Notes)
		}
		c.err, c.now = errors.New("connection refused"), start.Add(2*time.Minute)
		answer[Status](t, s, "/api/v1/status")
		c.err, c.now = nil, start.Add(time.Hour)
		if is := answer[Status](t, s, "/api/v1/status"); is.Outage != "" || !is.AsOf.Time.Equal(c.now) {
			t.Errorf("it has answered for long, and the first request is told: as of %v, outage %q", is.AsOf, is.Outage)
		}
	})
}

// TestAPIServerIsSilent: while the API server gives no answer at all, requests do not wait for it, and one read at a time does.
func TestAPIServerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		c := newCluster(t, 1)
		silent := make(chan struct{})
		s := c.server(func(config *Config) {
			config.Now = time.Now
			read := config.Read
			config.Read = func(ctx context.Context) (Facts, error) {
				facts, err := read(ctx)
				select {
				case <-silent:
				case <-time.After(timeout):
					err = errors.New("timed out")
				}
				return facts, err
			}
		})
		close(silent)
		answer[Status](t, s, "/api/v1/status")
		silent = make(chan struct{})
		<-time.After(10 * time.Second)
		answer[Status](t, s, "/api/v1/status") // notices it
		<-time.After(10 * time.Second)
		reads, from := c.reads, time.Now()
		for range 5 {
			if is := answer[Status](t, s, "/api/v1/status"); is.Outage == "" {
				t.Error("the outage is not told")
			}
			<-time.After(time.Second)
		}
		synctest.Wait()
		if waited := time.Since(from) - 5*time.Second; waited > 0 || c.reads != reads+1 {
			t.Errorf("waited for %v, read %d times", waited, c.reads-reads)
		}
		close(silent)
		synctest.Wait()
		if is := answer[Status](t, s, "/api/v1/status"); is.Outage != "" {
			t.Errorf("it answers again, and the outage is %q", is.Outage)
		}
	})
}

// TestOutageOnPage: the script takes what it says of an outage from the field of the status.
func TestOutageOnPage(t *testing.T) {
	script, err := assets.ReadFile("assets/page.js")
	if err != nil {
		t.Fatal(err)
	}
	field, _ := reflect.TypeFor[Status]().FieldByName("Outage")
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if want := "s." + name; !regexp.MustCompile(regexp.QuoteMeta(want) + `\b`).Match(script) {
		t.Errorf("the script does not read %s", want)
	}
	if bytes.Contains(script, []byte("the API server")) {
		t.Error("the script looks for the words of a note")
	}
}

// TestSilentMasterAmongMany: that no master runs is told, however many older problems there are.
func TestSilentMasterAmongMany(t *testing.T) {
	c := newCluster(t, 60)
	for _, e := range c.facts.Snapshot.EgressIPs {
		e.Status.Conditions = []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionFalse, Reason: "WaitingForNode", LastTransitionTime: metav1.NewTime(start.Add(-24 * time.Hour))}}
	}
	c.now = start.Add(2 * time.Minute)
	s := c.server()
	for most, want := range map[string]int{"50": 50, "1": 1, "1000": 0} {
		is := answer[Status](t, s, "/api/v1/status?problems="+most)
		if want > 0 && len(is.Problems) != want {
			t.Errorf("of %s problems, %d are told", most, len(is.Problems))
		}
		if !slices.ContainsFunc(is.Problems, func(p explain.Problem) bool { return p.Reason == explain.ReasonMasterSilent }) {
			t.Errorf("of %s problems, none is that no master runs", most)
		}
		if !slices.IsSortedFunc(is.Problems, func(a, b explain.Problem) int {
			if a.Since == nil || b.Since == nil {
				return 0
			}
			return a.Since.Compare(b.Since.Time)
		}) {
			t.Errorf("the %s problems are not sorted by age", most)
		}
	}
	if is := answer[Status](t, s, "/api/v1/status?problems=0"); len(is.Problems) > 0 {
		t.Errorf("of no problems, %v", is.Problems)
	}
}

func TestManyObjects(t *testing.T) {
	const all = 12_000
	s := newCluster(t, all).server()
	const most = 64 << 10 // what a browser gets every few seconds
	for _, target := range []string{"/api/v1/status", "/api/v1/objects", "/api/v1/timeline"} {
		if n := get(s, target).Body.Len(); n > most {
			t.Errorf("%s has %d bytes, want at most %d", target, n, most)
		}
	}
	seen := map[string]bool{}
	for offset := 0; offset < all; offset += 1000 {
		o := answer[explain.Objects](t, s, fmt.Sprintf("/api/v1/objects?offset=%d&limit=1000", offset))
		if o.Matched != all || len(o.Objects) != 1000 {
			t.Fatalf("from %d: %d of %d", offset, len(o.Objects), o.Matched)
		}
		for _, has := range o.Objects {
			seen[has.Object] = true
		}
	}
	if len(seen) != all {
		t.Errorf("%d objects in all parts together, want %d", len(seen), all)
	}
}

// TestPageIsItsOwn: the page contains nothing that the Content-Security-Policy would block, and the server serves
// everything that it refers to.
func TestPageIsItsOwn(t *testing.T) {
	s := newCluster(t, 0).server()
	for _, name := range []string{"index.html", "page.css", "page.js"} {
		data, err := os.ReadFile(path.Join("assets", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{`https?://`, `\son[a-z]+="`, `\sstyle="`, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(`, `url\(`, `@import`} {
			if found := regexp.MustCompile(bad).Find(data); found != nil {
				t.Errorf("%s has %q", name, found)
			}
		}
		for _, ref := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllSubmatch(data, -1) {
			if w := get(s, "/"+string(ref[1])); w.Code != http.StatusOK {
				t.Errorf("%s refers to %s: status %d", name, ref[1], w.Code)
			}
		}
	}
	index, _ := io.ReadAll(get(s, "/").Body)
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]+)"`).FindAllSubmatch(index, -1) {
		ids[string(id[1])] = true
	}
	for _, ref := range regexp.MustCompile(`(?:for|aria-labelledby|href)="#?([a-z-]+)"`).FindAllSubmatch(index, -1) {
		if !ids[string(ref[1])] {
			t.Errorf("the page refers to %s, which it does not have", ref[1])
		}
	}
	script, _ := io.ReadAll(get(s, "/page.js").Body)
	for _, ref := range regexp.MustCompile(`(?:\$\(|replace\()"([a-z-]+)"`).FindAllSubmatch(script, -1) {
		if !ids[string(ref[1])] {
			t.Errorf("the script refers to %s, which the page does not have", ref[1])
		}
	}
}

// TestLaterQuestionWins: an answer, or a failure, that arrives after a later question was asked is not shown.
func TestLaterQuestionWins(t *testing.T) {
	script, err := assets.ReadFile("assets/page.js")
	if err != nil {
		t.Fatal(err)
	}
	asks := regexp.MustCompile(`(?s)\nasync function (\w+)\([^)]*\) \{.*?\n\}\n`).FindAllSubmatch(script, -1)
	for _, f := range asks {
		if string(f[1]) == "ask" {
			continue
		}
		counter := regexp.MustCompile(`\bmine = \+\+(\w+);`).FindSubmatch(f[0])
		if counter == nil {
			t.Errorf("%s does not count its questions", f[1])
			continue
		}
		superseded := fmt.Sprintf(`\s+if \(mine !== %s\) return;`, counter[1])
		for _, after := range []string{`await [^\n]*;`, `catch \(e\) \{`} {
			if !regexp.MustCompile(after + superseded).Match(f[0]) {
				t.Errorf("%s does not look after %s whether there is a later question", f[1], after)
			}
		}
	}
	if len(asks) < 3 {
		t.Errorf("found %d functions that ask", len(asks))
	}
}

// TestManyAskAtOnce: concurrent requests share what was read; to be run with the race detector.
func TestManyAskAtOnce(t *testing.T) {
	c := newCluster(t, 200)
	s := c.server()
	var all sync.WaitGroup
	for range 4 {
		for _, target := range []string{"/api/v1/status", "/api/v1/objects?text=1", "/api/v1/timeline", "/api/v1/explain/pod?name=prod/web&to=192.0.2.1:80",
			"/api/v1/explain/egressip?name=ip-00001", "/api/v1/explain/node?name=worker-1", "/api/v1/explain/address?name=172.18.200.1"} {
			all.Go(func() {
				if w := get(s, target); w.Code != http.StatusOK {
					t.Errorf("%s: status %d: %s", target, w.Code, w.Body)
				}
			})
		}
	}
	all.Wait()
	if c.reads != 1 {
		t.Errorf("read %d times, want once", c.reads)
	}
}
