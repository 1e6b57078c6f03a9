// Package nbdb holds the models of the OVN northbound database: one struct a
// table, with a field a column. Everything but this file is generated from the
// installed schema by hack/generate-models.sh and never edited.
//
// Planners fill the models, nb/ovsdb writes them.
package nbdb
