package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// TestWaitsOfTheStart: until a start is over, the objects it waits for are reported
// by name, with the maximum waiting time.
func TestWaitsOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hang, mended := make(chan struct{}), make(chan struct{})
		c := New("things", func(_ context.Context, key string) error {
			switch key {
			case "slow":
				<-hang
			case "odd":
				select {
				case <-mended:
				default:
					return errors.New("not yet")
				}
			}
			return nil
		})
		cs := fakeapi.NewClientset()
		factory := informers.NewSharedInformerFactory(cs, fakeapi.NoResync)
		if err := c.Watch(factory.Core().V1().Pods().Informer(), func(_, _ any) []string { return nil }); err != nil {
			t.Fatal(err)
		}
		c.Seed(func() []string { return []string{"slow", "odd", "fine"} })
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx, 2) }()
		is := func(when, want string) {
			t.Helper()
			synctest.Wait()
			var all []string
			for _, w := range waits.All() {
				if w.Part == "things" {
					all = append(all, w.String()+" "+w.Reason)
				}
			}
			if got := strings.Join(all, "\n"); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		is("without objects", "things waits for the first lists of 1 of 1 kinds (since 2000-01-01T00:00:00Z) ")
		fakeapi.Start(ctx, t, cs, factory)
		<-time.After(time.Second)
		is("with an object that hangs", "things waits for start-up objects to be tried once: slow (since 2000-01-01T00:00:00Z, for 1m0s at most) WaitingForStart")
		close(hang)
		is("with an object that fails", "things waits for start-up objects to succeed, before leftovers are deleted: odd (since 2000-01-01T00:00:00Z) ")
		close(mended)
		<-time.After(maxBackoff)
		is("at the end", "")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		is("after the end", "")
	})
}

// TestNames: a start with many objects names only some of them.
func TestNames(t *testing.T) {
	keys := map[string]struct{}{}
	for i := range maxNamed + 2 {
		keys[fmt.Sprintf("k%02d", i)] = struct{}{}
	}
	if got := names(keys); !strings.HasSuffix(got, "k08, k09 and 2 more") {
		t.Errorf("named: %s", got)
	}
}
