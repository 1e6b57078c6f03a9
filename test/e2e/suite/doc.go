// Package suite contains the end-to-end tests: one kin cluster for each gateway mode, on which the
// tests run in turn. It needs root and the packages that contrib/install-deps.sh installs; "make
// e2e" builds the binaries that it uses.
package suite
