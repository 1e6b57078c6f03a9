// Package plot draws curves as SVG: what tests measured, for the documentation.
//
// Callers: test/scale and test/monitoring.
package plot
