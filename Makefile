# `make` shows what there is. It needs Go, GNU make and, for `make test`, the few
# Debian packages of DEPS.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# command:package, or /file:package, what the tests run beside Go. What is there is not installed again.
DEPS := rabbitmq-server:rabbitmq-server fusermount3:fuse3 faketime:faketime redis-server:redis-server postgres:postgresql pgbouncer:pgbouncer mariadbd:mariadb-server java:default-jre-headless mvn:maven node:nodejs npm:npm chromium:chromium \
	nginx:nginx haproxy:haproxy systemd-socket-activate:systemd \
	prometheus:prometheus prometheus-alertmanager:prometheus-alertmanager aiosmtpd:python3-aiosmtpd \
	/usr/lib/python3/dist-packages/psycopg:python3-psycopg /usr/lib/python3/dist-packages/pymysql:python3-pymysql
# What a release is made and tried with.
RELEASE_DEPS := buildah:buildah mmdebstrap:mmdebstrap bwrap:bubblewrap systemd-analyze:systemd minisign:minisign
# What bench/ compares with beside Go modules.
PEERS := beanstalkd:beanstalkd

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.release=$(VERSION)

# The race detector makes pure-Go SQLite about ten times slower, and test/ drives
# programs that are built without it: what needs minutes for little is left out, and so
# are the suites on servers, what starts servers for tests, and the guard's simulator, which
# has no goroutines (make race RACE_EXCEPT=/test/ runs them, too).
RACE_EXCEPT := /test/|/examples/|/backend/(mysql|postgres|redisstream(/partitiontest)?)$$|/internal/[a-z]*test$$|/guard/internal/
RACE_PACKAGES ?= $(shell go list ./... | grep -vE '$(RACE_EXCEPT)')

# A source's goroutines are the same whatever it does with dead letters and of whatever
# type its queue is: the suites of sources run once there, not for each way. -short plays
# fewer seeds of simulations, which the tests without the detector play all. It empties pools at random.
# SQLite itself was translated from C: races are looked for in what calls it, which is four times as fast.
RACE_FLAGS = -gcflags='modernc.org/sqlite/lib=-race=false'
RACE_SKIP ?= TestChecksumAllocatesNothing|TestPagesInABrowser|TestConformance/^(Classic|NativeTx|NativeDLX)$$|TestOnAServer/Conformance/^(Native|WorkQueue)$$

# Packages at a time, more than there are processors: many tests wait for servers, leases
# and sessions. test/ begins first, it takes longest.
AT_ONCE ?= $(shell expr $$(nproc) \* 2)

# Tests that kill real servers on a busy machine fail now and then for the machine's
# sake. One that failed is run again by itself, once, unless many did or two goroutines
# raced; if it passes then it is named at the end, as something to look into. Histories and
# planted faults come from a new seed each time: a second run says nothing of the first, so
# that they run beside the others, once.
ONCE = ./test/history ./test/mutants
TEST_PACKAGES = $(shell go list ./test/... | grep -vE '/test/(history|mutants)$$') $(shell go list ./... | grep -v /test/)
RERUN = bin/rerun.txt
GOTESTSUM = $(CURDIR)/$(TOOLS)/gotestsum --format pkgname-and-test-fails --rerun-fails=1 --rerun-fails-max-failures=5 \
	--rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report $(CURDIR)/$(RERUN)
reruns = @if [ -s $(RERUN) ]; then echo "passed only when it was run again:"; cat $(RERUN); fi

