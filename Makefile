# make test       unit tests, images, integration tests
# make test-more  what few changes can break: test-next, test-rare and test-failover, which CI runs, too,
#                 and test-replicas, test-postgres and test-newest, which it has no time for
# make check      format, vet, linters, each module by itself, the API, known vulnerabilities
# make test-unit  what needs neither Docker nor a server
# make test-next  what the next Go release changes for us, on GO_NEXT
# make test-newest  the newest releases of the drivers, and of the servers, before anybody has chosen them
# make test-postgres  on PostgreSQL 17 and an older one what depends on the server; all tests run on 18
# make test-pairs  programs in combinations of all features, on servers of their own; a part of "make test"
# make test-rare  what users install, from a proxy; the tests' own servers; hosts that are killed
# make test-mysql  on MySQL what depends on the server; all others run on MariaDB
# make test-failover  servers that fail, and PgBouncer; RUN=PgBouncer, Standby or Galera for one of
#                 them, LONG=1 for every round and Patroni
# make test-replicas  reads on replicas of each server, under held and cut replication; RUN and LONG
# make test-long  every seed, round and shape, and the tests on servers with -race
# make release-check  all of a release but its tags: what users install, from a proxy
# make bench      the comparison with other pools
# make bench-quick  what a change costs, in three minutes; BASE=COMMIT: beside that commit
#
# What needs unixODBC (dialects/odbc) is checked and tested where its headers are, what
# needs a browser and tmux, or a Prometheus, where they are.
#
# Tools are installed into .tools/ by the Go toolchain, at the versions below.
# The race detector needs cgo and a C compiler.

STATICCHECK_VERSION := v0.8.2
GOVULNCHECK_VERSION := v1.8.0
GOLANGCI_VERSION    := v2.15.0
VITESS_VERSION      := v0.24.4
APIDIFF_VERSION     := v0.0.0-20261113113407-e3970619a1a4

# Modules of their own, so that their dependencies reach no other user. Their tests need
# neither Docker nor a server. "go test ./..." in the root reaches none of them. "tests" has
# the tests of the root's packages that need a driver.
DIALECTS   := dialects/mysql dialects/odbc dialects/postgres dialects/sqlite
SATELLITES := sandbox examples credentials/rds examples/cloudsql examples/observed examples/pgx examples/sandbox otelpooldriver pgxpooldriver prompooldriver riverpooldriver cmd/pooldriver

GO       ?= go
MODULES  := . $(patsubst %/go.mod,%,$(wildcard integration/go.mod bench/go.mod)) tests $(DIALECTS) $(SATELLITES)
TOOLS    := $(CURDIR)/.tools
STATICCHECK := $(TOOLS)/staticcheck-$(STATICCHECK_VERSION)
GOVULNCHECK := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)
GOLANGCI    := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
VTCOMBO     := $(TOOLS)/vtcombo-$(VITESS_VERSION)
APIDIFF     := $(TOOLS)/apidiff-$(APIDIFF_VERSION)

# -tags odbc where unixODBC's headers and the ODBC drivers of the tests are.
ODBC := $(shell printf '\#include <sqlext.h>\n\#include <odbcinst.h>\n' | cc -E - > /dev/null 2>&1 && \
	odbcinst -q -d 2> /dev/null | grep -cE 'SQLite3|PostgreSQL Unicode|MariaDB Unicode' | grep -x 3)
TAGS := $(if $(ODBC),-tags odbc)

# Where a browser and a terminal can be had for the tests of the inspector.
SCREENS := $(and $(shell command -v chromium || command -v chromium-browser || command -v google-chrome),$(shell command -v tmux))

# The newest Go that we support. Its database/sql has interfaces that that of the Go in
# go.mod does not have.
GO_NEXT ?= go1.27.0
ON_NEXT  = GOTOOLCHAIN=$(GO_NEXT) $(GO)

# Where a Prometheus and its promtool can be had for the tests of the metrics.
PROMETHEUS := $(and $(shell command -v prometheus),$(shell command -v promtool))

# By default a program with the race detector sleeps for a second before it exits: one for each
# package. The tests end their goroutines, so nothing is left that could race then.
export GORACE ?= atexit_sleep_ms=10

# The tests on servers find with "RACE=-race -parallel 4" what those without servers cannot, but
# take longer: in "make test-long" and on GitHub.
RACE ?=

# "make check" vets all modules.
TEST = $(GO) test $(TAGS) -vet=off -timeout $(TEST_TIMEOUT)

