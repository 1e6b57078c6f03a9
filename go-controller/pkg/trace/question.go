package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Root is the path below which nodes answer.
const Root = "/trace/v1/"

// Kinds of questions and requests to a node.
const (
	AboutOVN    = "ovn"    // the logical network, from the port of a pod of the node
	AboutKernel = "kernel" // packets that come from OVN through the management port
	AboutBridge = "bridge" // packets that enter the external bridge
	// AboutConnection asks for a node's connection tracking entries.
	AboutConnection = "connection"
	// AboutProbe is not a question but a request: the node sends a packet as one of its pods.
	AboutProbe = "probe"
)

// second names the bridge for external gateways in a question.
const second = "second"

var abouts = []string{AboutOVN, AboutKernel, AboutBridge, AboutConnection, AboutProbe}

// IsProbe reports whether a path is that of a request to send a probe.
func IsProbe(path string) bool { return strings.HasSuffix(path, "/"+AboutProbe) }

// IsProbed reports whether probes may be sent to an address. Link-local addresses, such as a cloud's metadata
// service, are excluded: probes of them would act with the node's identity.
func IsProbed(a netip.Addr) bool { return topology.IsUnicast(a) }

// The protocols.
const (
	TCP = "tcp"
	UDP = "udp"
)

// SourcePort is the source port of a traced packet.
const SourcePort = 40000

// mostChoices limits how many next hops of a policy are tried.
const mostChoices = 16

// Question asks a node about a packet.
type Question struct {
	Node, About string
	// Pod is the sender, "namespace/name"; for AboutOVN and AboutProbe only.
	Pod string
	// Source is the packet's current source address; for all other kinds.
	Source netip.Addr
	// Port is the source port; for AboutConnection only.
	Port     uint16
	To       netip.AddrPort
	Protocol string
	// Choice is the number of the next hop where OVN has several; 0 means any.
	Choice int
	// Mark is the packet's mark.
	Mark uint32
	// Host means that the packet enters the bridge from the host rather than from OVN.
	Host bool
	// Second means that the packet enters the bridge for external gateways.
	Second bool
}

// Audience returns the audience of tokens for questions to a node, which are useless elsewhere.
func Audience(node string) string { return "trace.egress.ovnkube/" + node }

// Path returns the URL path of the question and its query parameters.
func (q Question) Path() (string, url.Values) {
	v := url.Values{"to": {q.To.String()}, "protocol": {q.Protocol}}
	if q.Pod != "" {
		v.Set("pod", q.Pod)
	}
	if q.Source.IsValid() {
		v.Set("source", q.Source.String())
	}
	if q.Port != 0 {
		v.Set("port", strconv.Itoa(int(q.Port)))
	}
	if q.Choice != 0 {
		v.Set("choice", strconv.Itoa(q.Choice))
	}
	if q.Mark != 0 {
		v.Set("mark", strconv.FormatUint(uint64(q.Mark), 10))
	}
	if q.Host {
		v.Set("from", "host")
	}
	if q.Second {
		v.Set("bridge", second)
	}
	return Root + q.Node + "/" + q.About, v
}

// NodeOf returns the node that a URL path addresses.
func NodeOf(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, Root)
	node, _, more := strings.Cut(rest, "/")
	if !ok || !more || len(validation.IsDNS1123Subdomain(node)) > 0 {
		return "", fmt.Errorf("no path of a question; allowed: %sNODE/{%s}", Root, strings.Join(abouts, ","))
	}
	return node, nil
}

// Decode parses a question. It refuses anything that is not a valid one, whoever asks.
func Decode(path string, v url.Values) (Question, error) {
	node, err := NodeOf(path)
	if err != nil {
		return Question{}, err
	}
	q := Question{Node: node, About: strings.TrimPrefix(path, Root+node+"/"), Protocol: v.Get("protocol"), Pod: v.Get("pod")}
	if !slices.Contains(abouts, q.About) {
		return q, fmt.Errorf("%q: unknown question; allowed: %s", q.About, strings.Join(abouts, ", "))
	}
	for name, values := range v {
		if !slices.Contains([]string{"to", "protocol", "pod", "source", "port", "choice", "mark", "from", "bridge"}, name) || len(values) != 1 {
			return q, fmt.Errorf("%q: unknown parameter, or given twice", name)
		}
	}
	if q.Protocol != TCP && q.Protocol != UDP {
		return q, fmt.Errorf("protocol %q: allowed: %s, %s", q.Protocol, TCP, UDP)
	}
	if q.To, err = netip.ParseAddrPort(v.Get("to")); err != nil || q.To.Port() == 0 || !explain.IsDestination(q.To.Addr()) || IsProbe(path) && !IsProbed(q.To.Addr()) {
		return q, fmt.Errorf("to %q: no destination; allowed: ADDRESS:PORT", v.Get("to"))
	}
	return q, q.decodeRest(v)
}

