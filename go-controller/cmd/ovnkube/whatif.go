package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	servicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

// whatIfCommand is the command "ovnkube egress what-if".
func (e *egress) whatIfCommand(wrong cli.OnUsageErrorFunc, flags []cli.Flag) *cli.Command {
	return &cli.Command{
		Name: "what-if", Usage: "what a change would do to the addresses that pods leave with; nothing is changed", OnUsageError: wrong, HideHelpCommand: true,
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "filename", Aliases: []string{"f"}, Usage: "Apply the objects in `FILE`, - for standard input"},
			&cli.StringSliceFlag{Name: "delete", Usage: "Delete `KIND/NAME`, or KIND/NAMESPACE/NAME"},
			&cli.StringSliceFlag{Name: "drain", Usage: "Cordon `NODE[,NODE]`, and have it hand over its egress addresses"},
			&cli.StringSliceFlag{Name: "lose", Usage: "`NODE[,NODE]` cannot be reached any more"},
			&cli.StringSliceFlag{Name: "label", Usage: "Label a node: `NODE KEY=VALUE`, or NODE KEY- to remove the label"},
		}, flags...),
		Action: e.whatIf,
	}
}

func (e *egress) whatIf(c *cli.Context) error {
	if err := e.format(); err != nil {
		return err
	}
	if c.Args().Present() {
		return fmt.Errorf("%s: unexpected argument; see %s --help", c.Args().First(), c.Command.HelpName)
	}
	change := explain.Change{Delete: c.StringSlice("delete"), Drain: split(c.StringSlice("drain")), Lose: split(c.StringSlice("lose"))}
	for flag, names := range map[string][]string{"drain": change.Drain, "lose": change.Lose} {
		if slices.Contains(names, "") {
			return fmt.Errorf("--%s=%s: a name is missing; allowed: NODE[,NODE]", flag, strings.Join(names, ","))
		}
	}
	for _, text := range c.StringSlice("label") {
		l, err := nodeLabel(text)
		if err != nil {
			return err
		}
		change.Labels = append(change.Labels, l)
	}
	for _, name := range c.StringSlice("filename") {
		objects, err := e.objects(name)
		if err != nil {
			return fmt.Errorf("--filename=%s: %w", name, err)
		}
		change.Objects = append(change.Objects, objects...)
	}
	if change.Empty() {
		return fmt.Errorf("a change is missing: --filename, --delete, --drain, --lose or --label; see %s --help", c.Command.HelpName)
	}
	return e.answer(c.Context, func(cluster *explain.Cluster) (answer, explain.Header, error) {
		a, err := cluster.WhatIf(change)
		return a, a.Header, err
	})
}

// split returns the names in comma-separated lists.
func split(lists []string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, strings.Split(l, ",")...)
	}
	return all
}

// nodeLabel parses "NODE KEY=VALUE" and "NODE KEY-".
func nodeLabel(text string) (explain.NodeLabel, error) {
	node, label, _ := strings.Cut(text, " ")
	key, value, set := strings.Cut(label, "=")
	l := explain.NodeLabel{Node: node, Key: key, Value: value}
	if !set {
		l.Key, l.Remove = strings.CutSuffix(label, "-")
	}
	if l.Key == "" || !set && !l.Remove {
		return l, fmt.Errorf("--label=%s: no label of a node; allowed: NODE KEY=VALUE, or NODE KEY-", text)
	}
	if bad := slices.Concat(validation.IsQualifiedName(l.Key), validation.IsValidLabelValue(l.Value)); len(bad) > 0 {
		return l, fmt.Errorf("--label=%s: %s", text, strings.Join(bad, "; "))
	}
	return l, nil
}

// labelsInOrder joins the arguments after --label into one: as with kubectl, node and label are two arguments.
func labelsInOrder(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		out = append(out, args[i])
		if strings.TrimLeft(args[i], "-") != "label" || !strings.HasPrefix(args[i], "-") || i+1 >= len(args) || strings.Contains(args[i+1], " ") {
			continue
		}
		i++
		node := args[i]
		labels := 0
		for ; i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"); i++ {
			if labels++; labels > 1 {
				out = append(out, "--label")
			}
			out = append(out, node+" "+args[i+1])
		}
		if labels == 0 {
			out = append(out, node)
		}
	}
	return out
}

// decoder decodes the kinds that egress depends on, and refuses unknown fields.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, ipv1.AddToScheme, servicev1.AddToScheme, routev1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two types have the same name
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// objects reads the objects in a file, "-" for standard input.
func (e *egress) objects(name string) ([]runtime.Object, error) {
	in := e.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var all []runtime.Object
	for docs := utilyaml.NewYAMLOrJSONDecoder(in, 4096); ; {
		var doc runtime.RawExtension
		switch err := docs.Decode(&doc); {
		case errors.Is(err, io.EOF) && len(all) == 0:
			return nil, errors.New("there is no object in it")
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		if len(doc.Raw) == 0 || string(doc.Raw) == "null" {
			continue
		}
		objects, err := decode(doc.Raw)
		if err != nil {
			return nil, fmt.Errorf("object %d: %w", len(all)+1, err)
		}
		all = append(all, objects...)
	}
}

// decode decodes an object, or the items of a list.
func decode(data []byte) ([]runtime.Object, error) {
	o, kind, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	if list, ok := o.(*metav1.List); ok {
		return decodeAll(list.Items)
	}
	if list, ok := o.(*corev1.List); ok {
		return decodeAll(list.Items)
	}
	o.GetObjectKind().SetGroupVersionKind(*kind)
	m, ok := o.(metav1.Object)
	switch {
	case !ok || m.GetName() == "":
		return nil, fmt.Errorf("%s: metadata.name is missing", kind.Kind)
	case m.GetNamespace() == "" && namespaced(o):
		return nil, fmt.Errorf("%s %s: metadata.namespace is missing", kind.Kind, m.GetName())
	}
	return []runtime.Object{o}, nil
}

func decodeAll(items []runtime.RawExtension) ([]runtime.Object, error) {
	var all []runtime.Object
	for _, item := range items {
		objects, err := decode(item.Raw)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// namespaced reports whether a kind that egress depends on is namespaced.
func namespaced(o runtime.Object) bool {
	switch o.(type) {
	case *corev1.Pod, *corev1.Service, *discoveryv1.EndpointSlice, *servicev1.EgressService:
		return true
	}
	return false
}
