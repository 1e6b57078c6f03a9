# Run "make help" for a list of targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

OUT := $(CURDIR)/_output
BIN := $(OUT)/bin
# Modules to lint. contrib/kin/kubernetes, contrib/kin/dns and test/conformance are left out,
# because they are short main packages, and linting them would load all of Kubernetes;
# contrib/kin/cni has no source of its own.
MODULES := go-controller contrib/kin test/e2e test/monitoring test/page test/scale dist/images dist/release

VERSION_PACKAGE := github.com/ovnkube/ovnkube/go-controller/pkg/version
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X $(VERSION_PACKAGE).Version=$(VERSION) -X $(VERSION_PACKAGE).Commit=$(COMMIT)

# Everything compiled without the race detector uses the same settings, so that what is in the image,
# linter, generators and tests share packages in the build cache. Nothing of it depends on the directory of the
# repository (-trimpath), so that the copy of it that "make verify" makes shares them, too.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null)) -trimpath)

KIN := $(BIN)/kin
CLUSTER ?= kin
NODES ?= 3
GATEWAY_MODE ?= shared
IP_FAMILY ?= dual

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## Build ovnkube, ovn-k8s-cni-overlay and kin into _output/bin (static)
	cd go-controller && go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...
	cd contrib/kin && go build -ldflags '-s -w' -o $(BIN)/ ./cmd/...

PREFIX ?= /usr/local

.PHONY: install
install: build ## Install ovnkube, and its kubectl plugin, into PREFIX (/usr/local)
	install -D -m 755 $(BIN)/ovnkube $(DESTDIR)$(PREFIX)/bin/ovnkube
	ln -sf ovnkube $(DESTDIR)$(PREFIX)/bin/kubectl-egress

.PHONY: image
image: build ## Build the container image without a container engine into _output/image.tar (root)
	@dist/images/build.sh $(OUT)

.PHONY: release
release: ## Write the files of a release into _output/release: binaries, image, manifests, licenses, checksums (root, for the image)
	@dist/release/release.sh $(OUT)

.PHONY: deps
deps: ## Install the Debian packages that tests and clusters need (root)
	@contrib/install-deps.sh

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(OUT)

##@ Generated files

.PHONY: generate
generate: ## Write all generated files
	go-controller/hack/generate.sh

.PHONY: graph
graph: ## Draw the import graph of the packages into docs/design/packages.svg
	cd go-controller && go run ./hack/graph ../docs/design/packages.svg

.PHONY: verify
verify: ## Fail if a generated file is stale
	@go-controller/hack/verify.sh

##@ Checks

# golangci-lint is a module of its own, to keep its dependencies out of ours. Building it
# takes a minute, once for each version.
GOLANGCI_LINT := $(BIN)/golangci-lint
$(GOLANGCI_LINT): go-controller/hack/tools/go.mod go-controller/hack/tools/go.sum
	@echo "building golangci-lint (once)"
	cd go-controller/hack/tools && go build -ldflags '-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run golangci-lint, with the import walls, over every module, and shellcheck over the scripts
	@git ls-files '*.sh' .ci/run dist/images/start | xargs shellcheck --external-sources --severity=warning
	@for module in $(MODULES); do \
		echo "lint: $$module"; \
		(cd $$module && $(GOLANGCI_LINT) run --allow-parallel-runners -c $(CURDIR)/.golangci.yml ./...); \
	done

# Quick tests exclude the packages whose tests start databases or create
# namespaces, which are recognized by the test harnesses that they import.
HARNESSES := testing/(netnstest|ovsdbtest|ovntrace)
.PHONY: unit
unit: ## Run the quick tests: no root, no OVN, under a minute
	cd go-controller && go test $$(go list -f '{{.ImportPath}} {{join .TestImports ","}},{{join .XTestImports ","}}' ./... | \
		grep -v -E '$(HARNESSES)|/generated/' | cut -d' ' -f1)
	cd contrib/kin && go test -short ./...

# Without the race detector: generators, which have no goroutines; and health, as the detector's stack depot
# occasionally crashes (SIGSEGV in StackDepotBase::Put, Go 1.26) when tens of thousands of goroutines start, as they do
# in its tests under a fake clock.
WITHOUT_RACE := /go-controller/(hack/.*|pkg/health)$$
.PHONY: test-layers
test-layers: ## Run every test below the cluster, against real databases and kernels (root)
	cd go-controller && CGO_ENABLED=1 go test -race -vet=off -timeout 20m $$(go list ./... | grep -v -E '$(WITHOUT_RACE)')
	cd go-controller && go test -vet=off $$(go list ./... | grep -E '$(WITHOUT_RACE)')
	cd contrib/kin && go test -vet=off ./...
	cd dist/images && go test -vet=off ./...
	cd dist/release && go test -vet=off ./...

