#!/usr/bin/env bash
# Writes every generated file in the repository: database models, API clients, CustomResourceDefinitions, the
# references of configuration, conditions, metrics, constants and transitions, and the picture of the packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hack/generate-models.sh
hack/update-codegen.sh
mkdir -p ../docs
go run ./hack/configdocs ../docs/configuration.md
go run ./hack/conditiondocs ../docs/conditions.md
go run ./hack/metricdocs ../docs/metrics.md
go run ./hack/referencedocs ../docs/design/reference.md
go run ./hack/transitiondocs ../docs/design/egress-ip-transitions.md
go run ./hack/graph ../docs/design/packages.svg
echo "generated docs/configuration.md, docs/conditions.md, docs/metrics.md, docs/design/reference.md, egress-ip-transitions.md and packages.svg"
