#!/usr/bin/env bash
# Generates the Go models of the OVN northbound and the Open vSwitch databases from the schemas in the installed
# Debian packages ovn-common and openvswitch-common, so that the models match what the servers use.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NB_SCHEMA=${NB_SCHEMA:-/usr/share/ovn/ovn-nb.ovsschema}
VSWITCH_SCHEMA=${VSWITCH_SCHEMA:-/usr/share/openvswitch/vswitch.ovsschema}
# Run in the module, so that the generator has the same version as the library that uses the models.
MODELGEN=github.com/ovn-org/libovsdb/cmd/modelgen

generate() { # package directory, package name, schema, what it models
	local dir=$1 name=$2 schema=$3 what=$4
	if [[ ! -r $schema ]]; then
		echo "$0: $schema is missing: install the packages ovn-common and openvswitch-common" >&2
		exit 1
	fi
	mkdir -p "$dir"
	# Delete only generated files: doc.go is written by hand.
	find "$dir" -maxdepth 1 -name '*.go' ! -name doc.go -delete
	go run "$MODELGEN" -extended -p "$name" -o "$dir" "$schema"
	gofmt -w "$dir"
	echo "generated $what in $dir"
}

generate pkg/nb/nbdb nbdb "$NB_SCHEMA" "the northbound models"
generate pkg/ovs/vswitchd vswitchd "$VSWITCH_SCHEMA" "the Open vSwitch models"
