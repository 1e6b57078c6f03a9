// Package config turns a command line, a configuration file, the environment
// and the external_ids of Open vSwitch into one validated Config.
//
// There is one table, Options: each option is one literal that names its flag,
// its section and key, its environment variable, its external_ids key, its
// default, its meaning and the field it fills. The flags of the command line,
// the reader of the file, the order of precedence (flag, file, environment,
// external_ids, default), the error messages and docs/configuration.md all come
// from that table. Names and formats are those of OVN-Kubernetes, so a command
// line or file written for it is understood; an option that asks for something
// this program does not do is accepted only where ignoring it does no harm, and
// Load then returns a Notice that says so.
//
// The package is pure: it opens no file, runs no program and reads no
// environment by itself, and it keeps no state. A Config is made by Load, passed
// by value, and never written afterwards; slices in it are read only.
//
// Callers: cmd/ovnkube (Flags, Load) and hack/configdocs (Markdown). Everybody
// else receives the fields they need from app.
package config
