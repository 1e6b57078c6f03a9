// Package node answers questions about packets on a node: the part of a trace that only the
// node can tell, to those who may get nodes/trace of it by the API server. A question about
// another node is passed on to that node, since the proxy of the API server reaches any of
// them.
//
// To those who may create nodes/probe it also sends what a pod of the node would send to one
// address and port, one such probe at a time and one each second. Without that, nothing is
// changed and no packet is sent. Questions are checked strictly (trace.Decode), a few are
// answered at a time, and each within a bound.
//
// Caller: app.
package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/authn"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

const (
	// patience bounds an answer.
	patience = 25 * time.Second
	// atOnce bounds how many questions are answered at a time: ovn-trace reads the whole
	// southbound database each time.
	atOnce = 2
	// perSecond and burst bound how many questions are answered.
	perSecond, burst = 4, 16
	// probesAtOnce, probesPerSecond and probesBurst bound how many probes are sent: who may
	// probe cannot look through a network, or get a pod to flood one.
	probesAtOnce, probesPerSecond, probesBurst = 1, 1, 4
	// passed bounds how many questions are passed on at a time.
	passed = 8
	// mostAnswer bounds an answer that is passed on.
	mostAnswer = 8 << 20
	// passedOn marks a question that a node has passed on.
	passedOn = "X-Egress-Passed-On"
)

// Deps are what the answers are made of.
type Deps struct {
	Node string
	// Pods has the pods of this node.
	Pods corelisters.PodLister
	// Subnets returns the pod subnets of this node.
	Subnets func() []netip.Prefix
	Reviews *authn.Reviewer
	// Peer returns where another node answers.
	Peer func(node string) (netip.AddrPort, bool)
	// Logical follows a packet through OVN, Kernel through the kernel, and Bridge through the
	// external bridge of this node.
	Logical func(ctx context.Context, datapath, packet string, choice int) (trace.OVN, error)
	Kernel  func(ctx context.Context, q trace.Question) (trace.Kernel, error)
	Bridge  func(ctx context.Context, q trace.Question) (trace.Bridge, error)
	// Connection finds what this node remembers of a connection.
	Connection func(ctx context.Context, q trace.Question) (trace.Connection, error)
	// Probe sends what a pod of this node sends from one of its addresses.
	Probe func(ctx context.Context, pod *corev1.Pod, source netip.Addr, q trace.Question) (trace.Probed, error)
}

// Handler answers.
type Handler struct {
	deps    Deps
	own     http.Handler
	client  *http.Client
	answers bound // of questions
	probes  bound
	passing chan struct{}
}

// bound bounds how many of a kind are answered.
type bound struct {
	slots chan struct{}
	limit *rate.Limiter
}

