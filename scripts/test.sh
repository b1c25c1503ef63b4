#!/bin/sh
# Runs all tests and closes with one line: N passed, N failed, N skipped. A test that cannot run here (no root, a missing
# program) says `SKIP: name: reason` (or `SKIPPED name: reason`) and counts as skipped, not as passed. Arguments go to cargo test.
set -u

cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The status of cargo, not of tee.
{ cargo test --workspace --no-fail-fast "$@" 2>&1; echo "cargo-status $?"; } | tee "$log" | grep -v '^cargo-status '
status=$(sed -n 's/^cargo-status //p' "$log")

sum() {
    sed -n "s/^test result: .* \([0-9]*\) $1.*/\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'
}
# Written past the harness's capture, a skip may share its line with the harness's words.
skipped=$(grep -cE 'SKIP(:|PED) ' "$log")
passed=$(($(sum passed) - skipped))

grep -oE 'SKIP(:|PED) .*' "$log" | sort
echo "$passed passed, $(sum failed) failed, $skipped skipped"
exit "$status"
