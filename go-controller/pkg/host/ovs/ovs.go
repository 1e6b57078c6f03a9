package ovs

import (
	"context"
	"errors"
)

// DefaultEndpoint is where ovsdb-server listens on a node.
const DefaultEndpoint = "unix:/var/run/openvswitch/db.sock"

// Keys of Interface external_ids that are shared with ovn-controller.
const (
	// IfaceID names the logical switch port an interface is claimed for.
	IfaceID = "iface-id"
	// IfaceIDVersion must equal the port's iface-id-ver option where that is set.
	IfaceIDVersion = "iface-id-ver"
	// Installed is set to "true" by ovn-controller once all flows are in.
	Installed = "ovn-installed"
)

// nbCfg, in external_ids of its bridge, is the nb_cfg of the northbound database
// whose flows ovn-controller has put in.
const nbCfg = "ovn-nb-cfg"

// ErrNotFound says that a bridge, port or interface is not in the database.
var ErrNotFound = errors.New("not found")

// Bridge is an OVS bridge. Its local port and interface have the same name.
type Bridge struct {
	Name         string
	DatapathType string // "netdev", "system"; empty keeps what is there
	FailMode     string // "standalone", "secure"; empty keeps what is there
	MAC          string // other_config:hwaddr; empty keeps what is there
	// Tag is the VLAN of the local port, which makes it an access port: the
	// host's frames are untagged. 0 keeps what is there, NoTag takes it off.
	Tag int
	// OtherConfig and ExternalIDs are set key by key; an empty value deletes
	// the key, keys not named are kept.
	OtherConfig map[string]string
	ExternalIDs map[string]string
}

// ReservedVLAN is the VLAN that IEEE 802.1Q gives to nobody.
const ReservedVLAN = 4095

// NoTag makes the local port of a bridge carry frames as they are.
const NoTag = -1

// Port is a port with its one interface of the same name.
type Port struct {
	Bridge string
	Name   string
	Type   string // interface type: "" (a system device), "internal", "patch"
	MAC    string // of an internal interface; empty keeps what is there
	MTU    int    // bytes, mtu_request; 0 keeps what is there
	// Trunks are the VLANs that the port carries where the bridge acts as a plain
	// switch (the NORMAL action, or no flows at all), 0 being frames without a tag;
	// none: all VLANs.
	Trunks []int
	// Options and ExternalIDs are those of the interface, set key by key; an
	// empty value deletes the key, keys not named are kept.
	Options     map[string]string
	ExternalIDs map[string]string
	// PortExternalIDs are those of the port row, with the same rules.
	PortExternalIDs map[string]string

	// OFPort and Error are filled in by Ports only. OFPort is 0 while
	// ovs-vswitchd has not given a number and -1 where it failed to.
	OFPort int
	Error  string
}

// Client reads and writes the local Open vSwitch database. Every method waits
// for the connection until its context ends.
type Client interface {
	// EnsureBridge creates or updates a bridge.
	EnsureBridge(ctx context.Context, b Bridge) error
	// DeleteBridge removes a bridge with its ports; one that is gone is no error.
	DeleteBridge(ctx context.Context, name string) error
	// Bridges lists all bridges by name.
	Bridges(ctx context.Context) ([]Bridge, error)
	// EnsurePort creates or updates a port and takes it away from another
	// bridge where it is on one.
	EnsurePort(ctx context.Context, p Port) error
	// DeletePort removes a port; one that is gone is no error.
	DeletePort(ctx context.Context, bridge, name string) error
	// Ports lists the ports of a bridge by name, without its local port. It
	// returns ErrNotFound where there is no such bridge.
	Ports(ctx context.Context, bridge string) ([]Port, error)
	// OFPort waits until ovs-vswitchd has given the interface a port number.
	OFPort(ctx context.Context, iface string) (int, error)
	// WaitInstalled waits until the interface carries ifaceID and
	// ovn-controller has said that its flows are in.
	WaitInstalled(ctx context.Context, iface, ifaceID string) error
	// System returns the external_ids of the Open_vSwitch row.
	System(ctx context.Context) (map[string]string, error)
	// SetSystem sets external_ids of the Open_vSwitch row key by key; an empty
	// value deletes the key.
	SetSystem(ctx context.Context, externalIDs map[string]string) error
	// Lacks reports whether a datapath says that it has not got a capability, e.g.
	// "check_pkt_len".
	Lacks(ctx context.Context, capability string) (bool, error)
	// SetTLS sets the files with which ovn-controller reaches a southbound
	// database that speaks TLS.
	SetTLS(ctx context.Context, files TLS) error
	// RestoreTLS takes SetTLS back: the files are those that there were before, or none.
	RestoreTLS(ctx context.Context) error
	// ForgetController removes what an ovn-controller that has ended has left in the
	// database, but for its bridge.
	ForgetController(ctx context.Context) error
	// Sync waits until ovs-vswitchd has carried out everything written before.
	Sync(ctx context.Context) error
	// OnReconnect registers f to be called, in a goroutine of its own, each
	// time the database was reached again after a loss.
	OnReconnect(f func())
	// OnInterface registers f to be called with the name of each interface
	// that appears, goes, or changes in port number or external_ids. f must
	// not block: it is to enqueue a key.
	OnInterface(f func(name string))
	// OnInForce registers f to be called each time ovn-controller says on its
	// bridge that the flows of a newer northbound database, by NB_Global's nb_cfg,
	// are in. f must not block.
	OnInForce(f func())
}
