// Package hostfake stands in for the kernel and Open vSwitch in tests of controllers. Every fake
// counts writes, so that a test can check that a no-op sync writes nothing, and dumps its state as
// the host's tools print it.
//
// All fakes are safe for concurrent use. Callers: tests only.
package hostfake
