// Package vswitchd holds the models of the Open_vSwitch database: one struct a
// table, with a field a column. Everything but this file is generated from the
// installed schema by hack/generate-models.sh and never edited.
//
// The node side uses them: external_ids for ovn-controller, bridges and ports.
package vswitchd
