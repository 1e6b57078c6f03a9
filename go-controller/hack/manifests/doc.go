// Package manifests contains only tests: the API server and ovnkube must accept what is in dist.
package manifests
