package ovs

// InUserspace reports whether a datapath type is that of the datapath in userspace. It differs from the
// kernel's datapath in what other packages must know:
//
//   - It reads the frames of devices through AF_PACKET, so devices must not leave checksums and segmentation
//     to hardware, and the kernel must ignore what they receive (packages link and sandbox).
//   - The mark of a packet is lost on its way to the kernel (package noreroute/node).
//   - It has a connection tracking table of its own (package conntrack, which asks ovs-vswitchd which datapaths there are).
func InUserspace(datapathType string) bool { return datapathType == "netdev" }
