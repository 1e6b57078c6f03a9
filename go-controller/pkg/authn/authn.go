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

// Header has the token of a request that comes through the proxy of the API server.
const Header = "X-Egress-Token"

const (
	// lifetime is how long an answer of the API server is used.
	lifetime = 10 * time.Second
	// remembered bounds how many answers of a kind are kept.
	remembered = 1024
	// atOnce bounds how many questions are asked at a time.
	atOnce = 4
	// patience bounds how long a request waits for its turn and the answers.
	patience = 10 * time.Second
	// longest bounds the length of a token.
	longest = 16 << 10
)

// User is who sends a request.
type User = authenticationv1.UserInfo

// Access is what a request asks for: an object, or a path that is no object's.
type Access struct {
	Verb string // "get", "create"
	// Group, Resource, Subresource, Namespace and Name are the object's: "", "nodes",
	// "trace", "", "ovn-worker".
	Group, Resource, Subresource, Namespace, Name string
	// Path is that of a nonResourceURL, such as "/egress"; Resource is empty then.
	Path string
}

// String says what it is, as the API server does.
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

// Reviewer asks the API server about requests. It is safe for concurrent use.
type Reviewer struct {
	kube      kubernetes.Interface
	audiences []string
	slots     chan struct{}
	users     *answers[[sha256.Size]byte, *User]
	allowed   *answers[string, verdict]
}

// verdict is what the API server says of a user and an access.
type verdict struct {
	allowed bool
	why     string
}

// New returns a Reviewer for tokens that have one of the audiences, without any for those of
// the API server itself. It must be allowed to create TokenReviews and
// SubjectAccessReviews.
func New(kube kubernetes.Interface, audiences ...string) *Reviewer {
	return &Reviewer{kube: kube, audiences: audiences, slots: make(chan struct{}, atOnce),
		users: newAnswers[[sha256.Size]byte, *User](), allowed: newAnswers[string, verdict]()}
}

// ErrUnauthenticated says that nobody knows whose a token is, or that there is none.
var ErrUnauthenticated = errors.New("unauthenticated")

// ErrForbidden says that the user may not.
var ErrForbidden = errors.New("forbidden")

// Review returns who has sent a token, if they may have access. The error is or wraps
// ErrUnauthenticated or ErrForbidden where the API server has said so.
func (r *Reviewer) Review(ctx context.Context, token string, access Access) (*User, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
		err := r.ask(ctx, func() (err error) {
			review, err = r.kube.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("review a token: %w", err)
		}
		// An API server that knows no audiences answers without any: then the token may
		// be meant for something else.
		meant := len(r.audiences) == 0 ||
			slices.ContainsFunc(review.Status.Audiences, func(a string) bool { return slices.Contains(r.audiences, a) })
		if !review.Status.Authenticated || !meant {
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
		err := r.ask(ctx, func() (err error) {
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

// ask asks the API server when it is our turn.
func (r *Reviewer) ask(ctx context.Context, question func() error) error {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
		return question()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Guard lets requests through to next whose users may have the access that is theirs. An
// error of access is answered as a bad request.
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
			klog.ErrorS(err, "Cannot tell whether a request is allowed")
			http.Error(w, "cannot tell whether the request is allowed: "+err.Error(), http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), userKey{}, user)))
		}
	})
}

type userKey struct{}

// UserOf returns who has sent the request that Guard has let through with this context.
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
