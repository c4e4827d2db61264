# Everything that is run here in one place: `make help` lists it.
# README's two commands are `make demo` and `make test`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# kfake inside synctest bubbles needs the tag (DESIGN.md says why); the linker
# has no use for debug symbols in binaries that live for one run.
GO_TEST  := go test -tags synctests -ldflags=-w
CHECKED  := -race -shuffle=on
GORELEASER = go tool -modfile=$(CURDIR)/tools/dist/go.mod goreleaser
LINT     := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint
MODULES  := . e2e bench examples/postgres deploy tools/platforms
PACKAGES ?= ./...
FUZZTIME ?= 10s
FOR      ?= 20s
ROW      ?= .*

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1|\2/' | \
		while IFS='|' read -r name what; do printf '  make %-14s %s\n' "$$name" "$$what"; done

.PHONY: demo
demo: build ## run the whole pipeline in one process, nothing installed (FOR=20s)
	@bin/flusso-kafka-admin demo --for $(FOR)

.PHONY: build
build: ## build bin/flusso-kafka-admin (the first time takes a few minutes)
	go build -trimpath -o bin/flusso-kafka-admin ./cmd/flusso-kafka-admin

.PHONY: dist
dist: ## archives and checksums for every platform, into bin/dist (its tool takes minutes to compile the first time)
	$(GORELEASER) check
	version=$$(git describe --tags --exact-match 2>/dev/null || TZ=UTC git log -1 --abbrev=12 --date=format-local:%Y%m%d%H%M%S --format=v0.0.0-%cd-%h); \
	[[ -z $$(git status --porcelain) ]] || version+=-dirty; \
	VERSION=$${version#v} COMMIT_DATE=$$(git log -1 --format=%cI) SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
		$(GORELEASER) release --snapshot --clean

.PHONY: dist-check
dist-check: ## what `make dist` builds compiles on every platform, and is the same bytes wherever it is built
	@echo '== platforms'
	cd tools/platforms && go test -shuffle=on -timeout 8m ./...

.PHONY: test
test: setup ## run everything: unit, conformance, gateway, deploy, platforms, examples, Python reader, benchmarks in small, e2e on real Kafka
	@$(MAKE) --no-print-directory -k test-unit test-python test-gateway test-deploy dist-check test-examples test-bench test-e2e

.PHONY: setup
setup: ## install what the tests need and this machine lacks (as root on Debian or Ubuntu)
	@e2e/setup.sh

.PHONY: test-unit
test-unit: ## unit and conformance tests, channel adapter and embedded broker, with the race detector
	@echo '== unit and conformance'
	$(GO_TEST) $(CHECKED) -timeout 20m $(PACKAGES)

.PHONY: test-python
test-python: bin/python/installed ## read the formats' test vectors, and commits of a feed, with readers in Python
	@echo '== Python readers'
	python3 internal/wire/testdata/reader.py
	python3 internal/wire/testdata/feed_reader.py
	python3 internal/records/testdata/frames.py
	@sample=$$(mktemp -d); trap 'rm -rf "$$sample"' EXIT; set -x; \
		$(GO_TEST) -count=1 -run '^TestF5_Sample$$' ./feeds -sample "$$sample"; \
		bin/python/bin/python feeds/testdata/commits.py "$$sample"

# DuckDB and pyarrow come from PyPI, or from where pip is told to look.
bin/python/installed: feeds/testdata/requirements.txt
	@rm -rf bin/python; { python3 -m venv bin/python && bin/python/bin/pip install --quiet --disable-pip-version-check -r $<; } || { \
		echo 'test-python: the readers of commits cannot be installed: that needs the venv module of Python 3 (Debian: python3-venv), and PyPI or a mirror of it (PIP_INDEX_URL)' >&2; exit 1; }
	@touch $@

.PHONY: test-gateway
test-gateway: ## ask a gateway of feeds whatever its OpenAPI document allows and forbids (schemathesis, two minutes)
	@echo '== gateway'
	SCHEMATHESIS=$$(e2e/schemathesis.sh) && SCHEMATHESIS=$$SCHEMATHESIS go test -tags synctests,schemathesis -ldflags=-w -count=1 -run TestSchemathesis -timeout 9m ./internal/gateway

.PHONY: test-deploy
test-deploy: ## dashboard and alert rules against the real exporter
	@echo '== deploy'
	cd deploy && go test -shuffle=on -timeout 4m ./...

.PHONY: test-examples
test-examples: ## tests of examples/postgres
	@echo '== examples/postgres'
	cd examples/postgres && $(GO_TEST) $(CHECKED) -timeout 8m ./...

.PHONY: test-e2e
test-e2e: ## real Kafka and Postgres in containers; starts an engine where none runs, and stops it
	@echo '== end to end'
	e2e/containers/engine.sh with bash -euo pipefail -c 'e2e/containers/images.sh all >/dev/null && cd e2e && $(GO_TEST) -shuffle=on -p 1 -timeout 14m ./...'

.PHONY: test-bench
test-bench: ## the benchmarks count and draw as they should, and each row runs (in small; nothing about time)
	@echo '== bench'
	cd bench && $(GO_TEST) -shuffle=on -timeout 4m ./...

# Without the tag of the tests: its locks are not those that a user gets. An
# engine is needed only where no broker is named; the documents then stay as
# they are.
.PHONY: bench
bench: ## measure beside raw franz-go and write the tables (ROW=publish for one; BROKER=embedded or host:port writes none)
	$(if $(BROKER),,e2e/containers/engine.sh with) bash -euo pipefail -c 'cd bench && go test -run "^$$" -bench "^BenchmarkRows$$/^($(ROW))$$" \
		-benchtime 1x -timeout 60m . $(if $(BROKER),-bench.out=../bin/bench,-bench.out=../docs/bench -bench.write=../README.md,../docs/performance.md+) $(ARGS)'

.PHONY: screenshot
screenshot: setup ## take docs/serve.png anew, of the demo (five minutes)
	cd e2e && $(GO_TEST) -count=1 -run TestScreenshot ./browser -screenshot ../../docs/serve.png -watched 5m

.PHONY: lint
lint: ## golangci-lint on every module, and go.mod files that are tidy
	@for module in $(MODULES); do \
		echo "== lint $$module"; \
		(cd "$$module" && $(LINT) run ./...) || failed=yes; \
		(cd "$$module" && go mod tidy -diff) || failed=yes; \
	done; [[ -z $${failed:-} ]]

.PHONY: fmt
fmt: ## format all Go files as lint wants them
	@for module in $(MODULES); do (cd "$$module" && $(LINT) fmt ./...); done

.PHONY: stress
stress: ## unit and conformance tests ten times over (PACKAGES=./kafka/... for some)
	$(GO_TEST) $(CHECKED) -count=10 -timeout 60m $(PACKAGES)

.PHONY: stress-feeds
stress-feeds: ## the model tests of feeds for long, in one process and of processes that are killed (RUNS=100 seeds from SEED=1), and a million records in one stream
	$(GO_TEST) -run 'TestLimits_ManyRecordsInOneStream$$' -count=1 -v ./feeds -feeds.records=1000000
	$(GO_TEST) -run '^TestModel' -count=1 -timeout 90m ./feeds -feeds.seed=$(or $(SEED),1) -feeds.runs=$(or $(RUNS),100) -feeds.ops=150 \
		-kills.seed=$(or $(SEED),1) -kills.runs=$(or $(RUNS),100) -kills.lives=25

.PHONY: fuzz
fuzz: ## a short run of every fuzz target (FUZZTIME=10s)
	@grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$$file" | while read -r target; do \
			echo "== $$target in $$(dirname "$$file")"; \
			(cd "$$(dirname "$$file")" && $(GO_TEST) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) . </dev/null); \
		done; \
	done
