// Package suite is the end-to-end tests: one kin cluster for each gateway mode,
// on which everything is tried in turn. It needs root and the packages that
// contrib/install-deps.sh installs; "make e2e" builds what it drives.
package suite