func newBound(atOnce, perSecond, burst int) bound {
	return bound{make(chan struct{}, atOnce), rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// New returns a Handler.
func New(deps Deps) *Handler {
	h := &Handler{deps: deps, passing: make(chan struct{}, passed),
		answers: newBound(atOnce, perSecond, burst), probes: newBound(probesAtOnce, probesPerSecond, probesBurst)}
	h.own = deps.Reviews.Guard(func(r *http.Request) (authn.Access, error) {
		if trace.IsProbe(r.URL.Path) {
			return authn.Access{Verb: "create", Resource: "nodes", Subresource: "probe", Name: deps.Node}, nil
		}
		return authn.Access{Verb: "get", Resource: "nodes", Subresource: "trace", Name: deps.Node}, nil
	}, http.HandlerFunc(h.answer))
	h.client = &http.Client{Timeout: patience + authnPatience, Transport: &http.Transport{
		// Nodes have no certificates that others know, as kubelets often have none. The token
		// that comes along is of no use but for a question to that node.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
		DialContext:       (&net.Dialer{Timeout: dialPatience}).DialContext,
	}}
	return h
}

// dialPatience is how long another node may take to accept a connection.
const dialPatience = 5 * time.Second

// authnPatience is how long another node may take to find out who asks.
const authnPatience = 10 * time.Second

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	node, err := trace.NodeOf(r.URL.Path)
	method := http.MethodGet
	if trace.IsProbe(r.URL.Path) {
		method = http.MethodPost
	}
	switch {
	case r.Method != method:
		w.Header().Set("Allow", method)
		http.Error(w, "allowed: "+method, http.StatusMethodNotAllowed)
	case err != nil:
		http.Error(w, err.Error(), http.StatusNotFound)
	case node == h.deps.Node:
		h.own.ServeHTTP(w, r)
	case r.Header.Get(passedOn) != "":
		http.Error(w, "this is node "+h.deps.Node+", not "+node, http.StatusMisdirectedRequest)
	default:
		h.pass(w, r, node)
	}
}

// pass passes a question on to its node, which finds out itself who asks.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, node string) {
	at, ok := h.deps.Peer(node)
	if !ok {
		http.Error(w, "there is no node "+node, http.StatusNotFound)
		return
	}
	select {
	case h.passing <- struct{}{}:
		defer func() { <-h.passing }()
	default:
		http.Error(w, "too many questions at a time", http.StatusTooManyRequests)
		return
	}
	url := *r.URL
	url.Scheme, url.Host = "https", at.String()
	req, err := http.NewRequestWithContext(r.Context(), r.Method, url.String(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.Header.Set(authn.Header, r.Header.Get(authn.Header))
	req.Header.Set(passedOn, h.deps.Node)
	answer, err := h.client.Do(req)
	if err != nil {
		var network net.Error
		klog.V(2).InfoS("Question not passed on", "to", node, "err", err)
		if errors.As(err, &network) && network.Timeout() {
			http.Error(w, fmt.Sprintf("ovnkube of node %s does not answer within %s", node, h.client.Timeout), http.StatusGatewayTimeout)
			return
		}
		http.Error(w, fmt.Sprintf("ovnkube of node %s cannot be reached from node %s: %v", node, h.deps.Node, err), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(answer.Body, mostAnswer)) // one that goes away gets no answer
}

// answer answers a question of somebody who may ask.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request) {
	q, err := trace.Decode(r.URL.Path, r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b, asked := h.answers, "Trace asked for"
	if q.About == trace.AboutProbe {
		b, asked = h.probes, "Probe asked for"
	}
	if !b.limit.Allow() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many questions", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		http.Error(w, "too many questions at a time", http.StatusTooManyRequests)
		return
	}
	user, _ := authn.UserOf(ctx)
	klog.InfoS(asked, "user", user.Username, "about", q.About, "pod", q.Pod, "source", q.Source, "protocol", q.Protocol, "to", q.To)
	facts := trace.Facts{APIVersion: explain.APIVersion, Node: h.deps.Node, AsOf: metav1.NewTime(time.Now().UTC())}
	status := http.StatusInternalServerError
	err = panics.Catch("trace", func() (err error) {
		switch q.About {
		case trace.AboutOVN:
			var ovn trace.OVN
			ovn, status, err = h.logical(ctx, q)
			facts.OVN = &ovn
		case trace.AboutKernel:
			var k trace.Kernel
			k, err = h.deps.Kernel(ctx, q)
			facts.Kernel = &k
		case trace.AboutBridge:
			var b trace.Bridge
			b, err = h.deps.Bridge(ctx, q)
			facts.Bridge = &b
		case trace.AboutConnection:
			var c trace.Connection
			c, err = h.deps.Connection(ctx, q)
			facts.Connection = &c
		case trace.AboutProbe:
			var p trace.Probed
			p, status, err = h.probe(ctx, q)
			facts.Probed = &p
		}
		return err
	})
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(facts); err != nil {
		klog.V(2).InfoS("Answer not sent", "err", err)
	}
}

// logical follows what a pod of this node sends.
func (h *Handler) logical(ctx context.Context, q trace.Question) (trace.OVN, int, error) {
	pod, err := h.pod(q.Pod)
	if err != nil {
		return trace.OVN{}, http.StatusNotFound, err
	}
	packet, err := Microflow(pod, h.deps.Subnets(), q)
	if err != nil {
		return trace.OVN{}, http.StatusConflict, err
	}
	ovn, err := h.deps.Logical(ctx, topology.NodeSwitch(h.deps.Node), packet, q.Choice)
	return ovn, http.StatusInternalServerError, err
}

// probe sends what a pod of this node sends.
func (h *Handler) probe(ctx context.Context, q trace.Question) (trace.Probed, int, error) {
	pod, err := h.pod(q.Pod)
	if err != nil {
		return trace.Probed{}, http.StatusNotFound, err
	}
	_, source, err := addressOf(pod, q)
	if err != nil {
		return trace.Probed{}, http.StatusConflict, err
	}
	probed, err := h.deps.Probe(ctx, pod, source, q)
	return probed, http.StatusInternalServerError, err
}

// pod returns a pod of this node.
func (h *Handler) pod(key string) (*corev1.Pod, error) {
	namespace, name, _ := strings.Cut(key, "/")
	p, err := h.deps.Pods.Pods(namespace).Get(name)
	if err != nil || p.Spec.NodeName != h.deps.Node {
		return nil, fmt.Errorf("node %s has no pod %s", h.deps.Node, key)
	}
	return p, nil
}

// addressOf returns the hardware address and the address that a pod sends from.
func addressOf(p *corev1.Pod, q trace.Question) (mac string, source netip.Addr, err error) {
	network, ok, err := kube.PodNetwork(p)
	if err != nil || !ok {
		return "", source, fmt.Errorf("pod %s has no address on the pod network yet", q.Pod)
	}
	f := topology.FamilyOf(q.To.Addr())
	prefix, ok := topology.PrefixOf(f, network.Addrs)
	if !ok {
		return "", source, fmt.Errorf("pod %s has no %s address", q.Pod, f)
	}
	return network.MAC, prefix.Addr(), nil
}

// Microflow returns what a pod sends, in the language of ovn-trace.
func Microflow(p *corev1.Pod, subnets []netip.Prefix, q trace.Question) (string, error) {
	mac, source, err := addressOf(p, q)
	if err != nil {
		return "", err
	}
	if len(subnets) == 0 {
		return "", errors.New("the node has no pod subnets yet")
	}
	ip := topology.FamilyOf(source).Match()
	return fmt.Sprintf("inport == %s && eth.src == %s && eth.dst == %s && %s.src == %s && %s.dst == %s && ip.ttl == 64 && %s.src == %d && %s.dst == %d",
		strconv.Quote(topology.PodPort(p.Namespace, p.Name)), mac, topology.RouterMAC(subnets), ip, source, ip, q.To.Addr(),
		q.Protocol, trace.SourcePort, q.Protocol, q.To.Port()), nil
}
