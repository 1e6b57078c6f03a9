// Package monitoring has a real Prometheus scrape a cluster while a node fails, and asks it
// what the dashboard and the alerts ask.
//
// "make monitoring-test" runs it: it needs root, and Prometheus, which that installs.
package monitoring
