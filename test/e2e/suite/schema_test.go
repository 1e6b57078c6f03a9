package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const schemaName = "schema"

// schema tests what users may write, and objects that only an older schema allowed.
func (s *suite) schema(t *testing.T) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Delete(ctx, schemaName, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		spec string
		says string // part of the refusal; empty if accepted
	}{
		{`{}`, ""},
		{`{"sourceIPBy":"LoadBalancerIP","network":"blue","onUnavailable":"Drop"}`, ""},
		{`{"network":"1234"}`, ""},
		{`{"network":"` + strings.Repeat("n", 64) + `"}`, ""},
		{`{"nodeSelector":{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]},{"key":"x","operator":"Exists"}]}}`, ""},
		{`{"sourceIPBy":"NodeIP"}`, "Unsupported value"},
		{`{"sourceIPBy":7}`, "must be of type string"},
		{`{"onUnavailable":"Hope"}`, "Unsupported value"},
		{`{"network":"` + strings.Repeat("n", 65) + `"}`, "Too long"},
		{`{"network":"../blue"}`, "should match"},
		{`{"network":"blue;reboot"}`, "should match"},
		{`{"network":" blue"}`, "should match"},
		{`{"nodeSelector":{"matchExpressions":[{"key":"zone","operator":"Near"}]}}`, "operator"},
		{`{"nodeSelector":{"matchExpressions":[{"key":"zone","operator":"In"}]}}`, "values"},
		{`{"nodeSelector":{"matchExpressions":[{"key":"zone","operator":"Exists","values":["a"]}]}}`, "values"},
		{`{"nodeSelector":{"matchExpressions":[{"operator":"Exists"}]}}`, "Required value"},
		{`{"nodeSelector":{"matchLabels":["zone"]}}`, "must be of type object"},
	} {
		_, err := s.Kubectlf(t.Context(), `{"apiVersion":"k8s.ovn.org/v1","kind":"EgressService","metadata":{"name":%q,"namespace":%q},"spec":%s}`,
			schemaName, lab.Namespace, c.spec)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s was refused: %v", c.spec, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", c.spec, err, c.says)
		}
	}
	t.Run("status", s.foreignStatus)
	t.Run("older schema", s.olderSchema)
}

// foreignStatus creates an object with a status set by its user, which must be ignored.
func (s *suite) foreignStatus(t *testing.T) {
	_, err := s.Kubectlf(t.Context(), `{"apiVersion":"k8s.ovn.org/v1","kind":"EgressService","metadata":{"name":%q,"namespace":%q},
		"spec":{},"status":{"host":"ovn-worker","programmed":{"host":"ovn-worker"}}}`, schemaName, lab.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	status := s.condition(t, schemaName, v1.ConditionAssigned, metav1.ConditionFalse, "ServiceNotFound")
	if status.Host != "" || status.Programmed != nil {
		t.Errorf("status %+v", status)
	}
}

// olderSchema has an object that the current schema rejects: its status is written nevertheless,
// and changes to other fields are not refused.
func (s *suite) olderSchema(t *testing.T) {
	const crd = "egressservices.k8s.ovn.org"
	spec := "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/"
	today, err := lab.Run(t.Context(), append(s.Kubectl(), "get", "crd", crd, "-o", "jsonpath={.spec.versions}")...)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(ctx context.Context, what string) error {
		_, err := lab.Run(ctx, append(s.Kubectl(), "patch", "crd", crd, "--type=json", "-p", what)...)
		return err
	}
	restore := func(ctx context.Context) error {
		return patch(ctx, `[{"op":"replace","path":"/spec/versions","value":`+today+`}]`)
	}
	err = patch(t.Context(), `[{"op":"remove","path":"`+spec+`network/pattern"},{"op":"remove","path":"`+spec+`sourceIPBy/enum"},
		{"op":"remove","path":"`+spec+`nodeSelector/x-kubernetes-validations"}]`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := restore(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	egress := s.Egress.EgressServiceV1().EgressServices(lab.Namespace)
	change := func(what string) error {
		_, err := egress.Patch(t.Context(), schemaName, types.MergePatchType, []byte(what), metav1.PatchOptions{})
		return err
	}
	// The API server takes a moment to serve a changed schema.
	err = lab.Until(t.Context(), leakPatience, "the older schema", func(context.Context) error {
		return change(`{"spec":{"sourceIPBy":"Anything","network":"b/lue","nodeSelector":{"matchExpressions":[{"key":"zone","operator":"Near"}]}}}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = lab.Until(t.Context(), leakPatience, "the schema of today", func(context.Context) error {
		if err := change(`{"spec":{"network":"also/bad"}}`); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a value that it refuses: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := change(`{"metadata":{"labels":{"changed":"yes"}},"spec":{"onUnavailable":"Drop"}}`); err != nil {
		t.Errorf("a change of something else was refused: %v", err)
	}
	s.condition(t, schemaName, v1.ConditionAssigned, metav1.ConditionFalse, "InvalidNodeSelector")
	if err := change(`{"spec":{"nodeSelector":null}}`); err != nil {
		t.Errorf("putting one field right was refused: %v", err)
	}
	s.condition(t, schemaName, v1.ConditionAssigned, metav1.ConditionFalse, "UnsupportedSourceIP")
	if err := change(`{"spec":{"sourceIPBy":null}}`); err != nil {
		t.Errorf("putting one field right was refused: %v", err)
	}
	s.condition(t, schemaName, v1.ConditionAssigned, metav1.ConditionFalse, "InvalidNetwork")
}

// Kubectlf replaces or creates an object, as a user does.
func (s *suite) Kubectlf(ctx context.Context, format string, args ...any) (string, error) {
	text := fmt.Sprintf(format, args...)
	if !json.Valid([]byte(text)) {
		return "", fmt.Errorf("not JSON: %s", text)
	}
	path, err := s.WriteFile("object.json", text)
	if err != nil {
		return "", err
	}
	return lab.Run(ctx, append(s.Kubectl(), "replace", "--force", "--grace-period=0", "-f", path)...)
}
