package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions/egressip/v1"
	egressiplisters "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/listers/egressip/v1"
)

// listed is an informer whose content never changes.
type listed struct {
	egressipinformers.EgressIPInformer
	indexer cache.Indexer
}

func (l listed) Informer() cache.SharedIndexInformer { return syncedInformer{} }
func (l listed) Lister() egressiplisters.EgressIPLister {
	return egressiplisters.NewEgressIPLister(l.indexer)
}

type syncedInformer struct{ cache.SharedIndexInformer }

func (syncedInformer) HasSynced() bool { return true }

// TestOutlast: a returning node with addresses waits as long as the master
// may take to assign them to other nodes, and for the event about it. A node without addresses does
// not wait.
func TestOutlast(t *testing.T) {
	const silence = 4 * time.Second
	for name, c := range map[string]struct {
		egressIP *v1.EgressIP
		silence  time.Duration
		waits    bool
	}{
		"holds":                    {object("prod", []string{four}, []string{four + " " + self}, self+" "+four), silence, true},
		"holds, a patient master":  {object("prod", []string{four}, []string{four + " " + self}, self+" "+four), 123 * time.Second, true},
		"holds, no silence is bad": {object("prod", []string{four}, []string{four + " " + self}, self+" "+four), 0, false},
		"given, not held":          {object("prod", []string{four}, []string{four + " " + self}), silence, false},
		"given to another":         {object("prod", []string{four}, []string{four + " " + other}, self+" "+four), silence, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				if err := indexer.Add(c.egressIP); err != nil {
					t.Fatal(err)
				}
				node := &Controller{deps: Deps{Node: self, EgressIPs: listed{indexer: indexer}, ReachabilityTimeout: c.silence}}
				start := time.Now()
				node.waitForStatusTimeout(t.Context())
				if waited := time.Since(start); waited > maxStatusWait+time.Second {
					t.Errorf("holds up the start for %s", waited)
				}
				// Polling the informer takes some time.
				if waited := time.Since(start); c.waits && waited < silence+silence/4 || !c.waits && waited > time.Second {
					t.Errorf("waited for %s", waited)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start = time.Now()
				node.waitForStatusTimeout(ctx)
				if waited := time.Since(start); waited > time.Second {
					t.Errorf("waited for %s after its end", waited)
				}
			})
		})
	}
}
