// Package cluster has the certificates of a cluster come into being, and be renewed,
// without an administrator.
//
// There are two authorities. That of the control plane signs for the northbound database,
// for the port at which masters reach the southbound one, and for the masters; that of
// the nodes signs for the southbound database and for nodes. Each database accepts
// what its own authority signed: what a node has opens neither the northbound database
// nor that port.
//
//   - Issuer holds both. Authorities and certificates of the control plane are in
//     Secrets, which the kubelets of control-plane nodes mount; the Secrets of the
//     authorities are mounted by nobody.
//   - Node asks for the certificate of its node by a CertificateSigningRequest. The key
//     never leaves the node. The API server writes into the request who asks, and on
//     which node the pod runs: Issuer signs for that node and no other. The common
//     name is the name of the node, which also has to be the system-id of its Open
//     vSwitch: by it role ovn-controller tells chassis apart.
//
// A renewed certificate has the key of the one before. Whoever uses it reads it for the
// next connection; those that are there stay.
//
// Imported by cmd/ovnkube.
package cluster
