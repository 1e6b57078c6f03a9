// Package snatguard prevents packets of pods from leaving a host without source address
// translation.
//
// Its chain is in the nftables hook after source translation, where a packet already has its final
// address: a packet with a pod's address there, in a connection that the pod opened, has escaped
// its translation. Checking the result instead of repeating the conditions makes the guard agree
// with the rules at every moment, whichever program wrote them. Replies keep the pod's address on
// purpose, and packets that leave by the management port go to pods.
//
// Another chain, in the forward hook, drops packets from the port of a Service that come in by the
// management port with topology.MarkServicePort and are not replies of a connection that was opened
// from outside: they would leave with the address of the node, although their pods have other
// addresses.
//
// Before that, a pod that closes a connection which this host has forgotten is answered with a
// reset: the packet that ends such a connection belongs to no connection, is not translated, and
// would be repeated for minutes. If the gateway router translates, the bridge hands such a packet
// to the host with topology.ForgottenMAC as its source: the chain before routing answers it, and
// drops everything else with this source. The answers are rate limited, and packets above the limit
// are dropped without an answer. Answers are marked with topology.MarkReset, so that OVN lets them
// pass: a chain for packets that the host sends recognizes them by a source address that is not the
// host's.
//
// We own the whole table ovn-kube-guard.
//
// Callers: pkg/app; the metrics read Dropped and NoReply.
package snatguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	tableName      = "ovn-kube-guard"
	chainName      = "postrouting"
	forwardName    = "forward"
	preroutingName = "prerouting"
	outputName     = "output"
	counterName    = "unsnatted"
	noReplyName    = "no-reply"
	replyDirection = 1 // the reply direction in conntrack

	tcpFlags       = 13 // offset in the TCP header
	tcpFIN, tcpSYN = 1, 2
	tcpRST         = 4
	etherSource    = 6 // offset in the frame
)

// answerRate is how many connections per second are reset. Pods repeat packets that were not
// answered.
const answerRate = 1000

// afterSNAT is a priority after source translation, which has 100.
const afterSNAT = nftables.ChainPriority(200)

// beforeRaw is a priority before connection tracking and before all rules that exempt packets from
// it, which have -300: nothing else may handle packets that the bridge has handed over.
const beforeRaw = nftables.ChainPriority(-310)

// Guard is the guard of the host in whose network namespace its methods are called.
type Guard struct {
	cluster []netip.Prefix
	inside  string // packets may leave by this link as they are

	turn sync.Mutex // held from reading the counters until what they had is in carried

	mu      sync.Mutex
	carried map[string]uint64 // drops counted by tables that have been replaced, by counter
	answer  expr.Any          // sent when a pod ends a forgotten connection; nil: not supported by the kernel
	early   expr.Any          // the same before routing, which kernels before 5.9 do not support
}

// New returns a guard of the cluster subnets; inside is the management port.
func New(cluster []netip.Prefix, inside string) *Guard {
	return &Guard{cluster: slices.Clone(cluster), inside: inside, carried: map[string]uint64{},
		answer: &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}, early: &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}
}

// Ensure puts the guard in place if it is not already. A table that differs is replaced in one
// transaction; its counts are carried over.
func (g *Guard) Ensure() error {
	g.turn.Lock()
	defer g.turn.Unlock()
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("guard un-SNATed traffic: %w", err)
	}
	upToDate, err := g.upToDate(c)
	if err != nil {
		return fmt.Errorf("guard un-SNATed traffic: read nftables: %w", err)
	}
	if upToDate {
		return nil
	}
	before := map[string]uint64{}
	for _, name := range counters {
		if before[name], err = g.counter(c, name); err != nil {
			return fmt.Errorf("guard un-SNATed traffic: read the counter: %w", err)
		}
	}
	if err := g.write(c); err != nil {
		return fmt.Errorf("guard un-SNATed traffic: write nftables: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, n := range before {
		g.carried[name] += n
	}
	return nil
}

// write replaces the table in one transaction. Dropping matters more than answering: if the kernel
// does not support an answer, the table is written without it.
func (g *Guard) write(c *nftables.Conn) error {
	for {
		g.fill(c)
		err := c.Flush()
		if err == nil || !g.answerLess(err) {
			return err
		}
	}
}

