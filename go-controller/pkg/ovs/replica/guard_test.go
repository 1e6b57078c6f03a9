package replica_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/replica"
)

// TestGuard: only what the replica logs matters, and events only once it was filled. Everything is passed on.
func TestGuard(t *testing.T) {
	var broken, logged []string
	g := replica.NewGuard(func(err error) { broken = append(broken, err.Error()) })
	to := funcr.New(func(prefix, args string) { logged = append(logged, prefix+" "+args) }, funcr.Options{})
	log := g.Logger(to).WithValues("database", "NB")
	cache := log.WithName("cache")
	log.Error(errors.New("a"), "of the client")
	log.Info("of the client")
	cache.Info("event 1")
	cache.V(1).Info("detail")
	g.Filled()
	cache.Info("event 2")
	cache.Error(errors.New("b"), "of the replica")
	if want := []string{"a replica changed faster than the changes were handled: event 2", "update a replica: b"}; !slices.Equal(broken, want) {
		t.Errorf("broken: %q, want %q", broken, want)
	}
	want := []string{
		` "msg"="of the client" "error"="a" "database"="NB"`,
		` "level"=0 "msg"="of the client" "database"="NB"`,
		`cache "level"=0 "msg"="event 1" "database"="NB"`,
		`cache "level"=0 "msg"="event 2" "database"="NB"`,
		`cache "msg"="of the replica" "error"="b" "database"="NB"`,
	}
	if !slices.Equal(logged, want) {
		t.Errorf("logged:\n%q, want\n%q", logged, want)
	}
}

// TestQuietLogger: the guard does not depend on what is logged.
func TestQuietLogger(t *testing.T) {
	for _, to := range []logr.Logger{logr.Discard(), logr.Discard().V(4)} {
		var broken int
		g := replica.NewGuard(func(error) { broken++ })
		g.Filled()
		log := g.Logger(to).WithName("cache")
		log.Info("event")
		log.Error(fmt.Errorf("error"), "message")
		if broken != 2 {
			t.Errorf("told %d times", broken)
		}
	}
}
