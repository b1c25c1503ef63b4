#!/bin/sh
# Runs all tests and closes with one line: N passed, N failed, N skipped. A test that cannot run here (no root, a missing
# program) says `SKIP: name: reason` (or `SKIPPED name: reason`) and counts as skipped, not as passed. With arguments, which
# go to cargo test, it runs those tests and nothing else.
#
# Without, the tests of the command in labs, which wait for most of their time, run in three rows, and beside them, giving way to
# them, those that calculate; then, with the machine for themselves, those that measure, and the labs of nodes that agree by
# etcd. These wait for others' timers, so the model checker, which has the tables built with loom's atomics, has what they leave
# of the processors.
#
# Tests with real kernels and clients share a machine with whatever else runs on it. A test that failed is run again, once
# and alone; what passes then is named as FLAKY, so that nobody overlooks it, and counts as passed.
set -u

cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
log=$folder/log
again=$folder/again
models=$folder/models

# Cargo, scheduled as it is wanted. The status is cargo's, not that of tee.
scheduled=''
run() {
    into=$1
    shift
    { $scheduled cargo test --no-fail-fast "$@" 2>&1; echo "cargo-status $?"; } | tee "$into" | grep -v '^cargo-status '
    # Without a line of it the log could not be written: a full disk.
    code=$(sed -n 's/^cargo-status //p' "$into")
    return "${code:-1}"
}

sum() {
    sed -n "s/^test result: .* \([0-9]*\) $1.*/\1/p" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}

# The integration tests of crates, as cargo has them.
tests_of() {
    for crate in "$@"; do
        ls -d "crates/$crate"/tests/*.rs "crates/$crate"/tests/*/main.rs 2>/dev/null
    done | sed -e 's,/main\.rs$,,' -e 's,.*/,,' -e 's/\.rs$//' | sort -u
}

# Seconds that the tests of a name take, more or less: the rows are to end together.
weight() {
    case $1 in
        reliability) echo 160 ;;
        lab) echo 130 ;;
        fastpath | fastpath_softwires) echo 100 ;;
        by_default | reload) echo 60 ;;
        control | migration | path_mtu | privileges) echo 45 ;;
        live | scenarios | soak | softwires | supervised) echo 30 ;;
        *) echo 10 ;;
    esac
}

# Runs the tests that a file names, with what else is asked for.
row() {
    names=$folder/$1
    shift
    # shellcheck disable=SC2046 # words of their own
    run "$names.log" --workspace "$@" $(sed 's/^/--test /' "$names") -- --skip owners_by_etcd:: --skip moves:: --skip tutorial
}

