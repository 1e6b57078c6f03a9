package ovs

import (
	"context"
	"fmt"
	"strings"

	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
)

// What ovn-controller writes into the database besides its bridge: an index of each chassis that it
// has been, the limit of VLAN tags that it needs, overwriting any other value, and a queueing
// discipline that does nothing, for ports that should have none.
const (
	chassisIndexPrefix = "ovn-chassis-idx-"
	vlanLimit          = "vlan-limit"
	noQueueing         = "linux-noop"
)

// ForgetController implements Client.
func (db *DB) ForgetController(ctx context.Context) error {
	return db.update(ctx, "forget ovn-controller", func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		t := &tx{ctx: ctx, s: s}
		var drop []string
		for key, value := range sys.OtherConfig {
			if strings.HasPrefix(key, chassisIndexPrefix) || key == vlanLimit && value == "0" {
				drop = append(drop, key)
			}
		}
		if len(drop) > 0 {
			t.mutate(sys, []model.Mutation{{Field: &sys.OtherConfig, Mutator: ovsdb.MutateOperationDelete, Value: drop}})
		}
		if err := t.forgetQueueing(); err != nil {
			return nil, err
		}
		return t.finish(sys)
	})
}

// forgetQueueing deletes the queueing discipline, unless a port uses it.
func (t *tx) forgetQueueing() error {
	var all []*vswitchd.QoS
	var ports []*vswitchd.Port
	if err := t.s.client.List(t.ctx, &all); err != nil {
		return fmt.Errorf("list QoS: %w", err)
	}
	if err := t.s.client.List(t.ctx, &ports); err != nil {
		return fmt.Errorf("list ports: %w", err)
	}
	used := map[string]bool{}
	for _, p := range ports {
		if p.QOS != nil {
			used[*p.QOS] = true
		}
	}
	for _, q := range all {
		if q.Type == noQueueing && !used[q.UUID] {
			t.add(t.s.client.Where(q).Delete())
		}
	}
	return nil
}
