#!/bin/sh
# Weakens each memory order of the tables in turn, one step at a time, and says which model of the model checker fails then:
# every order that is left has its reason. Arguments: a folder for the results, then names of models (all of them). JOBS says how
# many run at once.
#
# An order that no model misses is listed as `none`.
set -eu

cd "$(dirname "$0")/.."
out=${1:-target/loom/weaken}
[ $# -eq 0 ] || shift
mkdir -p "$out"
RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" cargo test -p tombolo-tables --test model --target-dir target/loom --no-run
binary=$(ls -t target/loom/debug/deps/model-* | grep -v '\.d$' | head -1)

# Which model meets which order, and the models with their milliseconds, the short ones first.
: >"$out/sites"
"$binary" --list --format terse | sed -n 's/: test$//p' | grep "${1:-.}" | while read -r name; do
    began=$(date +%s%3N)
    TOMBOLO_SITES="$out/sites" "$binary" --exact "$name" >/dev/null 2>&1 || { echo "$name fails as it is" >&2; exit 1; }
    printf '%s\t%s\n' "$(($(date +%s%3N) - began))" "$name"
done | sort -n >"$out/models"

# Prints the line of one order.
cat >"$out/try" <<'TRY'
#!/bin/sh
site=${1%>*}
cut -f2 "$3/models" | while read -r name; do
    # Sites are noted without the module of the model.
    grep -qxF "$(printf '%s\t%s' "${name##*::}" "$site")" "$3/sites" || continue
    TOMBOLO_WEAKEN="$1" "$2" --test-threads=1 --exact "$name" >/dev/null 2>&1 || { echo "$name"; break; }
done | { read -r missed || missed=none; printf '%s -> %s\t%s\n' "$site" "${1##*>}" "$missed"; }
TRY
cut -f2 "$out/sites" | sort -u | while read -r site; do
    case $site in
    *SeqCst) weaker=AcqRel ; case $site in *Load*) weaker=Acquire ;; *Store*) weaker=Release ;; esac ;;
    *AcqRel) weaker='Acquire Release' ;;
    *) weaker=Relaxed ;;
    esac
    for order in $weaker; do
        printf '%s>%s\0' "$site" "$order"
    done
done | xargs -0 -P "${JOBS:-1}" -I ORDER sh "$out/try" ORDER "$binary" "$out" | tee "$out/unsorted"
sort "$out/unsorted" >"$out/table"
