package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeMembers is a kubectl for a StatefulSet of three pods with an API server that honors their PodDisruptionBudget. The file
// pods has a line for each pod: name, revision, and ready, unready, stuck or terminating. Time passes with each call of sleep and
// of "kubectl wait": pods that have been evicted are replaced, and become ready.
const fakeMembers = `#!/bin/bash
set -euo pipefail
ready() { grep -c ' ready$' pods || true; }
pass() {
	sed -i -e 's/ [a-z0-9]* terminating$/ new starting/; t' -e 's/ \(starting\|unready\)$/ ready/' pods
	echo 2 >observed
}
[[ $(basename "$0") == kubectl ]] || { pass; exit; }
[[ "$1 $2" == "--context=there --namespace=ovn-kubernetes" ]] || { echo "unexpected: $*"; exit 1; }
shift 2
case "$*" in
"get statefulset ovn-databases --output=jsonpath="*) echo -n "2 $(cat observed) $([[ $(cat observed) == 2 ]] && echo new || echo old) 3" ;; # without a newline
"get pods --selector=app=ovn-databases,controller-revision-hash!=new --output=jsonpath="*)
	[[ -e outage ]] && { echo "The connection to the server was refused" >&2; exit 1; }
	while read -r name revision state; do
		[[ $revision == new ]] || echo -n "$name=$([[ $state != terminating ]] || echo 2026-01-01T00:00:00Z) "
	done <pods ;;
"create --raw /api/v1/namespaces/ovn-kubernetes/pods/"*"/eviction --filename=-")
	pod=${3#/api/v1/namespaces/ovn-kubernetes/pods/} pod=${pod%/eviction}
	grep -q "\"kind\": \"Eviction\".*\"name\": \"$pod\"" || { echo "wrong body"; exit 1; }
	[[ -e forbidden ]] && { echo "Error from server (Forbidden): pods/eviction is forbidden" >&2; exit 1; }
	others=$(grep -v "^$pod " pods | grep -c ' ready$' || true)
	if ((others < 2)); then
		echo "Error from server (TooManyRequests): Cannot evict pod as it would violate the pod's disruption budget." >&2
		exit 1
	fi
	echo "$pod while $(grep -v "^$pod " pods | tr '\n' ' ')" >>evicted
	sed -i "s/^\($pod [a-z]*\) .*/\1 terminating/" pods
	echo '{"kind":"Status","status":"Success"}' ;;
"wait --for=jsonpath={.status.updatedReplicas}=3 --timeout="*" statefulset/ovn-databases") for i in 1 2 3; do pass; done; [[ $(grep -c ' new ' pods) == 3 ]] ;;
"wait --for=jsonpath={.status.readyReplicas}=3 --timeout="*" statefulset/ovn-databases") for i in 1 2 3; do pass; done; [[ $(ready) == 3 ]] ;;
*) echo "unexpected: $*"; exit 1 ;;
esac
`

// TestUpdateMembers: the script for updates replaces outdated pods one by one, each while the other two are ready, beginning
// with one that is not ready.
func TestUpdateMembers(t *testing.T) {
	for _, c := range []struct {
		name, pods, observed, file string
		evicted                    []string
		said                       string // without it the script succeeds
	}{
		{name: "all", pods: "0 old ready, 1 old ready, 2 old ready", observed: "2", evicted: []string{
			"0 while 1 old ready 2 old ready", "1 while 0 new ready 2 old ready", "2 while 0 new ready 1 new ready",
		}},
		{name: "one is down", pods: "0 old ready, 1 old stuck, 2 old ready", observed: "2", evicted: []string{
			"1 while 0 old ready 2 old ready", "0 while 1 new ready 2 old ready", "2 while 0 new ready 1 new ready",
		}},
		{name: "one becomes ready", pods: "0 new unready, 1 old ready, 2 old ready", observed: "2", evicted: []string{
			"1 while 0 new ready 2 old ready", "2 while 0 new ready 1 new ready",
		}},
		{name: "interrupted", pods: "0 new ready, 1 old terminating, 2 old ready", observed: "2", evicted: []string{"2 while 0 new ready 1 new ready"}},
		{name: "up to date", pods: "0 new ready, 1 new ready, 2 new ready", observed: "2"},
		{name: "not yet observed", pods: "0 new ready, 1 new ready, 2 old ready", observed: "1", evicted: []string{"2 while 0 new ready 1 new ready"}},
		{name: "not permitted", pods: "0 old ready, 1 old ready, 2 old ready", observed: "2", file: "forbidden", said: "pods/eviction is forbidden"},
		{name: "no API server", pods: "0 old ready, 1 old ready, 2 old ready", observed: "2", file: "outage", said: "connection to the server was refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := project{dir: t.TempDir(), path: t.TempDir()}
			script, err := os.ReadFile("../components/ha/update.sh")
			if err != nil {
				t.Fatal(err)
			}
			p.write(t, "update.sh", string(script))
			fake := project{dir: p.path}
			fake.write(t, "kubectl", fakeMembers)
			fake.write(t, "sleep", fakeMembers)
			pods := ""
			for pod := range strings.SplitSeq(c.pods, ", ") {
				pods += "ovn-databases-" + pod + "\n"
			}
			p.write(t, "pods", pods)
			p.write(t, "observed", c.observed)
			p.write(t, "evicted", "")
			if c.file != "" {
				p.write(t, c.file, "")
			}
			out, err := p.run("timeout", "60", "./update.sh", "--context=there")
			if (err != nil) != (c.said != "") || !strings.Contains(out, c.said) {
				t.Fatalf("%v:\n%s", err, out)
			}
			text, err := os.ReadFile(filepath.Join(p.dir, "evicted"))
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			for _, e := range c.evicted {
				want += e + " \n"
			}
			if got := strings.ReplaceAll(string(text), "ovn-databases-", ""); got != want {
				t.Errorf("evicted\n%swant\n%s%s", got, want, out)
			}
			if n := strings.Count(out, "is evicted"); n != len(c.evicted) {
				t.Errorf("said %d times that a pod is evicted:\n%s", n, fmt.Sprint(out))
			}
		})
	}
}