// answerLess gives up an answer that the kernel does not support, and reports whether there was one
// to give up.
func (g *Guard) answerLess(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) && g.early != nil: // before routing
	case errors.Is(err, unix.ENOENT) && (g.answer != nil || g.early != nil): // nft_reject_inet or nft_limit
		g.answer = nil
	default:
		return false
	}
	g.early = nil
	klog.InfoS("Not every connection that the node has forgotten is reset when its pod closes it", "err", err)
	return true
}

func (g *Guard) answers() (answer, early expr.Any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.answer, g.early
}

// fill adds the operations of the transaction to the connection.
func (g *Guard) fill(c *nftables.Conn) {
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	table = c.AddTable(table)
	for _, name := range counters {
		c.AddObj(&nftables.CounterObj{Table: table, Name: name})
	}
	for _, want := range g.chains() {
		chain := c.AddChain(&nftables.Chain{Name: want.name, Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: want.hook, Priority: nftables.ChainPriorityRef(want.priority)})
		for _, exprs := range want.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
		}
	}
}

// counters are the names of the counters.
var counters = []string{counterName, noReplyName}

// chain is one of the chains of the table.
type chain struct {
	name     string
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	rules    [][]expr.Any
}

func (g *Guard) chains() []chain {
	chains := []chain{
		{chainName, nftables.ChainHookPostrouting, afterSNAT, g.rules()},
		{forwardName, nftables.ChainHookForward, *nftables.ChainPriorityFilter, g.forwardRules()},
		{preroutingName, nftables.ChainHookPrerouting, beforeRaw, g.preroutingRules()},
	}
	if answer, _ := g.answers(); answer != nil {
		chains = append(chains, chain{outputName, nftables.ChainHookOutput, *nftables.ChainPriorityFilter, [][]expr.Any{g.marking()}})
	}
	return chains
}

// marking returns the rule that marks answers to pods.
func (g *Guard) marking() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(g.inside)},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpRST}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0}},
		&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagSADDR: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(topology.MarkReset)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

// forwardRules returns, in this order: accept packets that do not come in by the management port;
// answer the end of a forgotten connection; accept packets without the mark; accept replies; drop
// the rest, including packets that belong to no connection.
func (g *Guard) forwardRules() [][]expr.Any {
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	rules := [][]expr.Any{{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: ifname(g.inside)},
		accept,
	}}
	if answer, _ := g.answers(); answer != nil {
		rules = append(rules, g.forgotten(answer))
	}
	return append(rules,
		[]expr.Any{
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(topology.MarkServicePort)},
			accept,
		},
		[]expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{replyDirection}},
			accept,
		},
		[]expr.Any{
			&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: noReplyName},
			&expr.Verdict{Kind: expr.VerdictDrop},
		})
}

// forgotten returns the rule that answers packets which end an unknown connection.
func (g *Guard) forgotten(answer expr.Any) []expr.Any {
	invalid := make([]byte, 4)
	exprs := append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: ifname(g.inside)},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitINVALID), Xor: invalid},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: invalid},
	}, ends()...)
	return append(exprs, limited(), &expr.Objref{Type: int(nftables.ObjTypeCounter), Name: counterName}, answer)
}

// ends matches packets that end a TCP connection, other than resets.
func ends() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpFIN | tcpSYN | tcpRST}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{tcpFIN}},
	}
}

// limited matches up to the rate limit of answers.
func limited() expr.Any {
	return &expr.Limit{Type: expr.LimitTypePkts, Rate: answerRate, Unit: expr.LimitTimeSecond, Burst: answerRate}
}

// preroutingRules handles packets that the bridge has handed over: for each subnet a rule that
// answers pods which close a connection, then the drop. Neither counts packets: the flow that sent
// them here does. The rules come before connection tracking, so that these packets create no
// connection.
func (g *Guard) preroutingRules() [][]expr.Any {
	var rules [][]expr.Any
	if _, early := g.answers(); early != nil {
		for _, p := range g.cluster {
			rules = append(rules, slices.Concat(markedByBridge(), from(p), ends(), []expr.Any{limited(), early}))
		}
	}
	return append(rules, append(markedByBridge(), &expr.Verdict{Kind: expr.VerdictDrop}))
}

// markedByBridge matches frames that the bridge has marked.
func markedByBridge() []expr.Any {
	mac, err := net.ParseMAC(topology.ForgottenMAC)
	if err != nil {
		panic(err) // a constant
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint16(unix.ARPHRD_ETHER)},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: etherSource, Len: uint32(len(mac))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: mac},
	}
}

