# The one door: people and machines alike call these.
#
#   make demo     a gateway, and both ends of all five technologies, tried and measured in about a minute (root)
#   make test     everything that can be tested here (root for the kernel tests; they skip loudly without)
#   make test-docs  the pages of docs/howto, each executed in a lab; `make test` does that as well (root)
#   make lint     formatting (Rust and C), clippy, documentation, dependencies
#   make bench    what a packet costs in memory, state at scale, TCP beside plain forwarding and Tayga (root)
#   make bench-fastpath   the programs in the kernel beside plain forwarding, iptables and Tayga, interleaved (root)
#   make bench-memory   of these what needs no root: the engine and the tables, results for `make bars`
#   make bench-sessions   100 M sessions beside 1 M in XDP, or as many as half of the free memory holds (root)
#   make bench-log   100,000 events a second into the log of bindings: packets' time with a file, with a collector, without
#   make report   every quick preset, about half an hour, and a page of them: results/report.html (root)
#   make matrix   each technology by each procedure that applies, once, in a form shorter than quick: results/matrix.md (root)
#   make bars     the speeds that the design asks for, by the result files below results/, with their spread: met, not met, ...
#   make soak     twenty minutes of attacks and mishaps, fast path against engine, 10^8 packets, and live gateways against
#                 translate, 10^6 packets a service; SECONDS, TRIALS, PACKETS (root)
#   make fuzz     libFuzzer on parser, translation, engine and configuration; SECONDS=60 for each of them
#   make lab      a playground that stays: three namespaces, no gateway (root)
#   make deb      a package for Debian 12 and later: target/debian-package; scripts/check-deb.sh installs, upgrades and purges it
#   make cross    for arm64, on x86-64: target/aarch64-unknown-linux-gnu/release/tombolo
#   make static   statically linked binaries for both processors, and small ones without the tester: target/static
#   make kernels  the fast path under three kernels on both processors, emulated; takes hours (docs/kernel-support.md)
#   make setup    installs the Debian packages that the above need

# Where cargo puts what it has built.
BINARIES := $(or $(CARGO_TARGET_DIR),./target)

.PHONY: build demo test test-docs lint bench bench-memory bench-sessions bench-fastpath bench-log report matrix bars soak fuzz lab deb cross static kernels setup

build:
	cargo build --workspace

demo: setup
	cargo build --release -p tombolo
	$(BINARIES)/release/tombolo lab demo

test: setup
	./scripts/test.sh

test-docs: setup
	cargo test -p tombolo --test howto

lint: setup
	cargo fmt --all --check
	clang-format --dry-run -Werror crates/*/bpf/*.[ch]
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTFLAGS="--cfg loom" cargo check -p tombolo-tables --test model --target-dir $(BINARIES)/loom
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	if command -v cargo-deny >/dev/null; then cargo deny check; else echo "SKIP: cargo deny: not installed"; fi

bench: setup bench-memory
	cargo bench -p tombolo-engine --bench translate
	cargo bench -p tombolo-daemon --bench state -- scaling start 10
	cargo build --release -p tombolo
	$(BINARIES)/release/tombolo bench tcp

bench-memory:
	mkdir -p results
	cargo bench -p tombolo-engine --bench siit -- --results $(CURDIR)/results/engine.jsonl
	cargo bench -p tombolo-daemon --bench state -- --results $(CURDIR)/results/state.jsonl

bench-sessions: setup
	mkdir -p results
	cargo bench -p tombolo-fastpath --bench fastpath -- --only sessions --rounds $(or $(ROUNDS),7) --results $(CURDIR)/results/sessions.jsonl

bench-log:
	TOMBOLO_ROUNDS=$(or $(ROUNDS),15) cargo test --release -p tombolo-daemon --lib load -- --nocapture

report: setup
	cargo build --release -p tombolo
	$(BINARIES)/release/tombolo bench preset all --quick -o results/presets
	$(BINARIES)/release/tombolo report results/presets/*-quick.jsonl -o results/report.html

matrix: setup
	cargo build --release -p tombolo
	$(BINARIES)/release/tombolo bench matrix -o results/matrix.jsonl --page results/matrix.md

bars:
	cargo build --release -p tombolo
	$(BINARIES)/release/tombolo report --bars $$(find results -name '*.jsonl')

soak: setup
	cargo build --release -p tombolo
	$(BINARIES)/release/tombolo lab soak --seconds $(or $(SECONDS),1200)
	TOMBOLO_TRIALS=$(or $(TRIALS),1250000) cargo test --release -p tombolo-fastpath --test differential
	$(BINARIES)/release/tombolo lab compare --packets $(or $(PACKETS),500000)

fuzz: setup
	./scripts/fuzz.sh $(or $(SECONDS),60)

bench-fastpath: setup
	mkdir -p results
	cargo bench -p tombolo-fastpath --bench fastpath -- --results $(CURDIR)/results/fastpath.jsonl
	cargo build --release -p tombolo
	$(BINARIES)/release/tombolo bench tcp --service nat64 --settings 'gateway.fastpath = "tc"' --flows 1,10 --rounds 7 --seconds 1
	$(BINARIES)/release/tombolo bench tcp --service nat44 --settings 'gateway.fastpath = "tc"' --flows 1,10 --rounds 7 --seconds 1

lab: setup
	cargo build -p tombolo
	$(BINARIES)/debug/tombolo lab up

deb: setup
	./scripts/deb.sh

cross:
	./scripts/setup.sh guests
	./scripts/cross.sh build

static:
	./scripts/setup.sh guests
	./scripts/static.sh

kernels:
	./scripts/setup.sh guests
	for arch in x86-64 arm64; do for kernel in 6.1 6.12 newest; do ./scripts/check-kernel.sh $$arch $$kernel || exit 1; done; done

setup:
	./scripts/setup.sh
