package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/monitoring"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

const (
	// machine is the host outside the cluster on which Prometheus runs.
	machine = "prometheus"
	// dir is the directory of its files there.
	dir = "/run/prometheus"
	// dist is the directory of the files for users.
	dist = "../../dist/monitoring"
	// step is the time between two scrapes, as configured in dist, and between two points of a plot.
	step = 15 * time.Second
	// rateInterval is the value that Grafana gives $__rate_interval with that step.
	rateInterval = "1m"
)

// prometheus is a running Prometheus.
type prometheus struct {
	url string
}

// startPrometheus makes Prometheus scrape the cluster with the configuration and the rules in
// dist until the test ends.
func startPrometheus(t *testing.T, l *lab.Lab) prometheus {
	t.Helper()
	ctx := t.Context()
	if err := l.Kin.AddHost(ctx, machine, "", "172.18.0.110"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Kin.Exec(ctx, machine, "mkdir", "-p", dir); err != nil {
		t.Fatal(err)
	}
	rules, err := monitoring.ReadAlerts(dist)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(rules) // JSON is valid YAML
	if err != nil {
		t.Fatal(err)
	}
	authority, token := access(t, l)
	for file, content := range map[string]string{"prometheus.yaml": configuration(t, l), "ovnkube-rules.yaml": string(text), "ovnkube-ca.pem": authority, "ovnkube-token": token} {
		if err := l.Kin.Send(ctx, machine, dir+"/"+file, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	// Prometheus ends when its standard input is closed.
	run, err := l.Kin.ExecAttached(machine, "sh", "-c", fmt.Sprintf("prometheus --config.file=%[1]s/prometheus.yaml --storage.tsdb.path=%[1]s/data "+
		"--web.listen-address=127.0.0.1:9090 --log.level=warn </dev/null & cat; kill $!; wait $!", dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.Close(); err != nil {
			t.Errorf("end Prometheus: %v", err)
		}
	})
	address, err := l.Forward(ctx, machine, netip.MustParseAddrPort("127.0.0.1:9090"))
	if err != nil {
		t.Fatal(err)
	}
	p := prometheus{"http://" + address}
	p.until(t, "the master and three nodes to be scraped", `sum(up) == 4`)
	return p
}

// access returns the authority of the servers of metrics, and a token of the account that may read them.
func access(t *testing.T, l *lab.Lab) (authority, token string) {
	t.Helper()
	secret, err := l.Kube.CoreV1().Secrets(lab.SystemNamespace).Get(t.Context(), "ovnkube-metrics", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hours := int64(8 * 60 * 60)
	request, err := l.Kube.CoreV1().ServiceAccounts(lab.SystemNamespace).CreateToken(t.Context(), "ovnkube-metrics",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(secret.Data["cacert.pem"]), request.Status.Token
}

// configuration returns the configuration in dist with the addresses of the nodes.
func configuration(t *testing.T, l *lab.Lab) string {
	t.Helper()
	text, err := os.ReadFile(dist + "/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for placeholder, nodes := range map[string][]string{"MASTER": {lab.ControlPlane}, "NODE": labtest.Nodes} {
		was := regexp.MustCompile(`"` + placeholder + `:(\d+)"`)
		if !was.Match(text) {
			t.Fatalf("no %s in\n%s", was, text)
		}
		var targets []string
		for _, node := range nodes {
			addresses, err := l.NodeAddresses(t.Context(), node)
			if err != nil {
				t.Fatal(err)
			}
			targets = append(targets, fmt.Sprintf(`"%s:$1"`, addresses[0]))
		}
		text = was.ReplaceAll(text, []byte(strings.Join(targets, ",")))
	}
	return string(text)
}

// series has the values of a query with the same labels.
type series struct {
	Metric map[string]string `json:"metric"`
	Values []sample          `json:"values"`
}

// sample is a value at a time.
type sample struct {
	at    float64 // seconds since 1970
	value float64
}

// UnmarshalJSON decodes [time, "value"].
func (s *sample) UnmarshalJSON(text []byte) (err error) {
	var value string
	if err := json.Unmarshal(text, &[]any{&s.at, &value}); err != nil {
		return err
	}
	s.value, err = strconv.ParseFloat(value, 64)
	return err
}

// numbers counts the values that Grafana would show, and returns the largest.
func (s series) numbers() (n int, largest float64) {
	largest = math.Inf(-1)
	for _, v := range s.Values {
		if !math.IsNaN(v.value) {
			n, largest = n+1, max(largest, v.value)
		}
	}
	return n, largest
}

// get requests a path of the HTTP API and decodes the data of the response.
func (p prometheus) get(ctx context.Context, path string, query url.Values, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   any    `json:"data"`
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s: %s", path, response.Status, answer.Error)
	}
	return nil
}

// between returns the results of a query at each step between two times.
func (p prometheus) between(ctx context.Context, query string, from, to time.Time) ([]series, error) {
	var data struct {
		Result []series `json:"result"`
	}
	err := p.get(ctx, "query_range", url.Values{"query": {query}, "step": {fmt.Sprint(step.Seconds())},
		"start": {from.Format(time.RFC3339)}, "end": {to.Format(time.RFC3339)}}, &data)
	return data.Result, err
}

// until waits until a query returns something.
func (p prometheus) until(t *testing.T, what, query string) {
	t.Helper()
	err := lab.Until(t.Context(), patience, what, func(ctx context.Context) error {
		var data struct {
			Result []json.RawMessage `json:"result"`
		}
		if err := p.get(ctx, "query", url.Values{"query": {query}}, &data); err != nil {
			return err
		}
		if len(data.Result) == 0 {
			return fmt.Errorf("%s returns nothing", query)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
