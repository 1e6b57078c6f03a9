package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// explained has the fields of the answers of "ovnkube egress" that the test reads; docs/explain.md
// has the whole schema.
type explained struct {
	InPlace  bool `json:"inPlace"`
	Families []struct {
		Outcome string             `json:"outcome"`
		By      string             `json:"by"`
		Sources []explainedAddress `json:"sources"`

		ImplementedBy []struct{ Node, What string } `json:"implementedBy"`
	} `json:"families"`
	Addresses []explainedAddress `json:"addresses"`
	Uses      []explainedAddress `json:"uses"`
}

type explainedAddress struct {
	Address netip.Addr `json:"address"`
	Node    string     `json:"node"`
}

// explain runs the command until its answer is that everything is in place, and will accepts it.
func (e *egressIPTest) explain(t *testing.T, will func(explained) error, args ...string) {
	t.Helper()
	program := filepath.Join(filepath.Dir(e.Kin.Program), "ovnkube")
	args = append(append([]string{"egress", "explain"}, args...), "-o", "json", "--kubeconfig", e.Kubeconfig)
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("%q to say so", args), func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, program, args...).Output()
		var status *exec.ExitError
		if errors.As(err, &status) {
			return fmt.Errorf("exit status %d: %s%s", status.ExitCode(), out, status.Stderr)
		}
		if err != nil {
			return err
		}
		var answer explained
		if err := json.Unmarshal(out, &answer); err != nil {
			return err
		}
		if err := will(answer); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !answer.InPlace {
			return fmt.Errorf("exit status 0, but not in place: %s", out)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// same compares addresses and their nodes with the expected ones.
func same(have []explainedAddress, want map[netip.Addr]string) error {
	is := map[netip.Addr]string{}
	for _, a := range have {
		is[a.Address] = a.Node
	}
	if !maps.Equal(is, want) {
		return fmt.Errorf("it says %v, want %v", is, want)
	}
	return nil
}

// implemented reports whether the database has the rows that an answer about a pod says implement
// it.
func (e *egressIPTest) implemented(t *testing.T, a explained) error {
	have, err := northboundRows(t.Context(), e.Lab)
	if err != nil {
		return err
	}
	rows := 0
	for _, i := range a.Families[0].ImplementedBy {
		if i.Node != "" {
			continue
		}
		for _, key := range rowKeys(t, i.What) {
			if rows++; !have[key] {
				return fmt.Errorf("the database does not have %s", key)
			}
		}
	}
	if rows == 0 {
		return errors.New("no row is said to implement it")
	}
	return nil
}

// explains compares what "ovnkube egress explain" says with what Spread has seen outside.
func (e *egressIPTest) explains(t *testing.T) {
	holders := e.programmed(t, webName)
	e.explain(t, func(a explained) error { return same(a.Addresses, holders) }, "egressip", webName)
	for _, to := range lab.OutsideAddresses {
		want := maps.Clone(holders)
		maps.DeleteFunc(want, func(a netip.Addr, _ string) bool { return a.Is4() != to.Is4() })
		e.explain(t, func(a explained) error {
			if len(a.Families) != 1 || a.Families[0].Outcome != "EgressIP" || a.Families[0].By != "EgressIP/"+webName {
				return errors.New("the EgressIP does not decide")
			}
			return errors.Join(same(a.Families[0].Sources, want), e.implemented(t, a))
		}, "pod", lab.Namespace+"/egress-0", "--to", to.String())
	}
	for _, a := range webIPs {
		e.explain(t, func(answer explained) error { return same(answer.Uses, map[netip.Addr]string{a: holders[a]}) }, "address", a.String())
	}
}
