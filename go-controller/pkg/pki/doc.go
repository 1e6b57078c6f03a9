// Package pki makes the certificate authority of a cluster and the certificates that
// OVN's databases, their clients and ovnkube show each other.
//
// Keys are ECDSA P-256. A directory holds the authority (cacert.pem, cakey.pem) and
// the certificates (NAME-cert.pem, NAME-privkey.pem), named as ovs-pki names them.
// What holds:
//
//   - A file that exists stays as it is unless the caller asks for another one.
//   - A file is there whole or not at all, and a private key is readable by its
//     owner only from its first instant.
//   - A renewed certificate has the key of the one before: one rename replaces it, and
//     no reader finds a certificate and a key that do not belong together.
//   - No certificate outlives its authority.
//
// Files.Session is the TLS of connections between those who have them.
//
// Imported by cmd/ovnkube, app and nb/ovsdb. The caller passes the time.
package pki
