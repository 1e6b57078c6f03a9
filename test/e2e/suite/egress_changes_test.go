package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	changesName = "changes"
	rivalName   = "rival"
)

var (
	changesIngress = addresses("5.5.5.12", "5555::c")
	rivalIngress   = addresses("5.5.5.13", "5555::d")
)

// changesTest is an EgressService with a pod on the control plane, which is never host, and one on
// a worker.
type changesTest struct {
	*served
	pods map[string]lab.Pod
}

// changes changes everything that an EgressService depends on, and checks each time with which
// addresses its pods leave and what the user is told.
func (s *suite) changes(t *testing.T) {
	c := &changesTest{served: s.serve(t, changesName, changesIngress)}
	c.announce(t)
	c.pods = byName(s.runServers(t, map[string]string{c.name + "-" + nodes[0]: nodes[0], c.name + "-" + nodes[1]: nodes[1]}, c.labels()))
	c.well(t)
	t.Run("ToNodes", c.toNodes)
	s.once(t, "NoNode", c.noNode)
	t.Run("Unavailable", c.unavailable)
	t.Run("Relabelled", c.relabelled)
	s.once(t, "TrafficPolicyLocal", c.trafficPolicy)
	s.once(t, "Ingress", c.ingressChanges)
	s.once(t, "Claimed", c.claimed)
	s.once(t, "Type", c.typeChanges)
	s.once(t, "Conflict", c.conflict)
	s.once(t, "ServiceDeleted", c.serviceDeleted)
}

// run starts the pod on a node.
func (c *changesTest) run(t *testing.T, node string) {
	t.Helper()
	name := c.name + "-" + node
	pod, err := c.RunServer(t.Context(), name, node, c.labels())
	if err != nil {
		t.Fatal(err)
	}
	c.pods[name] = pod
}

// leaveAs waits until all pods leave with these addresses or, in a family without one, with those
// of their nodes.
func (c *changesTest) leaveAs(t *testing.T, ips ...netip.Addr) {
	t.Helper()
	c.allLeaveAs(t, slices.Collect(maps.Values(c.pods)), ips...)
}