# Fuzz targets are found automatically, so new ones need no entry here.
FUZZTIME ?= 1m
.PHONY: fuzz
fuzz: ## Fuzz every decoder and planner for FUZZTIME each (FUZZ=REGEXP, FUZZ_WORKERS)
	FUZZTIME=$(FUZZTIME) go-controller/hack/fuzz.sh

.PHONY: fuzz-short
fuzz-short: ## Fuzz every decoder and planner with a few hundred inputs
	FUZZTIME=300x go-controller/hack/fuzz.sh

.PHONY: mutate
mutate: ## Break product code on purpose and check that tests fail: a sample, MUTATE=all or MUTATE=REGEXP (root)
	cd go-controller && go run ./hack/mutate '$(MUTATE)'

# Go's limit applies to each package; the slowest one, suite, takes up to 50 minutes on two cores.
E2E_TIMEOUT ?= 80m
E2E_PACKAGES ?=
FIGURES := $(OUT)/figures.json
.PHONY: e2e
e2e: cluster-binaries image ## Run the end-to-end tests on kin clusters (root; E2E_RUN=REGEXP, E2E_FLAGS='-count=20', E2E_TIMEOUT)
	@rm -f $(FIGURES)
	@failed=0; KIN=$(KIN) E2E_LOGS=$(OUT)/e2e-logs E2E_FIGURES=$(FIGURES) test/e2e/run.sh \
		'$(E2E_RUN)' '$(E2E_PACKAGES)' -timeout $(E2E_TIMEOUT) $(E2E_FLAGS) || failed=1; \
	if [[ -e $(FIGURES) ]]; then (cd test/e2e && go run ./figures/show $(FIGURES)); fi; exit $$failed

.PHONY: e2e-full
e2e-full: ## Run all end-to-end tests, every one in both gateway modes (root; as e2e)
	E2E_FULL=1 $(MAKE) e2e E2E_TIMEOUT=3h

.PHONY: e2e-long
e2e-long: ## Run the end-to-end tests of random events, with many repetitions (root; E2E_RUN, hours)
	E2E_FULL=1 FAILOVER_RUNS=20 LEAK_EVENTS=50 LEAK_DOWN=1m EGRESSIP_FAILOVERS=20 EGRESSIP_MOVES=20 EGRESSIP_REBOOTS=20 EGRESSIP_TAKEOVER=50 EGRESSIP_NEWPODS=60 EGRESSIP_STARTS=40 FAULTS=all BLIND=all OUTAGES=3 \
		EXTERNAL_GATEWAY_RESTARTS=20 $(MAKE) e2e E2E_TIMEOUT=6h E2E_PACKAGES=./suite E2E_RUN='$(or $(E2E_RUN),Gateway/(NoLeak|FailoverLatency|EgressIP|ExternalGateways|Faults|Blind|Outage)|TestOptions)'

.PHONY: chaos
chaos: ## Inject CHAOS_FAULTS random faults (200) into a kin cluster under egress traffic (root; SEED, which a run prints; STEP=NUMBER repeats that step)
	CHAOS_FAULTS=$(or $(CHAOS_FAULTS),200) CHAOS_SEED=$(SEED) CHAOS_STEP=$(STEP) $(MAKE) e2e E2E_TIMEOUT=6h E2E_PACKAGES=./suite E2E_RUN='TestLocalGateway/Chaos' E2E_FLAGS='-v $(E2E_FLAGS)'

.PHONY: high-availability-chaos
high-availability-chaos: ## Inject CHAOS_FAULTS random faults (200) into a cluster from the manifests with three masters and clustered databases (root; SEED, STEP)
	CHAOS_FAULTS=$(or $(CHAOS_FAULTS),200) CHAOS_SEED=$(SEED) CHAOS_STEP=$(STEP) $(MAKE) e2e E2E_TIMEOUT=6h E2E_PACKAGES=./suite E2E_RUN='TestHighAvailabilityChaos' E2E_FLAGS='-v $(E2E_FLAGS)'

