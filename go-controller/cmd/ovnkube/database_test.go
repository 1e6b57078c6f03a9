package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// databaseArgs returns the arguments of a container in the manifests, with its variables expanded.
func databaseArgs(t *testing.T, container string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../dist/components/ha/databases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.StatefulSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	for _, c := range set.Spec.Template.Spec.InitContainers {
		if c.Name != container {
			continue
		}
		if !slices.Equal(c.Command[:2], []string{"/usr/bin/ovnkube", "database"}) {
			t.Fatalf("%s runs %s", c.Name, c.Command)
		}
		values := strings.NewReplacer("$(NODE_IP)", "fd00::2",
			"$(NORTHBOUND)", "ssl:[fd00::1]:6641,ssl:[fd00::2]:6641,ssl:[fd00::3]:6641",
			"$(MASTERS_SOUTHBOUND)", "ssl:[fd00::1]:6643,ssl:[fd00::2]:6643,ssl:[fd00::3]:6643")
		args := slices.Clone(c.Command[2:])
		for _, a := range c.Args {
			args = append(args, values.Replace(a))
		}
		return args
	}
	t.Fatalf("there is no container %s", container)
	return nil
}

// TestDatabaseManifests runs the commands with the arguments in the manifests, as far as possible without a
// cluster.
func TestDatabaseManifests(t *testing.T) {
	var errs bytes.Buffer
	prepare := append(databaseArgs(t, "prepare"), "--config-file=/nonexistent/ovnkube.conf")
	if status := runDatabase(t.Context(), prepare, &errs, &errs); status != 1 || !strings.Contains(errs.String(), "/nonexistent/ovnkube.conf") {
		t.Errorf("status %d: %s", status, errs.String())
	}
	errs.Reset()
	maintain := append(databaseArgs(t, "maintain"), "--run-dir=/nonexistent", "--pki-dir=/nonexistent")
	if status := runDatabase(t.Context(), maintain, &errs, &errs); status != 1 || !strings.Contains(errs.String(), "/nonexistent/") {
		t.Errorf("status %d: %s", status, errs.String())
	}
}

func TestDatabaseRefusals(t *testing.T) {
	good := []string{"--address=192.0.2.1", "--northbound=tcp:192.0.2.1:6641", "--southbound=tcp:192.0.2.1:6643"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "a command is missing; see ovnkube database --help"},
		{[]string{"destroy"}, "destroy: unknown command; see ovnkube database --help"},
		{[]string{"prepare", "--member=x"}, "--member: unknown flag; allowed: the flags in ovnkube database prepare --help"},
		{[]string{"prepare"}, "--address=: no address; allowed: an IP address"},
		{append([]string{"prepare"}, "--address=node-1"), "--address=node-1: no address; allowed: an IP address"},
		{append([]string{"prepare"}, good[:2]...), `--southbound=: "": no member; allowed: ssl:ADDRESS:PORT or tcp:ADDRESS:PORT, separated by commas, IPv6 in brackets`},
		{append([]string{"maintain"}, "--address=192.0.2.9", good[1], good[2]), "--northbound=tcp:192.0.2.1:6641: node address 192.0.2.9 is not among the members 192.0.2.1: the databases run on these nodes only"},
		{append(append([]string{"prepare"}, good...), "now"), "now: unexpected argument; allowed: flags only, see ovnkube database prepare --help"},
	} {
		var errs bytes.Buffer
		if status := runDatabase(t.Context(), c.args, &errs, &errs); status != 1 || errs.String() != "ovnkube database: "+c.want+"\n" {
			t.Errorf("%q: status %d: %s", c.args, status, errs.String())
		}
	}
}
