// Package config turns a command line, a configuration file, the environment and the
// external_ids of Open vSwitch into one validated Config.
//
// There is one table, Options: each option is one literal with its flag, its section and
// key, its environment variable, its external_ids key, its default, its meaning and the
// field that it sets. The flags of the command line, the parser of the file, the order of
// precedence (flag, file, environment, external_ids, default), the error messages and
// docs/configuration.md are all derived from that table. Names and formats are those of
// OVN-Kubernetes, so command lines and files written for it are accepted. An option for
// something that this program does not do is accepted only if ignoring it does no harm;
// Load then returns a Notice that says so.
//
// The package opens no file, runs no program, reads no environment by itself, and keeps no
// state. A Config is created by Load, passed by value, and never modified afterwards;
// slices in it are read-only.
//
// Callers: cmd/ovnkube (Flags, Load) and hack/configdocs (Markdown). All other packages
// receive the fields that they need from app.
package config
