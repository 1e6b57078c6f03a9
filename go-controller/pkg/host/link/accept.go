package link

import (
	"fmt"
	"net"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// acceptTable is the nftables table, of family netdev, with a chain for each link that accepts
// frames for a second MAC address.
const acceptTable = "ovn-kube-accept"

// packetHost is the kernel's packet type for packets to this host.
const packetHost = 0

// AcceptMarked makes the kernel accept frames to a second MAC address on a link, and mark them.
// Otherwise it drops such frames.
func AcceptMarked(name, mac string, mark uint32) error {
	if _, err := get(name); err != nil {
		return err
	}
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return fmt.Errorf("accept %s on link %s: %w", mac, name, err)
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("accept %s on link %s: %w", mac, name, err)
	}
	table := &nftables.Table{Name: acceptTable, Family: nftables.TableFamilyNetdev}
	chain := &nftables.Chain{
		Name: name, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookIngress, Priority: nftables.ChainPriorityFilter, Device: name,
	}
	rule := acceptRule(hw, mark)
	exists, err := accepts(c, chain, rule)
	if err != nil || exists {
		return err
	}
	c.AddTable(table)
	c.AddChain(chain)
	c.FlushChain(chain)
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("accept %s on link %s: %w", mac, name, err)
	}
	return nil
}

// acceptRule returns "ether daddr MAC meta mark set MARK meta pkttype set host".
func acceptRule(mac net.HardwareAddr, mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 0, Len: uint32(len(mac))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: mac},
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
		&expr.Immediate{Register: 1, Data: []byte{packetHost}},
		&expr.Meta{Key: expr.MetaKeyPKTTYPE, SourceRegister: true, Register: 1},
	}
}

// accepts reports whether a chain exists and has only the wanted rule. The chain goes away with its
// link.
func accepts(c *nftables.Conn, chain *nftables.Chain, want []expr.Any) (bool, error) {
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyNetdev)
	if err != nil {
		return false, fmt.Errorf("accept on link %s: list chains: %w", chain.Name, err)
	}
	if !slices.ContainsFunc(chains, func(ch *nftables.Chain) bool { return ch.Table.Name == acceptTable && ch.Name == chain.Name }) {
		return false, nil
	}
	rules, err := c.GetRules(chain.Table, chain)
	if err != nil {
		return false, fmt.Errorf("accept on link %s: list rules: %w", chain.Name, err)
	}
	return len(rules) == 1 && slices.EqualFunc(rules[0].Exprs, want, same), nil
}

// same compares the relevant parts of two expressions.
func same(a, b expr.Any) bool {
	switch a := a.(type) {
	case *expr.Cmp:
		b, ok := b.(*expr.Cmp)
		return ok && a.Op == b.Op && slices.Equal(a.Data, b.Data)
	case *expr.Immediate:
		b, ok := b.(*expr.Immediate)
		return ok && slices.Equal(a.Data, b.Data)
	case *expr.Meta:
		b, ok := b.(*expr.Meta)
		return ok && a.Key == b.Key && a.SourceRegister == b.SourceRegister
	}
	return fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b)
}

// AcceptNothing removes all chains of AcceptMarked at once. It is not an error if there are none.
func AcceptNothing() error {
	err := without(func(c *nftables.Conn) {
		c.DelTable(&nftables.Table{Name: acceptTable, Family: nftables.TableFamilyNetdev})
	})
	if err != nil {
		return fmt.Errorf("remove the nftables table %s: %w", acceptTable, err)
	}
	return nil
}
