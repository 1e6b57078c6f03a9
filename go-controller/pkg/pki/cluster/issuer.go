package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

// Keys of Secrets, which are the file names where they are mounted.
const (
	keyCert = Name + "-cert.pem"
	keyKey  = Name + "-privkey.pem"
	keyCA   = "cacert.pem"
)

// Name is the name of certificates and keys in directories and Secrets.
const Name = "ovn"

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	lifetime          = 90 * 24 * time.Hour
	// interval is how often certificates are checked for how long they are still valid.
	interval = time.Hour
	// retry is how long a node waits after a failure; after each further one the wait doubles.
	retry = time.Second
)

// The authorities, by the names of their Secrets.
const (
	controlPlane = "ovn-authority-control-plane"
	nodes        = "ovn-authority-nodes"
	// metrics signs for servers of metrics: the others' clients would accept these as databases.
	metrics = "ovn-authority-metrics"
)

// entry is a Secret with a certificate of the control plane.
type entry struct {
	name, authority string
	subject         pki.Subject
	// trusts is another authority whose certificates are accepted. Never set for a database: whoever has a
	// certificate that the database trusts may read all of it.
	trusts string
}

// A member of a clustered database is a client of the other members, and runs next to ovn-northd.
var entries = []entry{
	{name: "ovn-nb", authority: controlPlane, subject: pki.Subject{Name: "nb", DNS: []string{"nb"}, Server: true, Client: true}},
	{name: "ovn-sb", authority: nodes, subject: pki.Subject{Name: "sb", DNS: []string{"sb"}, Server: true}},
	{name: "ovn-sb-masters", authority: controlPlane, subject: pki.Subject{Name: "sb", DNS: []string{"sb"}, Server: true, Client: true}},
	{name: "ovnkube-master", authority: controlPlane, subject: pki.Subject{Name: "master", Client: true}, trusts: nodes}, // health checks
	{name: "ovnkube-metrics", authority: metrics, subject: pki.Subject{Name: "ovnkube-metrics", DNS: []string{"ovnkube-metrics"}, Server: true}},
}

// Issuer holds the authorities.
type Issuer struct {
	Client    kubernetes.Interface
	Namespace string
	Now       func() time.Time
	// Events is where a lost authority is reported.
	Events record.EventRecorder
}

// Run maintains the Secrets and signs requests until ctx is done.
func (i Issuer) Run(ctx context.Context) error {
	secrets, err := i.keep(ctx)
	if err != nil {
		return err
	}
	requests := i.requests()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return secrets.Run(running, 1) })
	group.Go(func() error {
		select {
		case <-secrets.Attempted(): // a lost authority does not concern what another one signs
			return requests.run(running)
		case <-running.Done():
			return nil
		}
	})
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// keep returns the controller of the Secrets, which has one key for all of them: it is reconciled when one changes, for
// example because somebody has deleted it, and at an interval, because certificates have to be renewed.
func (i Issuer) keep(ctx context.Context) (*queue.Controller, error) {
	const all = "certificates of the control plane"
	var c *queue.Controller
	c = queue.New("secrets", func(ctx context.Context, _ string) error {
		defer c.EnqueueAfter(interval, all)
		return i.Ensure(ctx)
	})
	c.Seed(func() []string { return []string{all} })
	names := []string{controlPlane, nodes, metrics}
	for _, e := range entries {
		names = append(names, e.name)
	}
	for _, name := range names { // the issuer may not list other Secrets
		shared := informers.NewSharedInformerFactoryWithOptions(i.Client, 0, informers.WithNamespace(i.Namespace),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}))
		if err := c.Watch(shared.Core().V1().Secrets().Informer(), func(_, _ any) []string { return []string{all} }); err != nil {
			return nil, err
		}
		shared.Start(ctx.Done())
	}
	return c, nil
}

// Ensure creates missing Secrets and renews certificates that are due. If one fails, it continues with the others.
func (i Issuer) Ensure(ctx context.Context) error {
	var errs []error
	for _, e := range entries {
		errs = append(errs, i.entry(ctx, e))
	}
	return errors.Join(errs...)
}