.PHONY: high-availability-test
high-availability-test: ## Turn a cluster from the manifests into one with three masters and clustered databases, and take members away (root)
	HIGH_AVAILABILITY=1 $(MAKE) e2e E2E_PACKAGES=./suite E2E_RUN='TestInstalled/(Recovery|HighAvailability)' E2E_FLAGS='-v $(E2E_FLAGS)'

# The version to start from: the last tag before this commit, or, if there is none,
# the first commit whose databases use TLS.
UPGRADE_FROM ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null || echo da75b58d8629e1eda9e87628721481a219d936de)
.PHONY: upgrade-test
upgrade-test: build image ## Upgrade a cluster from the manifests of an earlier version (UPGRADE_FROM=REVISION) under egress traffic, and go back (root)
	test/e2e/upgrade.sh $(UPGRADE_FROM) $(OUT)/upgrade
	UPGRADE_DIR=$(OUT)/upgrade $(MAKE) e2e E2E_PACKAGES=./suite E2E_RUN='TestUpgrade' E2E_FLAGS='-v $(E2E_FLAGS)'

.PHONY: page-test
page-test: cluster-binaries image ## Test the egress page of "ovnkube egress serve" and of a master with Chromium on a kin cluster (root; installs Chromium, 220 MB; PAGE_SCREENSHOTS=DIR)
	@contrib/install-deps.sh chromium-headless-shell fonts-dejavu-core
	cd test/page && KIN=$(KIN) E2E_LOGS=$(OUT)/e2e-logs PAGE_SCREENSHOTS=$(if $(PAGE_SCREENSHOTS),$(abspath $(PAGE_SCREENSHOTS))) \
		go test -vet=off -count=1 -v -timeout 20m ./...

.PHONY: monitoring-test
monitoring-test: cluster-binaries image ## Run the queries of dashboard and alerts on a Prometheus that scrapes a kin cluster, while a node fails (root; MONITORING_PLOTS=DIR)
	@contrib/install-deps.sh prometheus
	cd test/monitoring && KIN=$(KIN) E2E_LOGS=$(OUT)/e2e-logs MONITORING_PLOTS=$(if $(MONITORING_PLOTS),$(abspath $(MONITORING_PLOTS))) \
		go test -vet=off -count=1 -v -timeout 20m ./...

.PHONY: figures
figures: ## Print what the last end-to-end run measured, or compare two such files (A=FILE B=FILE)
	@$(if $(A)$(B),$(if $(and $(A),$(B)),,$(error say what to compare: make figures A=FILE B=FILE)))cd test/e2e && go run ./figures/show $(if $(A),$(abspath $(A)) $(abspath $(B)),$(FIGURES))

.PHONY: conformance
conformance: cluster-binaries ## Run the network specs of the Kubernetes end-to-end suite (root; GATEWAY_MODE, CONFORMANCE_FOCUS=REGEXP)
	KIN=$(KIN) GATEWAY_MODE=$(GATEWAY_MODE) test/conformance/run.sh $(OUT)/conformance

.PHONY: kind-e2e
kind-e2e: ## Test the image and the manifests on a kind cluster (Docker, kind, kubectl; GATEWAY_MODE)
	@GATEWAY_MODE=$(GATEWAY_MODE) IP_FAMILY=$(IP_FAMILY) test/kind/run.sh

SCALE ?= small
SCALE_TIMES ?= 1
SCALE_RESULTS := $(OUT)/scale.json
.PHONY: scale
scale: cluster-binaries ## Measure a master in a cluster with simulated nodes (root; SCALE=tiny|small|egressips|large, SCALE_TIMES, SCALE_FLAGS)
	cd test/scale && go build -o $(BIN)/scale .
	@$(BIN)/scale run --size $(SCALE) --times $(SCALE_TIMES) --out $(SCALE_RESULTS) $(SCALE_FLAGS)

.PHONY: scale-agent
scale-agent: cluster-binaries ## Measure the agent of a node in a cluster without a master (root; as scale)
	cd test/scale && go build -o $(BIN)/scale .
	@$(BIN)/scale agent --size $(SCALE) --times $(SCALE_TIMES) --out $(SCALE_RESULTS) $(SCALE_FLAGS)

.PHONY: scale-ask
scale-ask: cluster-binaries ## Measure an answer of "ovnkube egress" in a cluster without a master (root; as scale)
	cd test/scale && go build -o $(BIN)/scale .
	@$(BIN)/scale ask --size $(SCALE) --times $(SCALE_TIMES) --out $(SCALE_RESULTS) $(SCALE_FLAGS)

