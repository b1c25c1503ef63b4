#!/bin/sh
# Runs all tests and closes with one line: N passed, N failed, N skipped. A test that cannot run here (no root, a missing
# program) says `SKIP: name: reason` (or `SKIPPED name: reason`) and counts as skipped, not as passed. Arguments go to cargo test.
#
# Tests with real kernels and clients share a machine with whatever else runs on it. A target that failed is run again, once
# and alone; what passes then is named as FLAKY, so that nobody overlooks it, and counts as passed.
#
# Without arguments, the model checker then has its turn: the tables built with loom's atomics, in a folder of their own.
set -u

cd "$(dirname "$0")/.."
log=$(mktemp)
again=$(mktemp)
models=$(mktemp)
trap 'rm -f "$log" "$again" "$models"' EXIT

# The status of cargo, not of tee.
run() {
    into=$1
    shift
    { cargo test --no-fail-fast "$@" 2>&1; echo "cargo-status $?"; } | tee "$into" | grep -v '^cargo-status '
    return "$(sed -n 's/^cargo-status //p' "$into")"
}

sum() {
    sed -n "s/^test result: .* \([0-9]*\) $1.*/\1/p" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}

run "$log" --workspace "$@"
status=$?
failed=$(sum failed "$log")
passed=$(sum passed "$log")
flaky=''

# Only failed tests are worth a second look: an error of the compiler, or a machine on which nothing works, is not.
targets=$(sed -n 's/^error: test failed, to rerun pass `\(.*\)`$/\1/p' "$log")
if [ "$failed" -gt 0 ] && [ "$failed" -le 5 ]; then
    status=0
    for target in $(echo "$targets" | tr ' ' ':'); do
        echo "==== once more, alone: $target"
        # shellcheck disable=SC2046 # the words of the target are arguments
        if run "$again" $(echo "$target" | tr ':' ' ') "$@"; then
            before=$(awk -v target="$(echo "$target" | tr ':' ' ')" '
                /^test result: / { last = $0 }
                index($0, "`" target "`") { split(last, words, "; "); split(words[2], count, " "); print count[1] + 0; exit }' "$log")
            failed=$((failed - before))
            passed=$((passed + before))
            flaky="$flaky $target"
        else
            status=1
        fi
    done
    # A target that failed without a word of a failed test, say one that was killed.
    [ "$failed" -eq 0 ] || status=1
fi

if [ $# -eq 0 ]; then
    RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
    export RUSTFLAGS
    run "$models" -p tombolo-tables --test model --target-dir target/loom || status=1
    passed=$((passed + $(sum passed "$models")))
    failed=$((failed + $(sum failed "$models")))
    echo "$(sed -n 's/.*model .*: \([0-9]*\) executions.*/\1/p' "$models" | awk '{ sum += $1 } END { print sum + 0 }') executions of models"
    cat "$models" >>"$log"
fi

# Written past the harness's capture, a skip may share its line with the harness's words.
skipped=$(grep -cE 'SKIP(:|PED) ' "$log")
grep -oE 'SKIP(:|PED) .*' "$log" | sort
for target in $flaky; do
    echo "FLAKY: $(echo "$target" | tr ':' ' ') failed once and passed when run again"
done
sed -n 's/^test \(.*\) \.\.\. FAILED$/FAILED: \1/p' "$log"
echo "$((passed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
