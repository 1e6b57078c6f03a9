// Package manifests has only tests: what is in dist must be what the API server
// and ovnkube accept.
package manifests