// decodeRest parses the parameters that depend on the kind of question.
func (q *Question) decodeRest(v url.Values) error {
	number := func(name string, most uint64) (uint64, error) {
		if !v.Has(name) {
			return 0, nil
		}
		n, err := strconv.ParseUint(v.Get(name), 10, 32)
		if err != nil || n > most {
			return 0, fmt.Errorf("%s %q: no number of one", name, v.Get(name))
		}
		return n, nil
	}
	choice, err := number("choice", mostChoices)
	if err != nil {
		return err
	}
	mark, err := number("mark", 1<<32-1)
	if err != nil {
		return err
	}
	port, err := number("port", 1<<16-1)
	if err != nil {
		return err
	}
	q.Choice, q.Mark, q.Port, q.Host = int(choice), uint32(mark), uint16(port), v.Get("from") == "host"
	switch {
	case q.Host != v.Has("from") || q.Host && q.About != AboutBridge:
		return fmt.Errorf("from %q: allowed: host, of a question about the bridge", v.Get("from"))
	case (q.Port != 0) != (q.About == AboutConnection) || v.Has("port") && q.Port == 0:
		return fmt.Errorf("port %q: a question about a connection has one, no other question", v.Get("port"))
	case q.Choice != 0 && q.About != AboutOVN:
		return errors.New("choice belongs to questions about OVN")
	case q.Mark != 0 && q.About != AboutKernel && q.About != AboutBridge:
		return errors.New("mark belongs to questions about the kernel and the bridge")
	}
	q.Second = v.Get("bridge") == second
	if q.Second != v.Has("bridge") || q.Second && (q.About != AboutBridge || q.Host) {
		return fmt.Errorf("bridge %q: allowed: %s, of a question about what comes to a bridge from OVN", v.Get("bridge"), second)
	}
	if q.About == AboutOVN || q.About == AboutProbe {
		namespace, name, _ := strings.Cut(q.Pod, "/")
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 || v.Has("source") {
			return fmt.Errorf("pod %q: allowed: NAMESPACE/NAME, without a source", q.Pod)
		}
		return nil
	}
	if q.Source, err = netip.ParseAddr(v.Get("source")); err != nil || !unicast(q.Source) || q.Source.Is4() != q.To.Addr().Is4() {
		return fmt.Errorf("source %q: no address of the destination's family", v.Get("source"))
	}
	if v.Has("pod") {
		return errors.New("pod belongs to questions about OVN, and to probes")
	}
	return nil
}

func unicast(a netip.Addr) bool { return topology.IsUnicast(a) && a.Zone() == "" && !a.Is4In6() }

// Facts are a node's answer; the field of the kind that was asked about is set.
type Facts struct {
	APIVersion string      `json:"apiVersion"`
	Node       string      `json:"node"`
	AsOf       metav1.Time `json:"asOf"`
	OVN        *OVN        `json:"ovn,omitempty"`
	Kernel     *Kernel     `json:"kernel,omitempty"`
	Bridge     *Bridge     `json:"bridge,omitempty"`
	Connection *Connection `json:"connection,omitempty"`
	Probed     *Probed     `json:"probed,omitempty"`
}

// Kernel is what the kernel of a node does with a packet that it forwards.
type Kernel struct {
	// Rules are the ip rules that match on the packet's source.
	Rules []string `json:"rules,omitempty"`
	// Interface is the outgoing interface, Gateway the next hop, and Table the routing table.
	Interface string     `json:"interface,omitempty"`
	Gateway   netip.Addr `json:"gateway,omitzero"`
	Table     int        `json:"table,omitempty"`
	// Unroutable is the reason why there is no route.
	Unroutable string `json:"unroutable,omitempty"`
	// Local means that the packet is for the node itself.
	Local bool `json:"local,omitempty"`
	// Bridge is the external bridge, and External whether Interface belongs to it.
	Bridge   string `json:"bridge,omitempty"`
	ToBridge bool   `json:"toBridge,omitempty"`
	// Forward and NAT are the verdicts of the iptables tables filter and nat.
	Forward Verdict `json:"forward,omitzero"`
	NAT     Verdict `json:"nat,omitzero"`
	// Source is the source address with which the packet leaves.
	Source netip.Addr `json:"source,omitzero"`
}