func (i Issuer) entry(ctx context.Context, e entry) error {
	a, err := i.authority(ctx, e.authority)
	if err != nil {
		return err
	}
	trusted := a.Certificate()
	if e.trusts != "" {
		other, err := i.authority(ctx, e.trusts)
		if err != nil {
			return err
		}
		trusted = append(trusted, other.Certificate()...)
	}
	_, err = i.secret(ctx, e.name, func(old pki.Text) (pki.Text, bool, error) {
		t, changed, err := a.Ensure(old, e.subject, i.Now(), lifetime)
		t.CA = trusted
		return t, changed || !bytes.Equal(old.CA, trusted), err
	})
	return err
}

// authority returns the existing authority, or makes the first one. An authority is never replaced, not even if its
// Secret is gone, or if it is not valid yet, because it may be the clock that is wrong now: all that it signed would
// become worthless.
func (i Issuer) authority(ctx context.Context, name string) (*pki.Authority, error) {
	t, err := i.secret(ctx, name, func(t pki.Text) (pki.Text, bool, error) {
		if t.Cert != nil {
			return t, false, nil
		}
		if err := i.first(ctx, name); err != nil {
			return pki.Text{}, false, err
		}
		a, err := pki.NewAuthority(name, i.Now(), authorityLifetime)
		if err != nil {
			return pki.Text{}, false, err
		}
		t, err = a.Text()
		return t, true, err
	})
	if err != nil {
		return nil, err
	}
	a, err := t.Authority()
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", name, err)
	}
	if now := i.Now(); now.Before(a.Cert.NotBefore) {
		err := a.Valid(now)
		i.report(name, reasonNotYetValid, err)
		return nil, fmt.Errorf("secret %s: %w", name, err)
	}
	return a, nil
}

// Reasons of Events about authorities: their Secrets are gone, and they are not valid yet.
const (
	reasonLost        = "AuthorityLost"
	reasonNotYetValid = "AuthorityNotYetValid"
)

// report reports why an authority cannot sign, in an Event.
func (i Issuer) report(name, reason string, why error) {
	i.Events.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: i.Namespace, Name: name}, corev1.EventTypeWarning, reason, why.Error())
}

// first returns an error if there has been an authority of this name: Secrets still have certificates that it signed,
// or trust it. A new authority would lock out all holders of such certificates, and whether that is acceptable is not
// for a program to decide.
func (i Issuer) first(ctx context.Context, name string) error {
	var dependents []string
	for _, e := range entries {
		secret, err := i.Client.CoreV1().Secrets(i.Namespace).Get(ctx, e.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read secret %s: %w", e.name, err)
		}
		if pki.IssuedBy(name, secret.Data[keyCert]) || pki.IssuedBy(name, secret.Data[keyCA]) {
			dependents = append(dependents, e.name)
		}
	}
	if len(dependents) == 0 {
		return nil
	}
	err := fmt.Errorf("the authority is lost, but these secrets depend on it: %s. Restore it from a backup; if there is none, docs/certificates.md says how to begin with a new authority",
		strings.Join(dependents, ", "))
	i.report(name, reasonLost, err)
	return err
}

// secret returns the content of a Secret after ensure has made the necessary changes.
func (i Issuer) secret(ctx context.Context, name string, ensure func(pki.Text) (pki.Text, bool, error)) (pki.Text, error) {
	client := i.Client.CoreV1().Secrets(i.Namespace)
	secret, err := client.Get(ctx, name, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return pki.Text{}, fmt.Errorf("read secret %s: %w", name, err)
	}
	if absent {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	t, changed, err := ensure(pki.Text{Key: secret.Data[keyKey], Cert: secret.Data[keyCert], CA: secret.Data[keyCA]})
	if err != nil {
		return pki.Text{}, fmt.Errorf("secret %s: %w", name, err)
	}
	if !changed {
		return t, nil
	}
	// If another issuer was quicker, the server refuses this update.
	secret = secret.DeepCopy()
	secret.Data = map[string][]byte{keyKey: t.Key, keyCert: t.Cert, keyCA: t.CA}
	if absent {
		_, err = client.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = client.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return pki.Text{}, fmt.Errorf("write secret %s: %w", name, err)
	}
	klog.V(2).InfoS("Certificate written", "secret", name, "new", absent)
	return t, nil
}

// pause waits for d, and reports whether ctx is not done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
