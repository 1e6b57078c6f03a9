package ask

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// HTTP asks by HTTP. It does not verify the certificates of servers.
type HTTP struct {
	From Namespace
	// Timeout is how long to wait for each whole answer.
	Timeout time.Duration
	// SCTP connects by SCTP instead of TCP.
	SCTP bool
	// Token is a token of the API server to send; empty for none.
	Token string
}

// Get returns the body of a successful answer, over a new connection.
func (h HTTP) Get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	c := h.connector(ctx)
	defer c.end()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: c.dial}
	client := &http.Client{Timeout: h.Timeout, Transport: transport}
	if h.Token != "" { // only then: the errors of an http.Client with another transport do not always say that its time was up
		client.Transport = bearer{transport, h.Token}
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), nil
}

// bearer sends requests with a token.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// connector makes the connections of one question. An http.Transport goes on connecting when the question has failed, and
// closes connections some time after the answer: packets would be sent later, from the namespace of a pod that may be
// about to be deleted.
type connector struct {
	HTTP
	ctx  context.Context
	stop context.CancelFunc

	mu    sync.Mutex // held while connecting
	conns []net.Conn
}

func (h HTTP) connector(ctx context.Context) *connector {
	c := &connector{HTTP: h}
	c.ctx, c.stop = context.WithCancel(ctx)
	return c
}

// dial connects. Its own context would not end with the request.
func (c *connector) dial(_ context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, err := c.From.connect(address, func() (net.Conn, error) {
		if c.SCTP {
			return dialSCTP(c.ctx, address, c.Timeout)
		}
		return (&net.Dialer{}).DialContext(c.ctx, network, address)
	})
	if err != nil {
		return nil, err
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// end closes all connections, also one that is just being made.
func (c *connector) end() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close() // closed already after a complete answer
	}
}

// get writes the body of an answer, or of several that are asked for one after the other.
func get(ctx context.Context, from Namespace, out io.Writer, args []string) error {
	h := HTTP{From: from}
	flags := flag.NewFlagSet("get", flag.ContinueOnError)
	flags.DurationVar(&h.Timeout, "timeout", defaultTimeout, "how long to wait for each whole answer")
	count := flags.Int("count", 1, "how many times to ask")
	flags.BoolVar(&h.SCTP, "sctp", false, "connect by SCTP instead of TCP")
	flags.StringVar(&h.Token, "token", "", "a token of the API server to send")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: probe get URL")
	}
	for range *count {
		body, err := h.Get(ctx, flags.Arg(0))
		if err != nil {
			return err
		}
		fmt.Fprintln(out, body)
	}
	return nil
}

const (
	// defaultTimeout is how long to wait for an answer.
	defaultTimeout = 3 * time.Second
	// surveyAtOnce is how many URLs are fetched at a time. The first packets of connections are slow in
	// a datapath in userspace: with many more at a time, some answers would come after the timeout.
	surveyAtOnce = 16
)

// survey gets several URLs, and writes a JSON object with the answer or the error for each URL.
func survey(ctx context.Context, from Namespace, out io.Writer, args []string) error {
	h := HTTP{From: from}
	flags := flag.NewFlagSet("survey", flag.ContinueOnError)
	flags.DurationVar(&h.Timeout, "timeout", defaultTimeout, "how long to wait for each whole answer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("usage: probe survey [-timeout DURATION] URL [URL]")
	}
	answers, limit := make([]string, flags.NArg()), make(chan struct{}, surveyAtOnce)
	var all sync.WaitGroup
	for i, url := range flags.Args() {
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			body, err := h.Get(ctx, url)
			if err != nil {
				body = err.Error()
			}
			answers[i] = body
		})
	}
	all.Wait()
	said := map[string]string{}
	for i, url := range flags.Args() {
		said[url] = answers[i]
	}
	return json.NewEncoder(out).Encode(said)
}
