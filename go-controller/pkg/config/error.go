package config

import (
	"fmt"
	"strings"
)

// Error is a rejected setting. Its text is one line.
type Error struct {
	// Where names the setting: "--mtu", "FILE:default:mtu", "environment
	// variable KUBECONFIG", "external_ids:ovn-nb" or "default of --mtu".
	Where string
	// Value as it was given.
	Value string
	// Problem says what is wrong, if it is more than a value that is not allowed; often
	// empty.
	Problem string
	// Allowed says which values are accepted.
	Allowed string
}

// Error returns "WHERE: value "VALUE": PROBLEM; allowed: ALLOWED".
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: value %q", e.Where, e.Value)
	if e.Problem != "" {
		b.WriteString(": " + e.Problem + ";")
	} else {
		b.WriteString(":")
	}
	b.WriteString(" allowed: " + e.Allowed)
	return b.String()
}

// Notice is a setting that is accepted without effect, one that is less safe than it could be, one that replaces a
// different one, or a source that could not be read.
type Notice struct {
	// Where names the setting as in Error.
	Where string
	// Value as it was given; only if it has no effect.
	Value string
	// Reason says why it has no effect, or what is wrong.
	Reason string
	// Override is true if the setting replaces a different one, which may be intended.
	Override bool
}

// String returns "WHERE: value "VALUE" accepted, has no effect: REASON".
func (n Notice) String() string {
	if n.Value == "" {
		return n.Where + ": " + n.Reason
	}
	return fmt.Sprintf("%s: value %q accepted, has no effect: %s", n.Where, n.Value, n.Reason)
}