// spec patches the spec of the EgressService.
func (c *changesTest) spec(t *testing.T, patch string) {
	t.Helper()
	_, err := c.Egress.EgressServiceV1().EgressServices(lab.Namespace).Patch(t.Context(), c.name, types.MergePatchType,
		[]byte(`{"spec":`+patch+`}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// service patches the Service.
func (c *changesTest) service(t *testing.T, patch string, subresources ...string) {
	t.Helper()
	_, err := c.Kube.CoreV1().Services(lab.Namespace).Patch(t.Context(), c.name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Fatal(err)
	}
}

// setIngress sets the ingress addresses as a load-balancer provider does.
func (c *changesTest) setIngress(t *testing.T, ingress string) {
	t.Helper()
	c.service(t, `{"status":{"loadBalancer":{"ingress":`+ingress+`}}}`, "status")
}

// refused waits until there is no host, for the given reason, and the condition and an Event
// contain the given words.
func (c *changesTest) refused(t *testing.T, reason string, words ...string) {
	t.Helper()
	status := c.condition(t, c.name, v1.ConditionAssigned, metav1.ConditionFalse, reason)
	message := meta.FindStatusCondition(status.Conditions, v1.ConditionAssigned).Message
	for _, w := range words {
		if !strings.Contains(message, w) {
			t.Errorf("the condition says %q, want %q", message, w)
		}
	}
	c.condition(t, c.name, v1.ConditionProgrammed, metav1.ConditionFalse, "NotAssigned")
	if status.Host != "" {
		t.Errorf("there is a host, %s", status.Host)
	}
	c.told(t, c.name, reason, message)
	c.labelled(t, "")
}

// told waits for an Event about an EgressService.
func (s *suite) told(t *testing.T, name, reason, message string) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "an Event of "+name, func(ctx context.Context) error {
		list, err := s.Kube.CoreV1().Events(lab.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=EgressService,involvedObject.name=" + name})
		if err != nil {
			return err
		}
		said := []string{fmt.Sprintf("no Event %s: %s among", reason, message)}
		for _, event := range list.Items {
			if event.Reason == reason && strings.Contains(event.Message, message) {
				return nil
			}
			said = append(said, event.Reason+": "+event.Message)
		}
		return errors.New(strings.Join(said, "\n"))
	})
	if err != nil {
		t.Error(err)
	}
}

// labelled waits until only the given node has the label; empty means no node.
func (c *changesTest) labelled(t *testing.T, want string) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "the label", func(ctx context.Context) error {
		list, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{
			LabelSelector: kube.LabelEgressServicePrefix + lab.Namespace + "-" + c.name})
		if err != nil {
			return err
		}
		var have []string
		for _, n := range list.Items {
			have = append(have, n.Name)
		}
		if strings.Join(have, " ") != want {
			return fmt.Errorf("nodes %q have it, want %q", have, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// well waits until everything works again, and returns the host.
func (c *changesTest) well(t *testing.T) (host string) {
	t.Helper()
	host = c.condition(t, c.name, v1.ConditionProgrammed, metav1.ConditionTrue, "Programmed").Host
	c.labelled(t, host)
	c.leaveAs(t, changesIngress...)
	return host
}

// toNodes has pods connect to nodes, which must see them as they would without an EgressService: a
// pod's own node sees the pod's address, the others that of its node.
func (c *changesTest) toNodes(t *testing.T) {
	pods := slices.Collect(maps.Values(c.pods))
	err := atOnce(len(pods), func(i int) error { return c.reachesNodes(t.Context(), pods[i]) })
	if err != nil {
		t.Error(err)
	}
}

// reachesNodes waits until each node sees the connections of a pod as those within the cluster.
func (s *suite) reachesNodes(ctx context.Context, p lab.Pod) error {
	for _, node := range nodes {
		for _, want := range p.Addresses {
			to, err := s.nodeAddress(ctx, node, want.Is4())
			if err != nil {
				return err
			}
			if node != p.Node {
				if want, err = s.nodeAddress(ctx, p.Node, want.Is4()); err != nil {
					return err
				}
			}
			if err := s.seenAs(ctx, p.Name, to, []netip.Addr{want}); err != nil {
				return err
			}
		}
	}
	return nil
}

// noNode makes all nodes unsuitable, each in a different way, and checks what is reported; the
// EgressService recovers by itself.
func (c *changesTest) noNode(t *testing.T) {
	c.spec(t, `{"nodeSelector":{"matchLabels":{"`+workerLabel+`":null,"nobody":"has-it"}}}`)
	c.refused(t, "NoNode", strings.Join(nodes, ", ")+": does not match nodeSelector")
	c.leaveAs(t)
	c.listed(t, "LoadBalancerIP", "False")
	for _, node := range nodes[1:] {
		c.cordon(t, node, true)
		t.Cleanup(func() { c.cordon(t, node, false) })
	}
	c.spec(t, `{"nodeSelector":{"matchLabels":{"`+workerLabel+`":"","nobody":null}}}`)
	c.refused(t, "NoNode", nodes[0]+": does not match nodeSelector", nodes[1]+", "+nodes[2]+": is cordoned")
	c.cordon(t, nodes[2], false)
	if host := c.well(t); host != nodes[2] {
		t.Errorf("host %s, want the only one there is", host)
	}
	c.told(t, c.name, "HostAssigned", "Node "+nodes[2]+" serves")
	c.listed(t, "LoadBalancerIP", nodes[2], "True")
	// A node that comes back takes nothing from the others.
	c.cordon(t, nodes[1], false)
	if host := c.well(t); host != nodes[2] {
		t.Errorf("%s took it back", host)
	}
}

// listed checks what kubectl get shows between name and age; empty columns are skipped.
func (c *changesTest) listed(t *testing.T, want ...string) {
	t.Helper()
	out, err := lab.Run(t.Context(), append(c.Kubectl(), "get", "egressservices", "-n", lab.Namespace, c.name)...)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if got, want := strings.Fields(lines[0]), []string{"NAME", "SOURCE", "HOST", "NETWORK", "PROGRAMMED", "AGE"}; !slices.Equal(got, want) {
		t.Errorf("columns %q, want %q", got, want)
	}
	if got := strings.Fields(lines[len(lines)-1]); len(got) < 2 || got[0] != c.name || !slices.Equal(got[1:len(got)-1], want) {
		t.Errorf("kubectl get shows %q, want %q", got, want)
	}
}

// unavailable checks spec.onUnavailable for traffic that no node serves.
func (c *changesTest) unavailable(t *testing.T) {
	c.spec(t, `{"onUnavailable":"Drop","nodeSelector":{"matchLabels":{"nobody":"has-it"}}}`)
	c.refused(t, "NoNode")
	c.silent(t, slices.Collect(maps.Keys(c.pods))...)
	c.spec(t, `{"onUnavailable":"NodeIP"}`)
	c.leaveAs(t)
	c.spec(t, `{"onUnavailable":null,"nodeSelector":{"matchLabels":{"nobody":null}}}`)
	c.well(t)
}

// relabelled makes nodeSelector no longer match the host.
func (c *changesTest) relabelled(t *testing.T) {
	host := c.well(t)
	c.patchNode(t, host, `{"metadata":{"labels":{"`+workerLabel+`":null}}}`)
	t.Cleanup(func() { c.patchNode(t, host, `{"metadata":{"labels":{"`+workerLabel+`":""}}}`) })
	next := c.served.programmed(t, host)
	c.told(t, c.name, "HostChanged", fmt.Sprintf("Node %s serves the egress traffic instead of %s: does not match nodeSelector", next, host))
	c.well(t)
}

// trafficPolicy checks that the host is a node with an endpoint, and follows the endpoint.
func (c *changesTest) trafficPolicy(t *testing.T) {
	c.service(t, `{"spec":{"externalTrafficPolicy":"Local"}}`)
	for _, node := range []string{nodes[1], nodes[2], nodes[1]} {
		other := otherWorker(node)
		if name := c.name + "-" + other; c.pods[name].Name != "" {
			delete(c.pods, name)
			if err := c.DeletePod(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if c.pods[c.name+"-"+node].Name == "" {
			c.run(t, node)
		}
		if host := c.served.programmed(t, other); host != node {
			t.Errorf("host %s, want %s, where the endpoint is", host, node)
		}
		c.well(t)
	}
	name := c.name + "-" + nodes[1]
	if err := c.DeletePod(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	delete(c.pods, name)
	c.refused(t, "NoNode", nodes[1]+", "+nodes[2]+": has no endpoint, which externalTrafficPolicy Local demands")
	c.leaveAs(t)
	c.service(t, `{"spec":{"externalTrafficPolicy":"Cluster"}}`)
	c.run(t, nodes[1])
	c.well(t)
}

// ingressChanges gives the Service other ingress addresses, or none.
func (c *changesTest) ingressChanges(t *testing.T) {
	is4, is6 := changesIngress[0], changesIngress[1]
	c.setIngress(t, `[{"hostname":"lb.example.com"}]`)
	c.refused(t, "NoIngressIP")
	c.leaveAs(t)
	c.setIngress(t, fmt.Sprintf(`[{"hostname":"lb.example.com"},{"ip":%q}]`, is6))
	c.leaveAs(t, is6)
	c.setIngress(t, fmt.Sprintf(`[{"ip":%q}]`, is4))
	c.leaveAs(t, is4)
	c.setIngress(t, fmt.Sprintf(`[{"ip":%q},{"ip":%q},{"ip":"5.5.5.14"}]`, is4, is6))
	c.well(t)
	c.setIngress(t, `null`)
	c.refused(t, "NoIngressIP")
	c.setIngress(t, fmt.Sprintf(`[{"ip":%q},{"ip":%q}]`, is4, is6))
	c.well(t)
}

// claimed has nodes claim the ingress addresses: the load balancer's provider puts them on a host, which is no reason not to
// use them; and another node gets them as its own, which takes none that is in use.
func (c *changesTest) claimed(t *testing.T) {
	give := func(verb, node string, bits ...int) {
		t.Helper()
		for i, a := range changesIngress {
			prefix := netip.PrefixFrom(a, bits[i]).String()
			if _, err := c.Kin.Exec(t.Context(), node, "ip", "address", verb, prefix, "dev", "breth0"); err != nil {
				t.Fatal(err)
			}
			if verb == "add" {
				t.Cleanup(func() { // if the test has failed before it took it away
					_, _ = c.Kin.Exec(context.WithoutCancel(t.Context()), node, "ip", "address", "del", prefix, "dev", "breth0")
				})
			}
		}
		c.annotated(t, node, verb == "add")
	}
	first := c.well(t)
	give("add", first, 32, 128)
	c.spec(t, `{"nodeSelector":{"matchLabels":{"nobody":"has-it"}}}`)
	c.refused(t, "NoNode")
	c.spec(t, `{"nodeSelector":{"matchLabels":{"nobody":null}}}`)
	other := otherWorker(c.well(t))
	c.condition(t, c.name, v1.ConditionConflict, metav1.ConditionFalse, "NoConflict")
	give("del", first, 32, 128)

	give("add", other, 24, 64)
	status := c.condition(t, c.name, v1.ConditionConflict, metav1.ConditionTrue, "AddressInUse")
	message := meta.FindStatusCondition(status.Conditions, v1.ConditionConflict).Message
	for _, want := range []string{changesIngress[0].String(), changesIngress[1].String(), "node " + other} {
		if !strings.Contains(message, want) {
			t.Errorf("the condition says %q and does not name %s", message, want)
		}
	}
	c.well(t)
	give("del", other, 24, 64)
	c.condition(t, c.name, v1.ConditionConflict, metav1.ConditionFalse, "NoConflict")
	c.well(t)
}

// annotated waits until a node has published the ingress addresses as addresses of its host, or no longer does.
func (c *changesTest) annotated(t *testing.T, node string, want bool) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "the addresses of "+node, func(ctx context.Context) error {
		n, err := c.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, a := range changesIngress {
			if published := n.Annotations[kube.AnnotationHostAddresses]; strings.Contains(published, `"`+a.String()+"/") != want {
				return errors.New(published)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// typeChanges gives the Service a type without a load balancer, and another port.
func (c *changesTest) typeChanges(t *testing.T) {
	c.service(t, `{"spec":{"type":"ClusterIP"}}`)
	c.refused(t, "ServiceNotLoadBalancer", "ClusterIP")
	c.leaveAs(t)
	c.service(t, `{"spec":{"type":"LoadBalancer","ports":[{"port":9090,"targetPort":8080}]}}`)
	c.refused(t, "NoIngressIP")
	c.setIngress(t, fmt.Sprintf(`[{"ip":%q},{"ip":%q}]`, changesIngress[0], changesIngress[1]))
	c.well(t)
}

// conflict has a younger EgressService select the same pods: it gets them when the older one no
// longer selects them.
func (c *changesTest) conflict(t *testing.T) {
	c.condition(t, c.name, v1.ConditionConflict, metav1.ConditionFalse, "NoConflict")
	rival := c.serve(t, rivalName, rivalIngress)
	rival.announce(t)
	c.selects(t, rivalName, c.labels())
	status := rival.condition(t, rivalName, v1.ConditionConflict, metav1.ConditionTrue, "OlderEgressService")
	winner := lab.Namespace + "/" + c.name
	if message := meta.FindStatusCondition(status.Conditions, v1.ConditionConflict).Message; !strings.Contains(message, winner) {
		t.Errorf("the condition says %q and does not name %s", message, winner)
	}
	rival.told(t, rivalName, "Conflict", winner)
	c.condition(t, c.name, v1.ConditionConflict, metav1.ConditionFalse, "NoConflict")
	c.well(t)
	// The older one still exists, but has no pods.
	c.selects(t, c.name, map[string]string{"app": "nobody"})
	rival.condition(t, rivalName, v1.ConditionConflict, metav1.ConditionFalse, "NoConflict")
	c.leaveAs(t, rivalIngress...)
	c.selects(t, c.name, c.labels())
	rival.condition(t, rivalName, v1.ConditionConflict, metav1.ConditionTrue, "OlderEgressService")
	c.well(t)
}

// selects makes a Service select pods.
func (s *suite) selects(t *testing.T, service string, labels map[string]string) {
	t.Helper()
	services := s.Kube.CoreV1().Services(lab.Namespace)
	svc, err := services.Get(t.Context(), service, metav1.GetOptions{})
	if err == nil {
		svc.Spec.Selector = labels
		_, err = services.Update(t.Context(), svc, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serviceDeleted deletes the Service of the EgressService, and recreates it.
func (c *changesTest) serviceDeleted(t *testing.T) {
	if err := c.Kube.CoreV1().Services(lab.Namespace).Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.refused(t, "ServiceNotFound")
	c.leaveAs(t)
	c.putService(t)
	c.well(t)
}
