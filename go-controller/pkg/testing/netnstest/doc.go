// Package netnstest gives a test its own fresh network namespace, and optionally a real Open vSwitch in it. Tests
// never touch the machine's network: New moves the test's goroutine into the namespace permanently, and the
// namespace disappears with the goroutine.
//
// Everything the test does on its own goroutine, including commands it runs, happens inside. Goroutines it starts
// are outside unless started with NS.Go; sockets opened inside stay inside wherever they are used.
//
// Callers: tests of the host drivers, the gateway, the CNI and health packages.
package netnstest