TEST_TIMEOUT      ?= 40m
TEST_LONG_TIMEOUT ?= 90m

# MySQL's image, empty where it cannot be had; known when "make images" has run.
MYSQL_IMAGE = $$(sed -n 's/^POOLDRIVER_MYSQL_IMAGE=//p' integration/images/chosen.env)

# What runs on MySQL beside MariaDB in "make test": that which depends on the server.
# "make test-long" runs every test on it.
ON_MYSQL = MySQL|Reset|Clean|Cancel|Cut|Retry|Retries|Killed|Credential|Conformance|TrueAsync|RandomPrograms|CalledClean|SandboxDatabase

# What "make test-postgres" runs on 17 and, where it can be had, on an older release.
ON_POSTGRES = Postgres|Settings|Tenant|NoSessionVariable|Certificate|Credential|Conformance|BehavesAsTheBareDriver|CalledClean|KeywordIsSeen|RandomPrograms

# What an older release runs: that which depends on the protocol and on the catalog.
ON_OLD_POSTGRES = StatementsWithSettingsGo|SettingsNeedNoRoundTrip|NoVolatile

# $(1) is a variable of images/chosen.env, $(2) which packages, $(3) which tests.
define POSTGRES
@image=$$(sed -n 's/^$(1)=//p' integration/images/chosen.env); \
if [ -n "$$image" ]; then \
	echo "POOLDRIVER_POSTGRES_IMAGE=$$image $(GO) -C integration test $(2)"; \
	POOLDRIVER_POSTGRES_IMAGE=$$image $(GO) -C integration test -timeout $(TEST_TIMEOUT) -run '$(3)' -skip 'MySQL|ODBC|/mysql' $(2); \
else \
	echo "NOT RUN: the tests on an older PostgreSQL, which could not be had here. $(1) can name an image." >&2; \
fi
endef

# Tests of other servers, which do not run on MySQL.
NOT_MYSQL = Postgres|ODBC|/postgres|//postgres|/sqlite|//sqlite|TestAStatementThatIsCutWhileItIsSent|TestCancelledStatementsOccupy

# MariaDB and MySQL, over TLS where a test says nothing else.
OVER_TLS = POOLDRIVER_MYSQL_TRANSPORT=tls=skip-verify

# Tests of servers that fail, which "make test" leaves to "make test-rare": each starts pairs of them.
RARE = TestAHostThatIsKilledUnderLoad

# The integration tests but those that "make test-failover" runs, those of pairs, those that need a
# browser and a terminal, and those over mattn/go-sqlite3: SQLite in C, which compiles in
# seconds without optimisation and in minutes with it.
ONE_SERVER = $$($(GO) -C integration list ./... | grep -vE '/(failover|replicas|pairs|mattn|browser$(1))')
MATTN      = CGO_CFLAGS=-O0 $(GO) -C integration test -vet=off

# Tests that keep a machine of two processors busy by themselves. Beside others they would
# wait for processors, and not for what they test.
CROWDS = Tunnel|TestTasksShareAHotRow|TestDrainUnderLoad|TestTransfersAtSerializable|TestNoTenantSees|TestPostgresStatementsWithSettings|TestACommitThatIsCutIsNot

# Incidents that are staged and looked at: they wait nearly all the time.
INCIDENTS = RightInEachIncident|Incidents.*AreNamed

# What of ./release "make test" leaves to "make test-rare": it compiles modules for half a minute.
INSTALLED = TestWhatTheReadmeSaysCanBeInstalledAndRun/local/(the_command|.*pooldriver)|TestModulesOfTwoReleases|TestAProgramCanUseAClone

# Each two features together, in the long form each three, on servers of its own: docs/internals/pairs.md. A run shares
# its processors with nobody, because what is not exercised in time is not tested.
PAIRS = $(GO) -C integration test -vet=off ./pairs

# Four commands: many tests at once, then the incidents, the crowds, mattn. $(1) is the timeout of each,
# $(2) RACE, $(3) what other tests are left out, $(4) what other packages.
define INTEGRATION
$(GO) -C integration test $(TAGS) -vet=off $(2) -timeout $(1) -skip '$(CROWDS)|$(INCIDENTS)$(3)' $(call ONE_SERVER,$(4))
$(GO) -C integration test $(TAGS) -vet=off $(2) -timeout $(1) -parallel 16 -run '$(INCIDENTS)' .
$(GO) -C integration test $(TAGS) -vet=off $(2) -timeout $(1) -parallel 2 -run '$(CROWDS)' .
$(MATTN) $(2) -timeout $(1) ./mattn
endef

