package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/authn"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

// Where nodes answer, as defined in dist/base/trace.yaml.
const (
	// traceAccount is the account whose tokens nodes require: whoever may request one may trace.
	traceAccount = "egress-tracer"
	// probeAccount is the account whose tokens nodes require for sending probes.
	probeAccount = "egress-prober"
	// traceService reaches any of the nodes through the API server's proxy.
	traceService = "https:ovnkube-trace:trace"
	// traceTokenSeconds is the shortest lifetime that an API server allows.
	traceTokenSeconds = 600
)

// traceCommand is the command "ovnkube egress trace".
func (e *egress) traceCommand(wrong cli.OnUsageErrorFunc, flags []cli.Flag) *cli.Command {
	return &cli.Command{
		Name: "trace", ArgsUsage: "NAMESPACE/POD", Usage: "the way of a packet out of the cluster, hop by hop, as OVN and the nodes have it now",
		OnUsageError: wrong, HideHelpCommand: true,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "What the pod sends to `ADDRESS:PORT`", Destination: &e.to},
			&cli.StringFlag{Name: "protocol", Usage: "`PROTOCOL` of the packet: tcp or udp", Value: trace.TCP},
			&cli.BoolFlag{Name: "probe", Usage: "Send a few real packets from the pod's network namespace as well, and compare"},
		}, flags...),
		Action: e.trace,
	}
}

func (e *egress) trace(c *cli.Context) error {
	key, err := e.key(c, "pod")
	if err != nil {
		return err
	}
	to, err := destination(e.to)
	switch protocol := c.String("protocol"); {
	case err != nil:
		return err
	case to.Port() == 0:
		return fmt.Errorf("--to=%s: no destination; allowed: ADDRESS:PORT, as 192.0.2.1:443 or [2001:db8::1]:443", e.to)
	case c.Bool("probe") && !trace.IsProbed(to.Addr()):
		return fmt.Errorf("--probe: nothing is sent to %s: on the link of a node it would be asked on behalf of that", to.Addr())
	case protocol != trace.TCP && protocol != trace.UDP:
		return fmt.Errorf("--protocol=%s: unknown; allowed: %s, %s", protocol, trace.TCP, trace.UDP)
	}
	ctx, cancel := context.WithTimeout(c.Context, e.timeout)
	defer cancel()
	clients, err := e.connect(e.kubeconfig, e.context)
	if err != nil {
		return err
	}
	answer, err := e.follow(ctx, clients, key, to, c.String("protocol"), c.Bool("probe"))
	if err != nil {
		return err
	}
	e.notInPlace = !answer.InPlace
	return e.write(answer)
}

// follow traces a packet by asking every node on its path.
func (e *egress) follow(ctx context.Context, clients reader.Clients, key string, to netip.AddrPort, protocol string, probe bool) (trace.Trace, error) {
	cluster, err := e.readPod(key)(ctx, clients)
	if err != nil {
		return trace.Trace{}, err
	}
	plan, err := cluster.Pod(key, to)
	if err != nil {
		return trace.Trace{}, err
	}
	t, err := trace.New(plan, to, protocol)
	if err != nil {
		return trace.Trace{}, err
	}
	if probe {
		t.Probe()
	}
	nodes := &traceClient{clients: clients, namespace: e.namespace, wait: e.wait, tokens: map[[2]string]string{}}
	for {
		q, more := t.Next()
		if !more {
			return t.Trace(), nil
		}
		facts, err := nodes.ask(ctx, q)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			verb := "trace"
			if q.About == trace.AboutProbe {
				verb = "probe"
			}
			return trace.Trace{}, fmt.Errorf("you may not %s; a binding of the role %s in namespace %s lets you: %w", verb, accountOf(q), e.namespace, err)
		}
		t.Answer(facts, err)
	}
}

// accountOf returns the account whose token is needed for a question; the role that lets users request one has the
// same name.
func accountOf(q trace.Question) string {
	if q.About == trace.AboutProbe {
		return probeAccount
	}
	return traceAccount
}