.PHONY: scale-compare
scale-compare: ## Compare what two runs of scale measured (A=FILE B=FILE)
	@$(if $(and $(A),$(B)),,$(error say what to compare: make scale-compare A=FILE B=FILE))cd test/scale && go run . show $(abspath $(A)) $(abspath $(B))

.PHONY: scale-plot
scale-plot: ## Plot time against size of runs with several SCALE_TIMES into _output/scale.svg (FILES='FILE...', SCALE, PHASES=REGEXP)
	@$(if $(FILES),,$(error say what to plot: make scale-plot FILES='FILE...'))mkdir -p $(OUT) && cd test/scale && go run . plot -phases '$(PHASES)' $(SCALE) $(abspath $(FILES)) >$(OUT)/scale.svg

.PHONY: scale-test
scale-test: cluster-binaries ## Test the scale measurements on the smallest cluster (root)
	cd test/scale && go test -count=1 ./...

# Kubernetes and the image are built in parallel with the tests that need neither, using the CPU time
# that these tests leave. What needs no cluster uses that which the end-to-end tests leave, two targets at a time:
# "verify" and "mutate" change copies only, so it does not matter which.
.PHONY: test
test: deps build ## Run everything
	@set -m; log=$(OUT)/cluster-binaries.log; \
	nice -n 19 $(MAKE) cluster-binaries image >$$log 2>&1 & building=$$!; \
	trap 'kill -TERM -- -$$building 2>/dev/null || true' EXIT; \
	$(MAKE) test-layers; \
	echo "test: waiting for Kubernetes and the image, which are built meanwhile (see $$log)"; \
	wait $$building || { cat $$log; exit 1; }
	@E2E_BESIDE='$(MAKE) -C $(CURDIR) --jobs 2 --output-sync=target lint verify fuzz-short mutate' $(MAKE) e2e

# Benchmarks are found automatically, so new ones need no entry here.
.PHONY: bench
bench: ## Run every benchmark: the northbound writer, and the planning of Services and the egress features
	cd go-controller && go test -run '^$$' -bench . -benchtime 3x $$(grep -rl --include='*_test.go' '^func Benchmark' pkg | xargs dirname | sort -u | sed 's|^|./|')

##@ Another kernel

.PHONY: vm
vm: ## Run CMD='...' in a virtual machine with Debian's kernel on this machine's files (root; contrib/vm)
	@contrib/vm/vm.sh $(if $(CMD),'$(subst ','\'',$(CMD))',$(error say what to run: make vm CMD='...'))

.PHONY: test-kernel
test-kernel: cluster-binaries ## Run tests and clusters on the kernel's datapath in a virtual machine (root; KERNEL_MODES, KERNEL_CHECKS, KERNEL_E2E, KERNEL_PODS, KERNEL_TESTS)
	@contrib/vm/test-kernel.sh build $(OUT)/test-kernel
	@VM_TIMEOUT=$${VM_TIMEOUT:-28800} contrib/vm/vm.sh "$(foreach v,KERNEL_MODES KERNEL_CHECKS KERNEL_E2E KERNEL_PODS KERNEL_TESTS,$(if $(filter-out undefined,$(origin $(v))),export $(v)='$($(v))'; ))contrib/vm/test-kernel.sh run $(OUT)/test-kernel"

##@ Clusters

.PHONY: cluster-binaries
cluster-binaries: build ## Build Kubernetes and the images of the clusters, unless they are built
	@$(KIN) build

.PHONY: demo
demo: deps cluster-binaries image ## Watch an EgressService fail over on a real cluster (DEMO_KEEP=1 leaves the cluster)
	cd test/e2e && KIN=$(KIN) go run ./demo

.PHONY: cluster-up
cluster-up: deps cluster-binaries image ## Create a local cluster (CLUSTER, NODES, GATEWAY_MODE, IP_FAMILY)
	@$(KIN) create cluster --name $(CLUSTER) --nodes $(NODES) --gateway-mode $(GATEWAY_MODE) --ip-family $(IP_FAMILY)

# After "make clean", kin is built again to delete the cluster.
$(KIN):
	cd contrib/kin && go build -ldflags '-s -w' -o $(BIN)/ ./cmd/kin

.PHONY: cluster-down
cluster-down: $(KIN) ## Delete the local cluster
	@$(KIN) delete cluster --name $(CLUSTER)