# Modules below this one, each with a go.mod of its own.
MODULES = $(patsubst %/go.mod,%,$(wildcard bench/go.mod */bench/go.mod test/*/go.mod examples/*/go.mod tools/*/go.mod))

# Linters are built once for each state of tools/go.sum.
TOOLS := bin/tools-$(shell sha256sum tools/go.sum | cut -c1-12)

# The tests that `make proof` repeats: their names say what is done to the program.
PROOF ?= Kill|Power|HeldTwice|Dies|Cut|MonitorRace|Transfer|Storm|MutantsAreFound|Hostile
PROOF_PACKAGE ?= ./internal/daemon ./test/mutants ./test/e2e ./test/transfer ./backend/postgres ./backend/mysql ./backend/redisstream ./backend/redisstream/partitiontest ./backend/redislist ./backend/rabbitmq ./backend/kafka
# Stores that `make proof` compares with the memory store, by ROUNDS pairs of seeds.
DIFFER_PACKAGE ?= ./backend/sqlite ./backend/postgres ./backend/mysql ./backend/redisstream
ROUNDS ?= 1000
FUZZTIME ?= 10s
COUNT ?= 10
BENCH ?= .

.PHONY: help
help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what the tests run beside Go (as root or in CI; else say what is missing)
	@.ci/deps $(DEPS)
	@.ci/kafka bin/kafka
	@.ci/browser bin/browser

.PHONY: build
build: ## build the static binary bin/redrive
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/redrive ./cmd/redrive

.PHONY: release
release: ## make the release VERSION in dist/: archives, packages, images, SBOM, checksums; REDRIVE_SIGNING_KEY signs them
	go -C tools/release run . -version $(VERSION) -out $(CURDIR)/dist $(RELEASE)

.PHONY: test-release
test-release: ## try a release of linux for real: twice the same bytes, install, upgrade, image, go install (as root)
	@.ci/deps $(RELEASE_DEPS)
	$(MAKE) release RELEASE='-targets linux/$(shell go env GOARCH)'
	test/release/debian dist
	test/release/image dist
	test/release/signed
	test/release/goinstall
	test/release/reproducible dist $(VERSION)

.PHONY: test
test: deps $(TOOLS)/gotestsum ## run every test, then the race detector; at most 15 minutes on 2 cores
	@mkdir -p bin
	CGO_ENABLED=0 go test -p 2 -shuffle=on -count=1 -timeout 15m $(ONCE) >bin/once.txt 2>&1 & once=$$!; \
	CGO_ENABLED=0 $(GOTESTSUM) --packages='$(TEST_PACKAGES)' -- -p $(AT_ONCE) -shuffle=on -count=1 -timeout 15m || others=$$?; \
	wait $$once || { cat bin/once.txt; exit 1; }; tail -n 2 bin/once.txt; exit $${others:-0}
	$(reruns)
	@for m in $(MODULES); do echo "cd $$m && go test ./..."; (cd $$m && $(GOTESTSUM) --packages=./... -- -shuffle=on -count=1 -timeout 10m); done
	@$(MAKE) race

.PHONY: test-all
test-all: export REDRIVE_ALL = 1
test-all: test test-next ## run every test, and what is too long for each time: the walk in a browser by keyboard, without JavaScript, on a phone

# The Go that comes next. What starts servers is left out, as with the race detector.
NEXT ?= go1.27rc1
.PHONY: test-next
test-next: ## run the tests that need no server with the next Go (NEXT=go1.27rc1)
	GOTOOLCHAIN=$(NEXT) go vet ./...
	GOTOOLCHAIN=$(NEXT) go test -short -vet=off -count=1 -timeout 15m $(RACE_PACKAGES)

.PHONY: race
race: $(TOOLS)/gotestsum ## run the tests under the race detector
	$(GOTESTSUM) --packages='$(RACE_PACKAGES)' -- -race $(RACE_FLAGS) -short -vet=off -p $(AT_ONCE) -skip '$(RACE_SKIP)' -shuffle=on -count=1 -timeout 15m
	$(reruns)

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## check format, vet, the linters of .golangci.yml, go fix and the words of the glossary
	$< run ./...
	@fixes=$$(go fix -diff ./... || true); if [ -n "$$fixes" ]; then echo "$$fixes"; echo "go fix ./... does it"; exit 1; fi
	go test ./test/rooms -run Words
	@for m in $(MODULES); do echo "cd $$m && golangci-lint run"; (cd $$m && $(CURDIR)/$< run --config $(CURDIR)/.golangci.yml ./...); done

$(TOOLS)/%: tools/go.mod
	go -C tools build -o $(CURDIR)/$@ $$(go -C tools list -f '{{.ImportPath}}' tool | grep '/$*$$')
	@touch $@

.PHONY: lines
lines: ## count the lines of code: product, support of tests, tests, what stands beside
	@go -C tools run ./codelines $(CURDIR)

.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZTIME (10s) each
	@for p in $$(go list ./...); do \
		for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done

# How many dead letters `make proof` has in a store, to compare what is read with that of 10,000: in
# SQLite and PostgreSQL, and in MariaDB and Redis.
DEAD ?= 10000000
DEAD_FEWER ?= 500000

.PHONY: proof
proof: deps ## planted faults, then kill -9 and power loss, ROUNDS (1000) times, with a new seed or REDRIVE_SEED=...
	@test -n "$$(go test -list '$(firstword $(subst /, ,$(PROOF)))' $(PROOF_PACKAGE) | grep '^Test' || true)" || \
		{ echo "no test in $(PROOF_PACKAGE) matches $(PROOF): nothing would be proved" >&2; exit 1; }
	@seed=$${REDRIVE_SEED:-$$(od -An -N7 -tu8 /dev/urandom | tr -d ' ')}; \
	echo "REDRIVE_SEED=$$seed REDRIVE_PROOF_ROUNDS=$(ROUNDS)"; \
	REDRIVE_SEED=$$seed REDRIVE_PROOF_ROUNDS=$(ROUNDS) go test -v -p 1 -count=1 -timeout 0 -run '$(PROOF)' $(PROOF_PACKAGE); \
	REDRIVE_SEED=$$seed REDRIVE_PROOF_ROUNDS=$(ROUNDS) go test -p 1 -count=1 -timeout 0 -run 'TestConformance$$/AnswersLike' $(DIFFER_PACKAGE)
	REDRIVE_PROOF_DEAD=$(DEAD) go test -v -p 1 -count=1 -timeout 0 -run 'TestTheCostOfManyDeadLetters|TestCausesAreNotScanned' ./backend/sqlite ./backend/postgres
	REDRIVE_PROOF_DEAD=$(DEAD_FEWER) go test -v -p 1 -count=1 -timeout 0 -run 'TestTheCostOfManyDeadLetters' ./backend/mysql ./backend/redisstream

# Backends of `make history`, as go test takes them: BACKENDS='sqlite|redis'.
BACKENDS ?= .*

.PHONY: history
history: ROUNDS = 10
history: deps ## histories of BACKENDS under faults, ROUNDS (10) of 2 minutes each: lines of test/history/runs.tsv
	REDRIVE_PROOF_ROUNDS=$(ROUNDS) go test -v -count=1 -timeout 0 -run 'TestHistoryKillNine/^($(BACKENDS))$$' ./test/history
	REDRIVE_UPDATE=1 go test -count=1 -run Table ./test/history

.PHONY: oncall
oncall: REDRIVE_ONCALL = 50000
oncall: ## the walk of who is on call: REDRIVE_ONCALL (50000) dead letters, from the alert to the report, by the command line
	REDRIVE_ONCALL=$(REDRIVE_ONCALL) go test -v -count=1 -timeout 30m ./test/oncall

.PHONY: mutants
mutants: deps ## plant every fault of test/mutants: the tests that are named there must find them
	REDRIVE_PROOF_ROUNDS=1 go test -v -count=1 -timeout 0 -run MutantsAreFound ./test/mutants

.PHONY: api
api: build ## property-based requests against docs/openapi.json (schemathesis, needs Python)
	@.ci/schemathesis

.PHONY: bench
bench: ## run BENCH (.) COUNT (10) times, for benchstat; compare: make benchstat OLD=... NEW=...
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

.PHONY: benchstat
benchstat: $(TOOLS)/benchstat ## compare two outputs of make bench: OLD=before.txt NEW=after.txt
	@$< $(OLD) $(NEW)

.PHONY: bench-peers
bench-peers: ## measure Redrive beside its peers, interleaved; ARGS='-run publish -rounds 5'
	@.ci/deps $(PEERS)
	cd bench && go run . $(ARGS)

.PHONY: examples
examples: ## build every example
	@mkdir -p bin/examples
	go build -o bin/examples/ ./examples/...
	@for m in $(filter examples/%,$(MODULES)); do echo "cd $$m && go build"; (cd $$m && go build -o $(CURDIR)/bin/examples/ ./...); done

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