# On MySQL. $(1) is the timeout, $(2) which tests, $(3) RACE, $(4) what else is left out.
define MYSQL
@if [ -n "$(MYSQL_IMAGE)" ]; then \
	echo "POOLDRIVER_MYSQL_SERVER=mysql $(GO) -C integration test"; \
	POOLDRIVER_MYSQL_SERVER=mysql $(GO) -C integration test $(TAGS) -vet=off $(3) -timeout $(1) -run '$(2)' -skip '$(NOT_MYSQL)$(4)' .; \
else \
	echo "NOT RUN: the tests on MySQL, which could not be had here. POOLDRIVER_MYSQL_IMAGE can name an image, such as mysql:8.4." >&2; \
fi
endef

.PHONY: test test-more test-ci test-next test-newest test-postgres test-pairs test-rare test-unit test-integration test-failover test-replicas test-mysql test-long release-check check fmt format-check vet \
	staticcheck lint modules tidy api vulnerabilities images bench bench-quick clean-images

# MySQL last: where it cannot be had, the last line says so.
test: test-unit test-integration test-mysql

# What few changes can break, so nobody has to wait for it.
test-more: test-ci test-replicas test-postgres test-newest

# The part that CI runs beside "make test": it has an hour, also on a slow machine.
test-ci: test-next test-rare test-failover

# What depends on the Go release: the conformance suite, rows, and how pgx scans them.
test-next: images
	@if $(ON_NEXT) version; then set -e; \
		for module in . tests $(DIALECTS); do $(ON_NEXT) -C $$module vet ./...; done; \
		$(ON_NEXT) test -timeout $(TEST_TIMEOUT) ./internal/testing/conformance ./internal/testing/fakedb ./internal/rowbuffer ./internal/session; \
		$(ON_NEXT) -C dialects/postgres test -timeout $(TEST_TIMEOUT) .; \
		$(ON_NEXT) -C tests test -timeout $(TEST_TIMEOUT) -run 'Rows|Scan|EveryShape|Adopted' ./behaviour; \
		$(ON_NEXT) -C integration test -timeout $(TEST_TIMEOUT) -run Scan .; \
	else \
		echo "NOT RUN: the tests on $(GO_NEXT), the module proxy does not serve it" >&2; \
	fi

# What a user gets by "go get -u" tomorrow. It changes a copy of the tree.
test-newest: images
	GO="$(GO)" TAGS="$(TAGS)" TEST_TIMEOUT="$(TEST_TIMEOUT)" integration/newest.sh

test-postgres: images
	$(call POSTGRES,POOLDRIVER_POSTGRES_17_IMAGE,. ./pgxface,$(ON_POSTGRES))
	$(call POSTGRES,POOLDRIVER_POSTGRES_OLD_IMAGE,.,$(ON_OLD_POSTGRES))

# The pool also without the race detector, which takes turns between goroutines
# that Go's scheduler does not.
# Two commands for all modules, which are one workspace: each command ends with a processor idle. The
# longest packages first, and three at once, because some wait more than they work.
test-unit:
	$(TEST) -race -p 3 ./tests/behaviour ./tests/... ./... $(DIALECTS:%=./%/...) ./integration/byteproxy
	$(TEST) ./pool ./bench $$($(GO) list $(SATELLITES:%=./%/...) | grep -v /promtest)
	$(if $(ODBC),$(GO) -C dialects/odbc test .,@echo "NOT RUN: the tests over ODBC. They need unixodbc-dev, odbcinst, libsqliteodbc, odbc-postgresql and odbc-mariadb." >&2)
	$(if $(PROMETHEUS),$(GO) -C prompooldriver test -timeout $(TEST_TIMEOUT) ./promtest,@echo "NOT RUN: the tests with a Prometheus. They need Debian's package prometheus." >&2)

test-integration: images
	$(call INTEGRATION,$(TEST_TIMEOUT),$(RACE),|$(RARE)|$(INSTALLED),|testbed|byteproxy)
	$(PAIRS) -timeout $(TEST_TIMEOUT)
	$(if $(SCREENS),$(GO) -C integration test -timeout $(TEST_TIMEOUT) ./browser,@echo "NOT RUN: the inspector in a browser and in a terminal. It needs chromium and tmux." >&2)

# Each two features together, a minute and a half on servers of its own.
test-pairs: images
	$(PAIRS) -timeout $(TEST_TIMEOUT)

