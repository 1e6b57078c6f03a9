// Package monitoring makes a real Prometheus scrape a cluster while a node fails, and runs
// the queries of the dashboard and the alerts.
//
// "make monitoring-test" runs it. It needs root, and Prometheus, which the make target installs.
package monitoring
