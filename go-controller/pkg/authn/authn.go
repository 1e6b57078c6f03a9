package authn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Header is the header with the token of a request that comes through the API server's proxy.
const Header = "X-Egress-Token"

const (
	// lifetime is how long an answer of the API server is used by default.
	lifetime = 10 * time.Second
	// remembered is the maximum number of cached answers of each kind.
	remembered = 1024
	// atOnce limits how many reviews are requested concurrently.
	atOnce = 4
	// reviewTimeout limits how long a request waits for its turn.
	reviewTimeout = 10 * time.Second
	// answerTimeout limits how long the API server may take for an answer. A request needs two, and Prometheus waits ten
	// seconds for metrics by default.
	answerTimeout = 4 * time.Second
	// outage is how long a Reviewer that remembers uses positive answers while the API server cannot be asked.
	outage = time.Hour
	// longest is the maximum length of a token, in bytes.
	longest = 16 << 10
)

// User is who sends a request.
type User = authenticationv1.UserInfo

// Access is what a request asks for: an object, or a non-resource path.
type Access struct {
	Verb string // "get", "create"
	// Group, Resource, Subresource, Namespace and Name identify the object: "", "nodes", "trace", "", "ovn-worker".
	Group, Resource, Subresource, Namespace, Name string
	// Path is the path of a nonResourceURL, such as "/egress"; Resource is then empty.
	Path string
}

// String formats the access as the API server does.
func (a Access) String() string {
	if a.Resource == "" {
		return fmt.Sprintf("%s %s", a.Verb, a.Path)
	}
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	if a.Group != "" {
		what += "." + a.Group
	}
	if name := strings.TrimPrefix(a.Namespace+"/"+a.Name, "/"); name != "" {
		what += " " + name
	}
	return a.Verb + " " + what
}

// Reviewer authenticates and authorizes requests by asking the API server. It is safe for concurrent use.
type Reviewer struct {
	kube      kubernetes.Interface
	audiences []string
	slots     chan struct{}
	users     *answers[[sha256.Size]byte, *User]
	allowed   *answers[string, verdict]
}

// verdict is what the API server says about a user and an access.
type verdict struct {
	allowed bool
	why     string
}

// New returns a Reviewer for tokens with one of the audiences; without audiences, for tokens of the API server
// itself. It needs permission to create TokenReviews and SubjectAccessReviews.
func New(kube kubernetes.Interface, audiences ...string) *Reviewer {
	return &Reviewer{kube: kube, audiences: audiences, slots: make(chan struct{}, atOnce),
		users:   newAnswers[[sha256.Size]byte](func(u *User) bool { return u != nil }),
		allowed: newAnswers[string](func(v verdict) bool { return v.allowed })}
}

// Remember makes the Reviewer use answers of the API server for another time than ten seconds, for requests that repeat.
// While the API server cannot be asked it lets those in whom it has let in within the last hour. It must be called before
// the first review.
func (r *Reviewer) Remember(lifetime time.Duration) *Reviewer {
	r.users.lifetime, r.allowed.lifetime = lifetime, lifetime
	r.users.outage, r.allowed.outage = outage, outage
	return r
}

// ErrUnauthenticated means that there is no token, or that it is not valid.
var ErrUnauthenticated = errors.New("unauthenticated")

// ErrForbidden means that the user does not have permission.
var ErrForbidden = errors.New("forbidden")

// Review returns the user of a token, if the user has the access. The error is or wraps ErrUnauthenticated or
// ErrForbidden if the API server has refused.
func (r *Reviewer) Review(ctx context.Context, token string, access Access) (*User, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	user, err := r.authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	return user, r.authorize(ctx, user, access)
}

func (r *Reviewer) authenticate(ctx context.Context, token string) (*User, error) {
	if token == "" {
		return nil, fmt.Errorf("%w: the request has no token", ErrUnauthenticated)
	}
	if len(token) > longest {
		return nil, fmt.Errorf("%w: the token is too long", ErrUnauthenticated)
	}
	user, err := r.users.get(sha256.Sum256([]byte(token)), func() (*User, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: r.audiences}}
		err := r.ask(ctx, func(ctx context.Context) (err error) {
			review, err = r.kube.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("review a token: %w", err)
		}
		// An API server that does not support audiences returns none: the token may then be meant for something
		// else.
		audienceMatches := len(r.audiences) == 0 ||
			slices.ContainsFunc(review.Status.Audiences, func(a string) bool { return slices.Contains(r.audiences, a) })
		if !review.Status.Authenticated || !audienceMatches {
			return nil, nil
		}
		return &review.Status.User, nil
	})
	if err == nil && user == nil {
		return nil, fmt.Errorf("%w: the API server does not know the token, or it is meant for something else", ErrUnauthenticated)
	}
	return user, err
}

func (r *Reviewer) authorize(ctx context.Context, user *User, a Access) error {
	spec := authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra(user)}
	if a.Resource == "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
	} else {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: a.Verb, Group: a.Group, Resource: a.Resource,
			Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name}
	}
	v, err := r.allowed.get(spec.String(), func() (verdict, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		err := r.ask(ctx, func(ctx context.Context) (err error) {
			review, err = r.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return verdict{}, fmt.Errorf("review the access of %s: %w", user.Username, err)
		}
		return verdict{review.Status.Allowed, cmp.Or(review.Status.Reason, review.Status.EvaluationError)}, nil
	})
	switch {
	case err != nil:
		return err
	case !v.allowed:
		err = fmt.Errorf("%w: %s may not %s", ErrForbidden, user.Username, a)
		if v.why != "" {
			err = fmt.Errorf("%w: %s", err, v.why)
		}
		return err
	}
	return nil
}

func extra(u *User) map[string]authorizationv1.ExtraValue {
	out := make(map[string]authorizationv1.ExtraValue, len(u.Extra))
	for k, v := range u.Extra {
		out[k] = authorizationv1.ExtraValue(v)
	}
	return out
}

// ask asks the API server once it is our turn. The question does not end with the request: whoever sends it must not be
// able to make the API server look as if it did not answer.
func (r *Reviewer) ask(ctx context.Context, question func(context.Context) error) error {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		return unanswered(question(ctx))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Guard passes a request on to next if its user has the access that the function returns for it. If the function
// returns an error, the answer is Bad Request.
func (r *Reviewer) Guard(access func(*http.Request) (Access, error), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		wanted, err := access(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		user, err := r.Review(req.Context(), token(req), wanted)
		switch {
		case errors.Is(err, ErrUnauthenticated):
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case errors.Is(err, ErrForbidden):
			klog.InfoS("Request refused", "user", user.Username, "access", wanted.String())
			http.Error(w, err.Error(), http.StatusForbidden)
		case err != nil:
			klog.ErrorS(err, "Cannot authorize a request")
			http.Error(w, "cannot tell whether the request is allowed: "+err.Error(), http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), userKey{}, user)))
		}
	})
}

type userKey struct{}

// UserOf returns the user of the request that Guard has passed on with this context.
func UserOf(ctx context.Context) (*User, bool) {
	u, ok := ctx.Value(userKey{}).(*User)
	return u, ok
}

// token returns the token of a request.
func token(r *http.Request) string {
	if t := r.Header.Get(Header); t != "" {
		return t
	}
	scheme, t, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(t)
}
