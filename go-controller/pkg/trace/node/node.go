// Package node answers questions about packets on a node: the part of a trace that only the node itself knows.
// Callers need permission from the API server to get nodes/trace of the node. A question about another node is
// forwarded to that node, since the API server's proxy may reach any of them.
//
// For callers who may create nodes/probe it also sends what a pod of the node would send to one address and port:
// one probe at a time and one per second. Other questions change nothing and send no packet. Questions are strictly
// validated (trace.Decode), only a few are answered concurrently, and each has a deadline.
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
	// answerTimeout is the deadline for an answer.
	answerTimeout = 25 * time.Second
	// atOnce limits how many questions are answered concurrently: ovn-trace reads the whole southbound database
	// each time.
	atOnce = 2
	// perSecond and burst limit the rate of questions.
	perSecond, burst = 4, 16
	// probesAtOnce, probesPerSecond and probesBurst limit probes, so that a caller can neither scan a network nor
	// have a pod flood one.
	probesAtOnce, probesPerSecond, probesBurst = 1, 1, 4
	// passed limits how many questions are forwarded concurrently.
	passed = 8
	// mostAnswer is the maximum size of a forwarded answer, in bytes.
	mostAnswer = 8 << 20
	// passedOn is the header of a question that a node has forwarded.
	passedOn = "X-Egress-Passed-On"
)

// Deps are the dependencies of a Handler.
type Deps struct {
	Node string
	// Pods lists the pods of this node.
	Pods corelisters.PodLister
	// Subnets returns the pod subnets of this node.
	Subnets func() []netip.Prefix
	Reviews *authn.Reviewer
	// Peer returns the address at which another node answers.
	Peer func(node string) (netip.AddrPort, bool)
	// Logical traces a packet through OVN, Kernel through the kernel, and Bridge through the external bridge of
	// this node.
	Logical func(ctx context.Context, datapath, packet string, choice int) (trace.OVN, error)
	Kernel  func(ctx context.Context, q trace.Question) (trace.Kernel, error)
	Bridge  func(ctx context.Context, q trace.Question) (trace.Bridge, error)
	// Connection finds this node's connection tracking entries for a connection.
	Connection func(ctx context.Context, q trace.Question) (trace.Connection, error)
	// Probe sends as a pod of this node, from one of its addresses.
	Probe func(ctx context.Context, pod *corev1.Pod, source netip.Addr, q trace.Question) (trace.Probed, error)
}

// Handler answers questions over HTTP.
type Handler struct {
	deps    Deps
	own     http.Handler
	client  *http.Client
	answers bound // to questions
	probes  bound
	passing chan struct{}
}

// bound limits the concurrency and rate of one kind of question.
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
	h.client = &http.Client{Timeout: answerTimeout + authnTimeout, Transport: &http.Transport{
		// Like many kubelets, nodes have no certificates that others can verify. The forwarded token is valid only
		// for questions to that node.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
		DialContext:       (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}}
	return h
}

// dialTimeout is the timeout for connecting to another node.
const dialTimeout = 5 * time.Second

// authnTimeout is how long another node may take to authenticate and authorize the caller.
const authnTimeout = 10 * time.Second

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

// pass forwards a question to its node, which authenticates the caller itself.
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
		klog.V(2).InfoS("Trace request not forwarded", "to", node, "err", err)
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
	_, _ = io.Copy(w, io.LimitReader(answer.Body, mostAnswer)) // a client that went away needs no answer
}

// answer answers a question of an authorized caller.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request) {
	q, err := trace.Decode(r.URL.Path, r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b, logMessage := h.answers, "Trace asked for"
	if q.About == trace.AboutProbe {
		b, logMessage = h.probes, "Probe asked for"
	}
	if !b.limit.Allow() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many questions", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		http.Error(w, "too many questions at a time", http.StatusTooManyRequests)
		return
	}
	user, _ := authn.UserOf(ctx)
	klog.InfoS(logMessage, "user", user.Username, "about", q.About, "pod", q.Pod, "source", q.Source, "protocol", q.Protocol, "to", q.To)
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

// logical traces a packet of a pod of this node through OVN.
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

// probe sends a packet as a pod of this node.
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

// addressOf returns the MAC and IP address that a pod sends from.
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

// Microflow returns the packet that a pod sends, in the syntax of ovn-trace.
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
