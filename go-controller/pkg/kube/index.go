package kube

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// AddIndex adds an index to an informer of T, unless it already has one of that name. It must be
// called before the informer starts. An object for which keys panics is in the
// cache but not in the index, since a panic would end the informer.
func AddIndex[T any](inf cache.SharedIndexInformer, name string, keys func(T) []string) error {
	if _, ok := inf.GetIndexer().GetIndexers()[name]; ok {
		return nil
	}
	err := inf.AddIndexers(cache.Indexers{name: func(obj any) (found []string, _ error) {
		o, ok := obj.(T)
		if !ok {
			return nil, nil
		}
		_ = panics.Catch("index", func() error { // already logged
			found = keys(o)
			return nil
		})
		return found, nil
	}})
	if err != nil {
		return fmt.Errorf("index %T by %s: %w", *new(T), name, err)
	}
	return nil
}