# With each module that users install, and the command. The testbed is what starts the servers of
# the other tests, which fail without it.
test-rare: images
	$(GO) -C integration test -timeout $(TEST_TIMEOUT) ./release ./testbed
	$(GO) -C integration test $(TAGS) -timeout $(TEST_TIMEOUT) -run '$(RARE)' .

# Not beside the others: they measure how soon a service is back.
ALONE = POOLDRIVER_LONG=$(LONG) $(GO) -C integration test -race -count=1 -p 1 -timeout $(TEST_TIMEOUT) -run '$(RUN)' $(if $(LONG)$(RUN),-v)

test-failover: images
	$(ALONE) ./failover/...

test-replicas: images
	$(ALONE) ./replicas

test-mysql: images
	$(call MYSQL,$(TEST_TIMEOUT),$(ON_MYSQL),$(RACE),|$(RARE))

test-long: export POOLDRIVER_LONG = 1
test-long: RACE = -race -parallel 4
test-long: images $(VTCOMBO)
	@set -e; for module in . tests sandbox $(DIALECTS); do $(GO) -C $$module test $(TAGS) -race -timeout $(TEST_LONG_TIMEOUT) ./...; done
	$(GO) -C tests test -timeout $(TEST_LONG_TIMEOUT) -run TestRandomSchedulesEnd ./sandbox # all, for which the race detector has too little memory
	$(call INTEGRATION,$(TEST_LONG_TIMEOUT),$(RACE),)
	$(PAIRS) -race -timeout $(TEST_LONG_TIMEOUT)
	POOLDRIVER_VTCOMBO=$(VTCOMBO) $(GO) -C integration test -race -timeout $(TEST_LONG_TIMEOUT) -p 1 ./failover/... ./replicas
	$(call MYSQL,$(TEST_LONG_TIMEOUT),,$(RACE),)
	$(OVER_TLS) $(GO) -C integration test $(TAGS) $(RACE) -timeout $(TEST_LONG_TIMEOUT) -run '$(ON_MYSQL)' -skip '$(NOT_MYSQL)' .
	$(OVER_TLS) $(MAKE) --no-print-directory test-mysql RACE="$(RACE)" TEST_TIMEOUT=$(TEST_LONG_TIMEOUT)
	GOWORK=off $(GO) -C integration/datadog test . # a module of its own, which compiles for minutes

# What users install, with empty caches and each supported Go: see RELEASING.md.
release-check: images
	POOLDRIVER_LONG=1 $(GO) -C integration test -v -count=1 -timeout $(TEST_LONG_TIMEOUT) ./release

# Chooses the test servers' images, and builds them where no registry answers.
images:
	@integration/images/choose.sh || { \
		echo "NOT RUN: the integration tests. They need Docker and, without an image registry, Debian's packages." >&2; \
		echo "         What went before has run; \"make test-unit\" asks for no more than Go." >&2; \
		exit 1; }

# Takes more than an hour, on a machine that does nothing else; "-rounds 8" takes half. BENCH_FLAGS: "-quick"
# to see that it works; "-list", "-only TEXT" for a part.
bench: images
	POOLDRIVER_MYSQL_IMAGE=$(MYSQL_IMAGE) $(GO) -C bench run . -results results $(BENCH_FLAGS)
	$(if $(filter -only -list -quick,$(BENCH_FLAGS)),,$(GO) -C bench run . -only Pipelines -results results/pipelines) # the README's chart

# The table for a pull request. BASE is built in a work tree of its own, with today's
# bench, and takes turns with this tree.
bench-quick: images
	$(GO) -C bench run . -change $(if $(BASE),-base $(BASE)) $(BENCH_FLAGS)

check: format-check vet staticcheck lint modules api vulnerabilities

fmt:
	gofmt -w .

format-check:
	@files="$$(gofmt -l .)"; [ -z "$$files" ] || { echo "not formatted (make fmt): $$files" >&2; exit 1; }

vet:
	@set -e; for module in $(MODULES); do echo "$(GO) -C $$module vet $(TAGS) ./..."; $(GO) -C $$module vet $(TAGS) ./...; done
	@set -e; for module in . $(DIALECTS) sandbox; do CGO_ENABLED=0 $(GO) -C $$module build ./...; done

# Each module in this clone without go.work, and whether its go.mod and go.sum are complete. cmd/pooldriver
# has no replacements, because "go install" refuses a module with some: until a release is out, only
# go.work builds the command.
modules:
	@set -e; for module in $(filter-out cmd/pooldriver,$(MODULES)); do echo "GOWORK=off $(GO) -C $$module build ./..."; \
		GOWORK=off $(GO) -C $$module build -o /dev/null ./...; GOWORK=off $(GO) -C $$module mod tidy -diff; done

