package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

const (
	// requestTimeout is how long to wait for one request: there may be no issuer to answer it.
	requestTimeout = time.Minute
	poll           = 250 * time.Millisecond
)

// Node maintains the certificate of a node in a directory.
type Node struct {
	Client kubernetes.Interface
	Name   string
	Dir    pki.Dir
	Now    func() time.Time

	// open is the name of the request that has not been answered yet, "" if there is none.
	open string
}

// Run maintains the certificate until ctx is done.
func (n *Node) Run(ctx context.Context) error {
	after := retry
	for ctx.Err() == nil {
		err := n.Ensure(ctx)
		if err == nil {
			after = retry
			pause(ctx, interval)
			continue
		}
		if ctx.Err() == nil {
			klog.ErrorS(err, "No certificate for this node, will retry", "node", n.Name, "after", after)
		}
		pause(ctx, after)
		after = min(2*after, requestTimeout)
	}
	return nil
}

// Ensure requests a certificate unless there is one that is valid and will be for some time.
func (n *Node) Ensure(ctx context.Context) error {
	cert, err := n.Dir.Certificate(Name, n.Name)
	if err == nil && !pki.Due(cert, n.Now()) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.ErrorS(err, "The certificate cannot be used, requesting another one")
	}
	if cert, err = n.request(ctx); err != nil {
		return err
	}
	klog.V(2).InfoS("Certificate written", "node", n.Name, "until", cert.NotAfter.UTC().Format(time.DateOnly))
	if now := n.Now(); now.Before(cert.NotBefore) { // looked at again after the interval: another one would be no better
		klog.InfoS("The certificate is not valid yet: the clock of this node is behind that of ovnkube-pki", "node", n.Name, "from", cert.NotBefore.UTC(), "now", now.UTC())
	}
	return nil
}

// request waits for the answer to a request. One that is not answered in time stays open, and the next attempt waits
// for it: the API server keeps it for a day.
func (n *Node) request(ctx context.Context) (*x509.Certificate, error) {
	client := n.Client.CertificatesV1().CertificateSigningRequests()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if n.open == "" {
		request, err := n.Dir.Request(Name, n.Name)
		if err != nil {
			return nil, err
		}
		csr, err := client.Create(ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "ovnkube-node-"},
			Spec:       certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: SignerName, Usages: usages},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("ask for a certificate: %w", err)
		}
		n.open = csr.Name
	}
	for {
		csr, err := client.Get(ctx, n.open, metav1.GetOptions{})
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("certificate request %s: not answered after %s: does ovnkube-pki run?", n.open, requestTimeout)
		case apierrors.IsNotFound(err):
			name := n.open
			n.open = ""
			return nil, fmt.Errorf("certificate request %s is gone without an answer", name)
		case err != nil:
			return nil, fmt.Errorf("wait for certificate request %s: %w", n.open, err)
		case len(csr.Status.Certificate) > 0:
			n.open = ""
			return n.Dir.Accept(Name, csr.Status.Certificate)
		}
		for _, what := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
			if c := condition(csr, what); c != nil {
				n.open = ""
				return nil, fmt.Errorf("certificate request %s: %s: %s", csr.Name, c.Reason, c.Message)
			}
		}
		pause(ctx, poll)
	}
}
