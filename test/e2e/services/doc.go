// Package services tries Kubernetes Services end to end: who answers, and whom the
// one who answers sees as client, on every path there is, in both gateway modes. It
// needs what package suite needs.
package services
