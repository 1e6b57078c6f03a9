// Package plot draws curves of test measurements as SVG, for the documentation.
//
// Callers: test/scale and test/monitoring.
package plot
