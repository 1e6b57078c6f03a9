// Package cluster issues and renews the certificates of a cluster without an administrator.
//
// There are two authorities for OVN. The one of the control plane signs for the northbound database, for the port on which
// masters reach the southbound database, and for the masters. The one of the nodes signs for the southbound database
// and for nodes. Each database accepts what its own authority signed: a node's certificate gives access neither to the
// northbound database nor to that port. A third authority signs for the servers of metrics, which are no databases: they
// share one certificate, by which a client knows that it talks to ovnkube.
//
//   - Issuer holds all of them. Authorities and certificates of the control plane are in Secrets. The kubelets of
//     control-plane nodes mount those of the certificates; those of the authorities are not mounted anywhere.
//   - Node requests the certificate of its node with a CertificateSigningRequest. The key never leaves the node. The
//     API server writes into the request who made it, and on which node that pod runs: Issuer signs for that node
//     only. The common name is the name of the node, which also has to be the system-id of its Open vSwitch: the role
//     ovn-controller distinguishes chassis by it.
//
// A renewed certificate keeps its key. Its users read it for each new connection; existing connections are kept.
//
// Imported by cmd/ovnkube.
package cluster