// traceClient queries nodes through the API server's proxy, with tokens that it requests as the user: each is valid for
// questions to one node and for nothing else.
type traceClient struct {
	clients   reader.Clients
	namespace string
	wait      func(context.Context, time.Duration) bool
	tokens    map[[2]string]string // by account and node
}

func (a *traceClient) ask(ctx context.Context, q trace.Question) (trace.Facts, error) {
	token, err := a.token(ctx, accountOf(q), q.Node)
	if err != nil {
		return trace.Facts{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type reply struct {
		facts trace.Facts
		err   error
	}
	replies, late := make(chan reply, attempts), make(chan struct{})
	left, running := attempts, 0
	send := func() {
		if left > 0 {
			left, running = left-1, running+1
			go func() {
				facts, err := a.send(ctx, q, token)
				replies <- reply{facts, err}
			}()
		}
	}
	retryable := unreached
	if q.About == trace.AboutProbe { // not sent again if it may have been sent
		retryable += dialError
	} else {
		go func() {
			for a.wait(ctx, slow) {
				select {
				case late <- struct{}{}:
				case <-ctx.Done():
				}
			}
		}()
	}
	for send(); ; {
		select {
		case <-late: // the node that the API server has chosen may be down
			send()
		case r := <-replies:
			running--
			switch again := apierrors.IsServiceUnavailable(r.err) && strings.Contains(r.err.Error(), retryable); {
			case running > 0 && (again || apierrors.IsTooManyRequests(r.err)): // another answer is pending
			case again && left > 0:
				send()
			default:
				return r.facts, r.err
			}
		}
	}
}

const (
	// unreached is the API server's error for a chosen node that it cannot reach: on a retry it may choose another
	// one, and every node forwards questions.
	unreached = "error trying to reach service"
	// dialError follows if no connection was made.
	dialError = ": dial "
	attempts  = 6
	// slow is longer than most answers take: until Kubernetes notices that a node has lost power, the API server
	// tries for half a minute to reach it.
	slow = 5 * time.Second
)

// send sends a question once.
func (a *traceClient) send(ctx context.Context, q trace.Question, token string) (trace.Facts, error) {
	path, values := q.Path()
	verb := http.MethodGet
	if q.About == trace.AboutProbe {
		verb = http.MethodPost
	}
	r := a.clients.Kube.CoreV1().RESTClient().Verb(verb).Namespace(a.namespace).Resource("services").Name(traceService).SubResource("proxy").
		Suffix(path).SetHeader(authn.Header, token).MaxRetries(0)
	for name, v := range values {
		r = r.Param(name, v[0])
	}
	data, err := r.Do(ctx).Raw()
	if err != nil {
		return trace.Facts{}, said(err, data)
	}
	var facts trace.Facts
	if err := json.Unmarshal(data, &facts); err != nil {
		return facts, fmt.Errorf("read the answer of node %s: %w", q.Node, err)
	}
	return facts, nil
}

// said returns an error with the response: the client, which expects another format behind a proxy, reports little
// of it. A response that is not JSON, such as a node's, is already in the error.
func said(err error, body []byte) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	answer := status.ErrStatus
	var own metav1.Status // of the API server itself
	if json.Unmarshal(body, &own) == nil && own.Message != "" {
		answer.Message = own.Message
	} else if answer.Details != nil {
		for _, c := range answer.Details.Causes {
			if text := strings.TrimSpace(c.Message); c.Type == metav1.CauseTypeUnexpectedServerResponse && text != "" && text != "unknown" {
				answer.Message = text
			}
		}
	}
	return &apierrors.StatusError{ErrStatus: answer}
}

// token returns an account's token for questions to a node.
func (a *traceClient) token(ctx context.Context, account, node string) (string, error) {
	key := [2]string{account, node}
	if t := a.tokens[key]; t != "" {
		return t, nil
	}
	seconds := int64(traceTokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{trace.Audience(node)}, ExpirationSeconds: &seconds}}
	answer, err := a.clients.Kube.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of %s: %w", account, err)
	}
	a.tokens[key] = answer.Status.Token
	return answer.Status.Token, nil
}
