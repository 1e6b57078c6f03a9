// Package hostfake stands in for the kernel and Open vSwitch in tests of
// controllers. Every fake counts writes, so that a test can say that a no-op
// sync writes nothing, and dumps its state as the tools of a host print it.
//
// All fakes are safe for concurrent use. Callers: tests only.
package hostfake