# Writes go.mod and go.sum of each module. cmd/pooldriver has replacements meanwhile.
OWN = $(filter-out . tests bench integration examples%,$(MODULES))
tidy:
	@set -e; for module in $(filter-out cmd/pooldriver,$(MODULES)) integration/datadog; do echo "tidy $$module"; GOWORK=off $(GO) -C $$module mod tidy; done
	@set -e; echo "tidy cmd/pooldriver"; cd cmd/pooldriver; \
		$(GO) mod edit $(foreach m,$(OWN),-replace=github.com/pooldriver/pooldriver/$(m)=../../$(m)) -replace=github.com/pooldriver/pooldriver=../..; \
		GOWORK=off $(GO) mod tidy; \
		$(GO) mod edit $(foreach m,$(OWN),-dropreplace=github.com/pooldriver/pooldriver/$(m)) -dropreplace=github.com/pooldriver/pooldriver

# The exported API beside that of the last release. CHANGELOG.md has to name what may break a program.
api:
	@if [ -x $(APIDIFF) ] || $(call install,$(APIDIFF),golang.org/x/exp/cmd/apidiff,$(APIDIFF_VERSION)); then \
		integration/release/api.sh $(APIDIFF); \
	else \
		echo "NOT RUN: apidiff $(APIDIFF_VERSION), the module proxy does not serve it" >&2; \
	fi

# SA1019 is left to golangci-lint, which accepts a reason beside the line: a
# transparent driver has to serve the deprecated interfaces of database/sql/driver.
staticcheck: $(STATICCHECK)
	@set -e; for module in $(MODULES); do echo "staticcheck in $$module"; \
		(cd $$module && $(STATICCHECK) $(TAGS) -checks inherit,-SA1019 ./...); done

# golangci-lint is large. Where it cannot be had the other checks still count,
# and what was left out is said.
lint:
	@if [ -x $(GOLANGCI) ] || $(call install,$(GOLANGCI),github.com/golangci/golangci-lint/v2/cmd/golangci-lint,$(GOLANGCI_VERSION)); then \
		set -e; for module in $(MODULES); do echo "golangci-lint in $$module"; \
			(cd $$module && $(GOLANGCI) run $(if $(ODBC),--build-tags odbc) --config $(CURDIR)/.golangci.yml ./...); done; \
	else \
		echo "NOT RUN: golangci-lint $(GOLANGCI_VERSION), the module proxy does not serve it" >&2; \
	fi

vulnerabilities: $(GOVULNCHECK)
	@if curl -fsS -m 10 -o /dev/null https://vuln.go.dev/index/db.json 2> /dev/null; then \
		set -e; for module in $(MODULES); do (cd $$module && $(GOVULNCHECK) $(TAGS) ./...); done; \
	else \
		echo "NOT RUN: govulncheck, its database https://vuln.go.dev does not answer" >&2; \
	fi

# $(call install,file,package,version): a shell command that installs a tool under
# a name with its version.
install = { echo "installing $(2)@$(3) into .tools/" && mkdir -p $(TOOLS)/new && cd $(TOOLS)/new && \
	GOFLAGS= GOBIN=$(TOOLS)/new $(GO) install $(2)@$(3) && mv $(notdir $(2)) $(1) && cd $(CURDIR); }

$(STATICCHECK):
	@$(call install,$@,honnef.co/go/tools/cmd/staticcheck,$(STATICCHECK_VERSION))

# Vitess in one process, which takes some minutes to compile. It runs in a container. Its
# module excludes versions, so "go install" refuses it.
$(VTCOMBO):
	@echo "building vtcombo $(VITESS_VERSION) into .tools/"; mkdir -p $(TOOLS)/vitess && cd $(TOOLS)/vitess && rm -f go.mod go.sum && \
		$(GO) mod init vitess && $(GO) get vitess.io/vitess/go/cmd/vtcombo@$(VITESS_VERSION) && \
		CGO_ENABLED=0 $(GO) build -o $@ vitess.io/vitess/go/cmd/vtcombo

$(GOVULNCHECK):
	@$(call install,$@,golang.org/x/vuln/cmd/govulncheck,$(GOVULNCHECK_VERSION))

# Removes the images that integration/images/build.sh has built.
clean-images:
	docker image ls --format '{{.Repository}}:{{.Tag}}' 'pooldriver-test-*' | xargs -r docker image rm
