package ovs

import (
	"context"
	"errors"
)

// DefaultEndpoint is the address on which ovsdb-server listens on a node.
const DefaultEndpoint = "unix:/var/run/openvswitch/db.sock"

// Keys of Interface external_ids that are shared with ovn-controller.
const (
	// IfaceID is the name of the logical switch port for which an interface is claimed.
	IfaceID = "iface-id"
	// IfaceIDVersion must equal the port's iface-id-ver option if that is set.
	IfaceIDVersion = "iface-id-ver"
	// Installed is set to "true" by ovn-controller once all flows are installed.
	Installed = "ovn-installed"
)

// nbCfg, in external_ids of its bridge, is the nb_cfg of the northbound database whose flows
// ovn-controller has installed.
const nbCfg = "ovn-nb-cfg"

// DatapathTypeID is the key of the external_ids of Open_vSwitch for the datapath type of all bridges; without it
// they are on the kernel's datapath.
const DatapathTypeID = "ovn-bridge-datapath-type"

// ErrNotFound is returned if a bridge, port or interface is not in the database.
var ErrNotFound = errors.New("not found")

// ErrReplaced is returned for a context of Pin if the database is another one.
var ErrReplaced = errors.New("the Open vSwitch database was lost, and replaced by another one")

// Bridge is an OVS bridge. Its local port and interface have the same name.
type Bridge struct {
	Name         string
	DatapathType string // "netdev", "system"; empty keeps the current value
	FailMode     string // "standalone", "secure"; empty keeps the current value
	MAC          string // other_config:hwaddr; empty keeps the current value
	// Tag is the VLAN of the local port, which makes it an access port: the host's frames are
	// untagged. 0 keeps the current value, NoTag removes it.
	Tag int
	// OtherConfig and ExternalIDs are set key by key; an empty value deletes the key, keys that are
	// not named are kept.
	OtherConfig map[string]string
	ExternalIDs map[string]string
}

// ReservedVLAN is the VLAN ID that IEEE 802.1Q reserves.
const ReservedVLAN = 4095

// NoTag makes the local port of a bridge carry frames unchanged.
const NoTag = -1

// Port is a port with its one interface of the same name.
type Port struct {
	Bridge string
	Name   string
	Type   string // interface type: "" (a system device), "internal", "patch"
	MAC    string // of an internal interface; empty keeps the current value
	MTU    int    // bytes, mtu_request; 0 keeps the current value
	// Trunks are the VLANs that the port carries where the bridge acts as a plain switch (the
	// NORMAL action, or no flows at all), 0 being frames without a tag; empty: all VLANs.
	Trunks []int
	// Options and ExternalIDs belong to the interface and are set key by key; an empty value
	// deletes the key, keys that are not named are kept.
	Options     map[string]string
	ExternalIDs map[string]string
	// PortExternalIDs belong to the port row, with the same rules.
	PortExternalIDs map[string]string

	// OFPort and Error are filled in by Ports only. OFPort is 0 until ovs-vswitchd has assigned a
	// number, and -1 if that failed.
	OFPort int
	Error  string
}

// Client reads and writes the local Open vSwitch database. Every method waits for the connection
// until its context ends.
type Client interface {
	// Pin returns a context for work that belongs to the present database: with it, all methods below return ErrReplaced
	// once the database was replaced, for example because start scripts made a new file. What was read from
	// the lost one must not be written into the next.
	Pin(ctx context.Context) (context.Context, error)
	// EnsureBridge creates or updates a bridge.
	EnsureBridge(ctx context.Context, b Bridge) error
	// DeleteBridge removes a bridge with its ports; it is not an error if it does not exist.
	DeleteBridge(ctx context.Context, name string) error
	// Bridges lists all bridges by name.
	Bridges(ctx context.Context) ([]Bridge, error)
	// EnsurePort creates or updates a port, and removes it from another bridge if it is there.
	EnsurePort(ctx context.Context, p Port) error
	// DeletePort removes a port; it is not an error if it does not exist.
	DeletePort(ctx context.Context, bridge, name string) error
	// Ports lists the ports of a bridge by name, without its local port. It returns ErrNotFound if
	// there is no such bridge.
	Ports(ctx context.Context, bridge string) ([]Port, error)
	// OFPort waits until ovs-vswitchd has assigned a port number to the interface.
	OFPort(ctx context.Context, iface string) (int, error)
	// WaitInstalled waits until the interface has ifaceID and ovn-controller reports that its flows
	// are installed.
	WaitInstalled(ctx context.Context, iface, ifaceID string) error
	// System returns the external_ids of the Open_vSwitch row.
	System(ctx context.Context) (map[string]string, error)
	// SetSystem sets external_ids of the Open_vSwitch row key by key; an empty
	// value deletes the key.
	SetSystem(ctx context.Context, externalIDs map[string]string) error
	// Lacks reports whether a datapath says that it lacks a capability, e.g. "check_pkt_len".
	Lacks(ctx context.Context, capability string) (bool, error)
	// SetTLS sets the files with which ovn-controller connects to a southbound database that uses
	// TLS.
	SetTLS(ctx context.Context, files TLS) error
	// RestoreTLS reverts SetTLS: the files are those that were set before, or none.
	RestoreTLS(ctx context.Context) error
	// ForgetController removes what an ovn-controller that has ended has left in the database,
	// except for its bridge.
	ForgetController(ctx context.Context) error
	// Sync waits until ovs-vswitchd has carried out everything written before.
	Sync(ctx context.Context) error
	// OnReconnect registers f to be called, in a goroutine of its own, each time the database
	// becomes reachable again after a loss.
	OnReconnect(f func())
	// OnInterface registers f to be called with the name of each interface that is added, removed,
	// or changes its port number or external_ids, and of each bridge or port in which others undo what
	// this process has written. f must not block: it should enqueue a key.
	OnInterface(f func(name string))
	// OnSystem registers f to be called each time others undo what SetSystem or SetTLS of this process
	// have written. f must not block.
	OnSystem(f func())
	// OnFlowsInstalled registers f to be called each time ovn-controller reports on its bridge that the
	// flows of a newer northbound database, by NB_Global's nb_cfg, are installed. f must not block.
	OnFlowsInstalled(f func())
}
