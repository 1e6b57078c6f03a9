package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"time"
)

// account is where a pod finds its service account token and CA.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// api asks the API server for something that requires authentication, and prints the address that
// answered. Without flags it does what every client in a pod does: connect to the address in the
// environment, and trust the cluster's CA.
func api(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	host := flags.String("host", os.Getenv("KUBERNETES_SERVICE_HOST"), "name or address of the API server")
	port := flags.String("port", os.Getenv("KUBERNETES_SERVICE_PORT"), "its port")
	as := flags.String("as", "", "the name in its certificate, where it is not the host's")
	nameserver := flags.String("nameserver", "", "address and port of the name server to ask, not those of resolv.conf")
	timeout := flags.Duration("timeout", 5*time.Second, "how long to wait for the whole answer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return errors.New("no certificate in ca.crt")
	}
	dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	if *nameserver != "" {
		dialer.Resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, *nameserver)
		}
	}
	var answered net.Addr
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { answered = info.Conn.RemoteAddr() },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(*host, *port)+"/api", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Close = true
	client := http.Client{Transport: &http.Transport{
		DialContext:     dialer.DialContext,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: *as},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	fmt.Println(answered)
	return nil
}
