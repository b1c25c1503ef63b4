#!/bin/sh
# Fuzzes with libFuzzer, on the stable toolchain: the instrumentation is LLVM's and needs no nightly compiler. Address
# sanitizing would, and there is no unsafe code in what is fuzzed.
#
#   scripts/fuzz.sh [SECONDS [TARGET ...]]     SECONDS for each target, 60 if left out; all targets if none is named
#
# Corpora grow in target/fuzz/corpus; a finding is written to target/fuzz/findings and ends the run with status 1.
set -eu

cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- parse round_trip engine config
home=$PWD/target/fuzz
triple=$(rustc -vV | sed -n 's/^host: //p')
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"

# With --target, flags are for the targets and not for build scripts.
export CARGO_TARGET_DIR="$home/build"
cargo build --manifest-path fuzz/Cargo.toml --release --bin seeds
for target in "$@"; do
    RUSTFLAGS="$coverage" cargo build --manifest-path fuzz/Cargo.toml --release --target "$triple" --bin "$target"
done
"$home/build/release/seeds" "$home/corpus"
mkdir -p "$home/findings"
for target in "$@"; do
    mkdir -p "$home/corpus/$target"
    echo "== $target, $seconds s"
    "$home/build/$triple/release/$target" -max_total_time="$seconds" -max_len=8192 -timeout=10 -print_final_stats=1 \
        -artifact_prefix="$home/findings/$target-" "$home/corpus/$target"
done
