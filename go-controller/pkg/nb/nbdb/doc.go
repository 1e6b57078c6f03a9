// Package nbdb holds the models of the OVN northbound database: one struct per table, with
// one field per column. Everything except this file is generated from the installed schema
// by hack/generate-models.sh and never edited.
//
// Planners fill in the models, nb/ovsdb writes them.
package nbdb