# All of the workspace: whoever asks cargo for a crate of it has other features of others' crates, and builds those anew.
everything() {
    : >"$log"
    : >"$models"
    TOMBOLO_FORMER=$(./scripts/former.sh) || return
    export TOMBOLO_FORMER
    TOMBOLO_TOOLS=$(./scripts/tools.sh) || return
    export TOMBOLO_TOOLS
    cargo test --workspace --no-run || return
    tests_of tombolo | grep -vx matrix >"$folder/labs"
    { tests_of tester generator; echo matrix; } | grep -vxFf "$folder/labs" >"$folder/measuring"
    ls crates | while read -r crate; do tests_of "$crate"; done | sort -u |
        grep -vxFf "$folder/labs" | grep -vxFf "$folder/measuring" >"$folder/others"
    # A name may be that of tests of several crates, which go together.
    while read -r name; do echo "$(weight "$name") $name"; done <"$folder/labs" | sort -rn | awk -v folder="$folder" '
        { row = 0; for (other = 1; other < 3; other++) if (sum[other] < sum[row]) row = other
          sum[row] += $1; print $2 >(folder "/row" row) }'
    bad=0
    row row1 >"$folder/row1.out" &
    row1=$!
    row row2 >"$folder/row2.out" &
    row2=$!
    {
        scheduled='nice -n 10'
        status=0
        row others --lib --bins || status=1
        run "$folder/doc.log" --workspace --doc || status=1
        exit $status
    } >"$folder/others.out" &
    others=$!
    row row0 || bad=1
    for part in $row1 $row2 $others; do
        wait "$part" || bad=1
    done
    cat "$folder/row1.out" "$folder/row2.out" "$folder/others.out"
    row measuring || bad=1
    # A page that measures.
    run "$folder/tutorial.log" --workspace --test howto -- --exact tutorial || bad=1
    check_models >"$folder/models.out" &
    checking=$!
    # Three nodes, three members of etcd, and bounds of tenths of a second, or no loss at all.
    run "$folder/agreement.log" --workspace --test cluster -- --test-threads 1 owners_by_etcd:: moves:: || bad=1
    wait "$checking" || bad=1
    cat "$folder/models.out"
    cat "$folder"/*.log >"$log"
    return $bad
}

check_models() {
    (
        scheduled='chrt --idle 0'
        RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" CARGO_INCREMENTAL=0
        export RUSTFLAGS CARGO_INCREMENTAL
        run "$models" -p tombolo-tables --test model --target-dir "${CARGO_TARGET_DIR:-target}/loom"
    )
}

if [ $# -eq 0 ]; then
    everything
else
    run "$log" --workspace "$@"
fi
status=$?
failed=$(sum failed "$log")
passed=$(sum passed "$log")
: >"$folder/flaky"
lacking=''

# Only failed tests are worth a second look: an error of the compiler, or a machine on which nothing works, is not. A line for each
# target of one crate with failed tests: crate, target, tests; without tests if it ended without a word of one, say killed.
awk '/^ *(Running|Doc-tests) / { names = "" }
     /^test .* \.\.\. FAILED$/ { names = names " " $2 }
     /^error: test failed, to rerun pass `/ { gsub(/.*pass `-p |`$/, ""); target = $0; sub(/^[^ ]* /, "", target); sub(/ .*/, "")
         gsub(/ /, ":", target); print $0, target names; names = "" }' "$log" >"$folder/failed"
if [ "$failed" -gt 0 ] && [ "$failed" -le 10 ]; then
    status=0
    while read -r crate target names; do
        echo "==== once more, alone: $crate $target $names"
        count=$(echo "$names" | wc -w)
        # A test of documentation cannot be named so; and whoever chose tests has chosen what else is asked for.
        [ "$target" = --doc ] && exact='' || exact="${names:+--exact $names}"
        [ $# -gt 0 ] && alone='' || alone="-- --test-threads 1 $exact"
        # shellcheck disable=SC2046,SC2086 # the words of the target are arguments, and each name is one
        if run "$again" --workspace $(echo "$target" | tr ':' ' ') "$@" $alone </dev/null && [ "$(sum passed "$again")" -ge "$count" ]; then
            failed=$((failed - count))
            passed=$((passed + count))
            echo "FLAKY: $crate $(echo "$target" | tr ':' ' ') $names failed once and passed when run again" >>"$folder/flaky"
        else
            status=1
        fi
    done <"$folder/failed"
    # A target that failed without a word of a failed test, say one that was killed.
    [ "$failed" -eq 0 ] || status=1
fi

if [ $# -eq 0 ]; then
    grep -q '^test result: ok' "$models" || { status=1; lacking='FAILED: the models of the tables were not built, or did not pass'; }
    passed=$((passed + $(sum passed "$models")))
    failed=$((failed + $(sum failed "$models")))
    echo "$(sed -n 's/.*model .*: \([0-9]*\) executions.*/\1/p' "$models" | awk '{ sum += $1 } END { print sum + 0 }') executions of models"
    cat "$models" >>"$log"
fi

# Seconds of each program of tests, the longest last.
awk '/^ *Running / { name = $NF; gsub(/.*deps\/|-[0-9a-f]*\)$/, "", name) }
     /^ *Doc-tests / { name = "documentation of " $NF }
     /; finished in / { seconds = $NF; sub(/s$/, "", seconds); if (seconds >= 1) printf "%8.1f s  %s\n", seconds, name }' "$log" | sort -n

# Written past the harness's capture, a skip may share its line with the harness's words.
skipped=$(grep -cE 'SKIP(:|PED) ' "$log")
grep -oE 'SKIP(:|PED) .*' "$log" | sort
cat "$folder/flaky"
sed -n 's/^test \(.*\) \.\.\. FAILED$/FAILED: \1/p' "$log"
[ -z "$lacking" ] || echo "$lacking"
echo "$((passed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
