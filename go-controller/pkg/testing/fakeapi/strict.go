package fakeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

// version is the resource version of the last write to any clientset.
var version atomic.Uint64

// Strict makes a fake clientset give each write a resource version, and refuse with a conflict what an API server
// refuses: updates and patches that name another resource version than the object's, and patches that name another
// UID. A JSON patch whose tests fail is invalid. Call it before adding other reactors of a test, which then see
// requests first.
func Strict(cs Clientset) {
	for _, verb := range []string{"create", "update", "patch"} {
		cs.PrependReactor(verb, "*", strictly(cs.Tracker()))
	}
}

// strictly reacts as an API server does where clienttesting.ObjectReaction does not.
func strictly(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	react := clienttesting.ObjectReaction(tracker)
	return func(a clienttesting.Action) (bool, runtime.Object, error) {
		next := strconv.FormatUint(version.Add(1), 10)
		var err error
		switch action := a.(type) {
		case clienttesting.PatchActionImpl:
			if action.PatchType == types.ApplyPatchType {
				return false, nil, nil
			}
			action.Patch, err = versioned(tracker, action, next)
			a = action
		case clienttesting.UpdateActionImpl:
			action.Object = action.Object.DeepCopyObject()
			err = renew(tracker, action, action.Object, next)
			a = action
		case clienttesting.CreateActionImpl:
			action.Object = action.Object.DeepCopyObject()
			if o, bad := meta.Accessor(action.Object); bad == nil {
				o.SetResourceVersion(next)
			}
			a = action
		}
		if err != nil {
			return true, nil, err
		}
		handled, obj, err := react(a)
		var status apierrors.APIStatus
		if p, ok := a.(clienttesting.PatchActionImpl); ok && err != nil && p.PatchType == types.JSONPatchType && !errors.As(err, &status) {
			err = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", p.GetResource().GroupResource(), p.Name, err.Error(), 0, false)
		}
		if err == nil {
			err = withoutEmpty(tracker, a, obj)
		}
		return handled, obj, err
	}
}

// withoutEmpty stores the result of a JSON patch as it would be sent: a list that the patch has emptied is absent.
func withoutEmpty(tracker clienttesting.ObjectTracker, a clienttesting.Action, obj runtime.Object) error {
	p, ok := a.(clienttesting.PatchActionImpl)
	if !ok || p.PatchType != types.JSONPatchType || !bytes.Contains(p.Patch, []byte(`"remove"`)) {
		return nil
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	sent, _ := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal(text, sent); err != nil {
		return err
	}
	return tracker.Update(a.GetResource(), sent, a.GetNamespace())
}

// renew checks the resource version that an update names, and gives the object the next one.
func renew(tracker clienttesting.ObjectTracker, a clienttesting.Action, obj runtime.Object, next string) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	err = check(tracker, a, o.GetName(), o.GetUID(), o.GetResourceVersion())
	o.SetResourceVersion(next)
	return err
}

// versioned checks the versions that a patch names, and adds the next resource version to it.
func versioned(tracker clienttesting.ObjectTracker, a clienttesting.PatchActionImpl, next string) ([]byte, error) {
	if a.PatchType == types.JSONPatchType { // it has tests of its own
		var ops []map[string]any
		if err := json.Unmarshal(a.Patch, &ops); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return json.Marshal(append(ops, map[string]any{"op": "add", "path": "/metadata/resourceVersion", "value": next}))
	}
	var patch map[string]any
	if err := json.Unmarshal(a.Patch, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	uid, _ := metadata["uid"].(string)
	named, _ := metadata["resourceVersion"].(string)
	if err := check(tracker, a, a.Name, types.UID(uid), named); err != nil {
		return nil, err
	}
	metadata["resourceVersion"] = next
	return json.Marshal(patch)
}

// check refuses a request that names another UID or version than the object has.
func check(tracker clienttesting.ObjectTracker, a clienttesting.Action, name string, uid types.UID, named string) error {
	obj, err := tracker.Get(a.GetResource(), a.GetNamespace(), name)
	if err != nil {
		return err
	}
	have, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if uid != "" && uid != have.GetUID() {
		return apierrors.NewConflict(a.GetResource().GroupResource(), name, fmt.Errorf("UID in precondition: %s, UID in object meta: %s", uid, have.GetUID()))
	}
	if named != "" && named != have.GetResourceVersion() {
		return apierrors.NewConflict(a.GetResource().GroupResource(), name, fmt.Errorf("the object has been modified"))
	}
	return nil
}