// rules returns, in this order: accept packets that leave by the management port; packets that stay
// on the host, such as its probes of itself; replies; then one drop per subnet.
func (g *Guard) rules() [][]expr.Any {
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	var rules [][]expr.Any
	for _, link := range []string{g.inside, "lo"} {
		rules = append(rules, []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(link)},
			accept,
		})
	}
	rules = append(rules,
		[]expr.Any{
			// A packet without a connection has no direction, and is not accepted here.
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{replyDirection}},
			accept,
		})
	for _, p := range g.cluster {
		rules = append(rules, append(from(p),
			&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: counterName},
			&expr.Verdict{Kind: expr.VerdictDrop}))
	}
	return rules
}

// from matches packets with a source in the subnet.
func from(p netip.Prefix) []expr.Any {
	proto, offset, size := byte(unix.NFPROTO_IPV4), uint32(12), uint32(4)
	if topology.FamilyOf(p.Addr()) == topology.IPv6 {
		proto, offset, size = unix.NFPROTO_IPV6, 8, 16
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask(p), Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

func mask(p netip.Prefix) []byte {
	b := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return b
}

// upToDate reports whether the table holds exactly our rules.
func (g *Guard) upToDate(c *nftables.Conn) (bool, error) {
	table, err := find(c)
	if table == nil || err != nil {
		return false, err
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, err
	}
	have := map[string]*nftables.Chain{}
	for _, chain := range chains {
		if chain.Table.Name == tableName {
			have[chain.Name] = chain
		}
	}
	for _, want := range g.chains() {
		chain := have[want.name]
		if chain == nil || chain.Hooknum == nil || *chain.Hooknum != *want.hook || chain.Priority == nil || *chain.Priority != want.priority {
			return false, nil
		}
		rules, err := c.GetRules(table, chain)
		if err != nil || !same(rules, want.rules) {
			return false, err
		}
	}
	return len(have) == len(g.chains()), nil
}

// same compares rules by their relevant parts: the data that is compared and the verdict.
func same(have []*nftables.Rule, want [][]expr.Any) bool {
	return slices.EqualFunc(have, want, func(r *nftables.Rule, want []expr.Any) bool {
		return slices.Equal(relevantParts(r.Exprs), relevantParts(want))
	})
}

func relevantParts(exprs []expr.Any) []string {
	var out []string
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Cmp:
			out = append(out, fmt.Sprintf("%d %x", e.Op, e.Data))
		case *expr.Bitwise:
			out = append(out, fmt.Sprintf("& %x", e.Mask))
		case *expr.Verdict:
			out = append(out, fmt.Sprint(e.Kind))
		default:
			out = append(out, fmt.Sprintf("%T", e))
		}
	}
	return out
}

func find(c *nftables.Conn) (*nftables.Table, error) {
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.Name == tableName {
			return t, nil
		}
	}
	return nil, nil
}

// counter returns the value of a counter of the table, or 0 if it does not exist.
func (g *Guard) counter(c *nftables.Conn, name string) (uint64, error) {
	table, err := find(c)
	if table == nil || err != nil {
		return 0, err
	}
	obj, err := c.GetObject(&nftables.CounterObj{Table: table, Name: name})
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if counter, ok := obj.(*nftables.CounterObj); ok {
		return counter.Packets, nil
	}
	return 0, nil
}

// Dropped returns how many packets with a pod's address were dropped since this Guard was created,
// including earlier ones if the table already existed.
func (g *Guard) Dropped() (uint64, error) { return g.dropped(counterName) }

// NoReply returns the same for packets from the port of a Service that were not replies.
func (g *Guard) NoReply() (uint64, error) { return g.dropped(noReplyName) }

func (g *Guard) dropped(name string) (uint64, error) {
	g.turn.Lock()
	defer g.turn.Unlock()
	c, err := nftables.New()
	if err != nil {
		return 0, fmt.Errorf("count dropped packets: %w", err)
	}
	now, err := g.counter(c, name)
	if err != nil {
		return 0, fmt.Errorf("count dropped packets: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.carried[name] + now, nil
}

// Remove removes the guard; for cleanup.
func Remove() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("remove the guard: %w", err)
	}
	c.DelTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the guard: %w", err)
	}
	return nil
}
