package page

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	servicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	ipclient "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

const (
	// patience is how long the page may take to show an expected change.
	patience = 2 * time.Minute
	name     = "web"
)

var (
	address = netip.MustParseAddr("172.18.0.33")
	ingress = netip.MustParseAddr("5.5.5.5")
	workers = labtest.Nodes[1:]
)

// TestPage tests the page while nothing is wrong, while a node fails, and when there is
// no answer or no permission.
func TestPage(t *testing.T) {
	l := labtest.Start(t, "page", lab.Options{Name: fmt.Sprintf("page-%d", os.Getpid()), GatewayMode: "shared", Install: "manifests"})
	p := &pageTest{Lab: l}
	p.prepare(t)
	p.browser = open(t, p.serve(t, l.Kubeconfig))
	t.Run("InPlace", p.inPlace)
	t.Run("Keyboard", p.keyboard)
	t.Run("Failover", p.failover)
	t.Run("NoRights", p.noRights)
	t.Run("NoToken", p.noToken)
	t.Run("Master", p.master)
	t.Run("NoMaster", p.noMaster)
	t.Run("NoAPIServer", p.noAPIServer)
}

type pageTest struct {
	*lab.Lab
	*browser
}

// prepare creates an EgressIP and an EgressService, each for one pod.
func (p *pageTest) prepare(t *testing.T) {
	ctx := t.Context()
	for _, node := range workers {
		patch := []byte(`{"metadata":{"labels":{"k8s.ovn.org/egress-assignable":""}}}`)
		if _, err := p.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, app := range []string{name, "shop"} {
		if _, err := p.RunServer(ctx, app, lab.ControlPlane, map[string]string{"app": app}); err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ips, err := ipclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	e := &ipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name}}
	e.Spec.EgressIPs = []ipv1.Address{ipv1.Address(address.String())}
	e.Spec.PodSelector.MatchLabels = map[string]string{"app": name}
	if _, err := ips.EgressIPV1().EgressIPs().Create(ctx, e, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	services := p.Kube.CoreV1().Services(lab.Namespace)
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
		Selector: map[string]string{"app": "shop"}, Ports: []corev1.ServicePort{{Port: lab.ServePort}}}}
	if svc, err = services.Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ingress.String()}}
	if _, err := services.UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eg := &servicev1.EgressService{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	eg.Spec.NodeSelector.MatchLabels = map[string]string{"k8s.ovn.org/egress-assignable": ""}
	if _, err := p.Egress.EgressServiceV1().EgressServices(lab.Namespace).Create(ctx, eg, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// serve runs "ovnkube egress serve" with a kubeconfig until the test ends, and returns the
// address that it prints.
func (p *pageTest) serve(t *testing.T, kubeconfig string) string {
	t.Helper()
	program := filepath.Join(filepath.Dir(p.Kin.Program), "ovnkube")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	command := exec.CommandContext(ctx, program, "egress", "serve", "--listen", "127.0.0.1:0", "--interval", "1s",
		"--request-timeout", "5s", "--kubeconfig", kubeconfig)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.Stderr = t.Output()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := command.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%v ends with %v", command.Args, err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(line, "Serving on ")
	if !ok {
		t.Fatalf("%v prints %q: %v", command.Args, line, err)
	}
	return strings.TrimSpace(url)
}

// until waits until will returns no error about the page.
func (b *browser) until(t *testing.T, what string, will func() error) {
	t.Helper()
	if err := lab.Until(t.Context(), patience, "the page to show "+what, func(context.Context) error { return will() }); err != nil {
		t.Fatal(err)
	}
}

// row is the row of the EgressIP.
const row = `#object-rows tr:has([data-key="explain EgressIP/` + name + `"])`

// holder returns the node that has the address according to the page.
func (p *pageTest) holder() (string, error) {
	return p.text(row + " td:nth-of-type(3)")
}

func (p *pageTest) inPlace(t *testing.T) {
	p.until(t, "that all is in place", func() error {
		return errors.Join(p.shows("#verdict", "All of it is in place"), p.shows(row, "In place", address.String()),
			p.shows("#object-rows", "EgressService/"+lab.Namespace+"/shop", ingress.String()),
			p.shows("#entries", "Node ", " is to hold "+address.String()))
	})
	for _, part := range []string{"#banner", "#login", "#problems"} {
		if text, err := p.text(part); text != "" || err != nil {
			t.Errorf("%s shows %q: %v", part, text, err)
		}
	}
	var hash string
	p.do(t, chromedp.Evaluate("location.hash", &hash))
	if hash != "" {
		t.Error("the token stays in the address")
	}
	p.names(t)
	p.screenshot(t, "page")
}

// keyboard explains the pod, and filters the objects, without a mouse.
func (p *pageTest) keyboard(t *testing.T) {
	var first string
	p.do(t, chromedp.KeyEvent(kb.Tab), chromedp.Evaluate("document.activeElement.innerText", &first))
	if first != "Skip to the content" {
		t.Errorf("the first stop is %q", first)
	}
	p.do(t, chromedp.Focus("#explain-name", chromedp.ByQuery), chromedp.KeyEvent(lab.Namespace+"/"+name+kb.Tab+"192.0.2.1"+kb.Enter))
	p.until(t, "why the pod leaves with the address", func() error {
		return p.shows("#explain-answer pre", "Pod "+lab.Namespace+"/"+name, "decided by EgressIP/"+name, "source     "+address.String())
	})
	p.names(t)
	p.do(t, chromedp.Focus("#filter-text", chromedp.ByQuery), chromedp.KeyEvent("SHOP"))
	p.until(t, "the EgressService alone", func() error {
		if text, err := p.text(row); text != "" || err != nil {
			return fmt.Errorf("it shows %q: %w", text, err)
		}
		return p.shows("#range", "1–1 of 1")
	})
	p.do(t, chromedp.KeyEvent(strings.Repeat(kb.Backspace, len("SHOP"))))
	p.until(t, "all objects", func() error { return p.shows("#range", "1–2 of 2") })
	p.do(t, chromedp.Evaluate(`document.querySelector("#explain-answer").replaceChildren()`, nil))
}

// failover cuts the power of the node that holds the address.
func (p *pageTest) failover(t *testing.T) {
	from, err := p.holder()
	if err != nil {
		t.Fatal(err)
	}
	to := workers[0]
	if to == from {
		to = workers[1]
	}
	if err := p.Kin.Node(t.Context(), "kill", from); err != nil {
		t.Fatal(err)
	}
	p.until(t, "the move", func() error {
		now, err := p.holder()
		if err != nil {
			return err
		}
		if now != to {
			return fmt.Errorf("the address is on %q", now)
		}
		return p.shows("#entries", "EgressIP/"+name, "Moved", fmt.Sprintf("%s moves from node %s to node %s", address, from, to))
	})
	p.until(t, "that the node is gone", func() error {
		return errors.Join(p.shows("#node-rows", "Not Ready", "does not answer"), p.shows("#problem-list", "Node/"+from, "NodeNotReady"),
			p.shows("#entries", "Node/"+from, "the node ceased to be Ready"))
	})
	p.screenshot(t, "failover")
	if err := p.Kin.Node(t.Context(), "start", from); err != nil {
		t.Fatal(err)
	}
	p.until(t, "that all is in place again", func() error {
		return errors.Join(p.shows("#verdict", "All of it is in place"), p.shows("#node-rows", "answers within"), p.shows("#entries", "the node became Ready"))
	})
}

// noRights opens the page as a user without any permissions.
func (p *pageTest) noRights(t *testing.T) {
	config, err := clientcmd.LoadFromFile(p.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "stranger"
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	b := open(t, p.serve(t, kubeconfig))
	b.until(t, "that there are no rights", func() error {
		return b.shows("#banner", "You have no rights to see this", "have the ClusterRole egress-reader bound to you")
	})
	if text, err := b.text("#content"); text != "" || err != nil {
		t.Errorf("it shows %q: %v", text, err)
	}
	b.screenshot(t, "no-rights")
}

// noToken opens the page without the token, and then with it.
func (p *pageTest) noToken(t *testing.T) {
	url := p.serve(t, p.Kubeconfig)
	bare, token, _ := strings.Cut(url, "#token=")
	b := open(t, bare)
	b.until(t, "that a token is needed", func() error { return b.shows("#login", "A token is needed") })
	b.screenshot(t, "no-token")
	b.do(t, chromedp.Focus("#token", chromedp.ByQuery), chromedp.KeyEvent(token+kb.Enter))
	b.until(t, "the objects", func() error { return b.shows("#object-rows", "EgressIP/"+name) })
}

// noMaster stops the master: the page reports that, and continues to show the objects.
func (p *pageTest) noMaster(t *testing.T) {
	scale := func(masters int) {
		p.kubectl(t, "--namespace=ovn-kubernetes", "scale", "deployment", "ovnkube-master", fmt.Sprintf("--replicas=%d", masters))
	}
	scale(0)
	p.until(t, "that no master runs", func() error {
		return errors.Join(p.shows("#banner", "No master runs"), p.shows(row, address.String()))
	})
	p.screenshot(t, "no-master")
	scale(1)
	p.until(t, "that all is in place again", func() error { return p.shows("#verdict", "All of it is in place") })
}

// noAPIServer stops the API server: the page shows the previous data.
func (p *pageTest) noAPIServer(t *testing.T) {
	if err := p.Kin.Service(t.Context(), "stop", lab.ControlPlane, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	p.until(t, "that there is no answer", func() error {
		return errors.Join(p.shows("#banner", "The API server does not answer", "this is what it said before"), p.shows(row, address.String()))
	})
	if err := p.Kin.Service(t.Context(), "start", lab.ControlPlane, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	p.until(t, "that all is in place again", func() error {
		if text, err := p.text("#banner"); text != "" || err != nil {
			return fmt.Errorf("the banner is %q: %w", text, err)
		}
		return p.shows("#verdict", "All of it is in place")
	})
}
