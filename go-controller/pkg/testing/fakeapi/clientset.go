package fakeapi

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// NewClientset returns a fake clientset with these objects. Unlike that of fake.NewClientset, it has no managed
// fields, which only server-side apply needs: with the race detector, they take a second of processor time in each
// process, and tens of milliseconds for each write.
func NewClientset(objects ...runtime.Object) *fake.Clientset {
	return fake.NewSimpleClientset(objects...)
}
