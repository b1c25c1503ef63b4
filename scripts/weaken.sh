#!/bin/sh
# Weakens each memory order of the tables in turn, one step at a time, and says which model of the model checker fails then:
# every order that is left has its reason. Arguments: a folder for the results, then names of models (all of them).
#
# An order that no model misses is listed as `none`.
set -eu

cd "$(dirname "$0")/.."
out=${1:-target/loom/weaken}
[ $# -eq 0 ] || shift
mkdir -p "$out"
RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" cargo test -p tombolo-tables --test model --target-dir target/loom --no-run
binary=$(ls -t target/loom/debug/deps/model-* | grep -v '\.d$' | head -1)

# Which model meets which order.
: >"$out/sites"
"$binary" --list --format terse | sed -n 's/: test$//p' | grep "${1:-.}" | while read -r name; do
    TOMBOLO_SITES="$out/sites" "$binary" --exact "$name" >/dev/null 2>&1 || { echo "$name fails as it is"; exit 1; }
done
: >"$out/table"
cut -f2 "$out/sites" | sort -u | while read -r site; do
    case $site in
    *SeqCst) weaker=AcqRel ; case $site in *Load*) weaker=Acquire ;; *Store*) weaker=Release ;; esac ;;
    *AcqRel) weaker='Acquire Release' ;;
    *) weaker=Relaxed ;;
    esac
    for order in $weaker; do
        missed=none
        # The short ones first.
        for name in $(awk -F '\t' -v site="$site" '$2 == site { print $1 }' "$out/sites" | sort -u); do
            if ! TOMBOLO_WEAKEN="$site>$order" "$binary" --test-threads=1 "$name" >/dev/null 2>&1; then
                missed=$name
                break
            fi
        done
        printf '%s -> %s\t%s\n' "$site" "$order" "$missed" | tee -a "$out/table"
    done
done
