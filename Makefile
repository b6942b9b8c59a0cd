# Everything a developer runs. `make` alone lists it.
.PHONY: help build try test soak ready fmt clippy doc sqlx bench audit

PML_PG_BIN ?= $(shell deploy/find-postgres.sh 2>/dev/null)
export PML_PG_BIN
# Counts in tests are scaled by this; `make soak` runs them in full.
PML_TEST_SCALE ?= 0.1
export PML_TEST_SCALE
CARGO ?= cargo
LOCKED := --locked

help: ## Show this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

postgres: # Make sure that there is a Postgres to start
	@deploy/find-postgres.sh > /dev/null
.PHONY: postgres

build: ## Build both programs
	$(CARGO) build $(LOCKED) -p server -p client-cli

try: postgres build ## Start a gateway and run three programs through `pml stdio`
	$(CARGO) run $(LOCKED) -q -p tests --example try

test: postgres build ## Run all tests
	@mkdir -p target && rm -f target/skipped
	INSTA_UPDATE=no PML_SKIPPED=$(CURDIR)/target/skipped $(CARGO) test $(LOCKED) --workspace
	@.ci/skipped target/skipped

soak: released ## Run all tests with full counts, on programs that no run had before
	$(MAKE) test PML_TEST_SCALE=1 PML_TEST_SEED=$${PML_TEST_SEED:-$$(date +%s)}
	PML_TEST_SCALE=1 PML_TEST_BIN_DIR=$$(realpath $${CARGO_TARGET_DIR:-target}/release) \
		$(CARGO) test $(LOCKED) -p tests --test it -- --test-threads=1 --nocapture gateway::drives

ready: fmt clippy doc sqlx test try ## Run all that CI runs

fmt: ## Check the formatting
	$(CARGO) fmt --all --check

clippy: ## Lint
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings

doc: ## Build the documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --workspace --no-deps

sqlx: postgres ## Check the queries against the migrated schema
	migrations/regenerate-sqlx.sh --check

released: # Build both programs as they are released, side by side
	$(CARGO) build $(LOCKED) --release -p server
	$(CARGO) build $(LOCKED) --profile cli -p client-cli
	cp -f $${CARGO_TARGET_DIR:-target}/cli/pml $${CARGO_TARGET_DIR:-target}/release/pml
.PHONY: released

bench: postgres released ## Measure; the table in docs/performance.md comes from this
	$(CARGO) bench $(LOCKED) --workspace --bench '*'

audit: ## Ask cargo-deny and the advisory database; needs the network, so it is not part of CI
	@command -v cargo-deny > /dev/null || { echo "make audit needs cargo-deny, which is not installed: cargo install --locked cargo-deny" >&2; exit 1; }
	$(CARGO) deny $(LOCKED) check
