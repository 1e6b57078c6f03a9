// Package services tests Kubernetes Services end to end: which endpoint answers, and which client
// address it sees, on every path, in both gateway modes. It has the same requirements as package
// suite.
package services
