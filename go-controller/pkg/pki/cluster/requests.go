package cluster

import (
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

const (
	// SignerName is the signer of the nodes' certificates.
	SignerName = "k8s.ovn.org/node"
	// nodeAccount is the service account of the pods that request them.
	nodeAccount = "ovnkube-node"
	// extraNode is where the API server puts the node of the pod whose token it was given.
	extraNode = "authentication.kubernetes.io/node-name"

	reasonSigned  = "NodeOfToken"
	reasonRefused = "Refused"
)

var usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}

// requests handles the nodes' certificate requests.
type requests struct {
	issuer Issuer
	shared informers.SharedInformerFactory
	lister listers.CertificateSigningRequestLister
	queue  *queue.Controller
}

func (i Issuer) requests() *requests {
	r := &requests{issuer: i, shared: informers.NewSharedInformerFactoryWithOptions(i.Client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.signerName", SignerName).String()
		}))}
	r.lister = r.shared.Certificates().V1().CertificateSigningRequests().Lister()
	r.queue = queue.New("certificate requests", r.reconcile)
	return r
}

func (r *requests) run(ctx context.Context) error {
	err := r.queue.Watch(r.shared.Certificates().V1().CertificateSigningRequests().Informer(), func(_, now any) []string {
		if csr, ok := now.(*certificatesv1.CertificateSigningRequest); ok {
			return []string{csr.Name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.shared.Start(ctx.Done())
	return r.queue.Run(ctx, 1)
}

// reconcile approves and signs a request, or denies it.
func (r *requests) reconcile(ctx context.Context, name string) error {
	csr, err := r.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read certificate request %s: %w", name, err)
	}
	if csr.Spec.SignerName != SignerName || len(csr.Status.Certificate) > 0 || has(csr, certificatesv1.CertificateDenied) || has(csr, certificatesv1.CertificateFailed) {
		return nil
	}
	node, err := r.issuer.askingNode(csr)
	if err != nil {
		klog.V(2).InfoS("Certificate request refused", "request", name, "by", csr.Spec.Username, "reason", err.Error())
		return r.refuse(ctx, csr, err)
	}
	// A request that cannot be signed yet is not approved: the API server deletes requests that are pending after a day,
	// but never those that are approved and have no certificate.
	certificate, err := r.issuer.answer(ctx, csr.Spec.Request, node)
	if err != nil {
		return fmt.Errorf("sign certificate request %s: %w", name, err)
	}
	client := r.issuer.Client.CertificatesV1().CertificateSigningRequests()
	if !has(csr, certificatesv1.CertificateApproved) {
		with := withCondition(csr, certificatesv1.CertificateApproved, reasonSigned, "the pod of the token runs on node "+node)
		if csr, err = client.UpdateApproval(ctx, name, with, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("approve certificate request %s: %w", name, err)
		}
	}
	csr = csr.DeepCopy()
	csr.Status.Certificate = certificate
	if _, err := client.UpdateStatus(ctx, csr, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("answer certificate request %s: %w", name, err)
	}
	klog.V(2).InfoS("Certificate signed", "request", name, "node", node)
	return nil
}

// answer returns the certificate of a node, and what the node trusts: the servers of the southbound database, and
// the masters that check its health.
func (i Issuer) answer(ctx context.Context, request []byte, node string) ([]byte, error) {
	a, err := i.authority(ctx, nodes)
	if err != nil {
		return nil, err
	}
	masters, err := i.authority(ctx, controlPlane)
	if err != nil {
		return nil, err
	}
	cert, err := a.SignRequest(request, node, i.Now(), lifetime)
	return slices.Concat(cert, a.Certificate(), masters.Certificate()), err
}

// askingNode returns the node of the requesting pod, or an error if nothing may be signed for it.
func (i Issuer) askingNode(csr *certificatesv1.CertificateSigningRequest) (string, error) {
	account := "system:serviceaccount:" + i.Namespace + ":" + nodeAccount
	if csr.Spec.Username != account {
		return "", fmt.Errorf("asked for by %s; signed for %s only", csr.Spec.Username, account)
	}
	names := csr.Spec.Extra[extraNode]
	if len(names) != 1 {
		return "", fmt.Errorf("the token names no node: it has to be that of a pod")
	}
	if !slices.Equal(slices.Sorted(slices.Values(csr.Spec.Usages)), slices.Sorted(slices.Values(usages))) {
		return "", fmt.Errorf("usages %q; signed for %q only", csr.Spec.Usages, usages)
	}
	_, err := pki.CheckRequest(csr.Spec.Request, names[0])
	return names[0], err
}

// refuse denies a request. If somebody else has approved it, it can only be marked as failed.
func (r *requests) refuse(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, why error) (err error) {
	client := r.issuer.Client.CertificatesV1().CertificateSigningRequests()
	if has(csr, certificatesv1.CertificateApproved) {
		_, err = client.UpdateStatus(ctx, withCondition(csr, certificatesv1.CertificateFailed, reasonRefused, why.Error()), metav1.UpdateOptions{})
	} else {
		_, err = client.UpdateApproval(ctx, csr.Name, withCondition(csr, certificatesv1.CertificateDenied, reasonRefused, why.Error()), metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("refuse certificate request %s: %w", csr.Name, err)
	}
	return nil
}

func has(csr *certificatesv1.CertificateSigningRequest, what certificatesv1.RequestConditionType) bool {
	return condition(csr, what) != nil
}

func condition(csr *certificatesv1.CertificateSigningRequest, what certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range csr.Status.Conditions {
		if csr.Status.Conditions[i].Type == what {
			return &csr.Status.Conditions[i]
		}
	}
	return nil
}

func withCondition(csr *certificatesv1.CertificateSigningRequest, what certificatesv1.RequestConditionType, reason, message string) *certificatesv1.CertificateSigningRequest {
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: what, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	})
	return csr
}
