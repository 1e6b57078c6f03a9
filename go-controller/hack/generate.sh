#!/usr/bin/env bash
# Writes every generated file of the repository: database models, API clients,
# CustomResourceDefinitions and the references of configuration and conditions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hack/generate-models.sh
hack/update-codegen.sh
mkdir -p ../docs
go run ./hack/configdocs ../docs/configuration.md
go run ./hack/conditiondocs ../docs/conditions.md
echo "generated docs/configuration.md and docs/conditions.md"
