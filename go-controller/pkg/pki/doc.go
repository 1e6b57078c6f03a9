// Package pki makes the certificate authority of a cluster and the certificates that OVN's databases, their clients and
// ovnkube present to each other.
//
// Keys are ECDSA P-256. A directory holds the authority (cacert.pem, cakey.pem) and the certificates (NAME-cert.pem,
// NAME-privkey.pem), named as by ovs-pki. Invariants:
//
//   - An existing file is not changed unless the caller asks for it.
//   - Files are written atomically, and private keys are readable by their owner only from the moment they exist.
//   - A renewed certificate keeps its key: it is replaced by one rename, and no reader ever sees a certificate and a
//     key that do not belong together.
//   - No certificate outlives its authority.
//
// Files.Session returns the TLS configuration of connections between holders of such certificates.
//
// Imported by cmd/ovnkube, app and nb/ovsdb. The caller passes the time.
package pki
