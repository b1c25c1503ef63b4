#!/bin/sh
# Checks that every test that docs/rfc-compliance names exists: `file::test` (a file of crates/engine/tests, or a unit
# test of crates/engine/src), or `path/to/file.rs::test`.
cd "$(dirname "$0")/.." || exit 2
status=0
names=$(grep -oh '`[A-Za-z0-9_/.]*::[a-z0-9_]*`' docs/rfc-compliance/rfc*.md | tr -d '`' | sort -u)
[ -n "$names" ] || { echo "no test is named" >&2; exit 1; }
for name in $names; do
    file=${name%%::*}
    test=${name##*::}
    case $file in
        */*.rs) files=$file ;;
        *) files=$(find crates/engine/tests crates/engine/src -name "$file.rs") ;;
    esac
    if [ -z "$files" ] || ! grep -q "fn $test(" $files 2>/dev/null; then
        echo "docs/rfc-compliance names $name, which does not exist" >&2
        status=1
    fi
done
[ $status -eq 0 ] && echo "$(echo "$names" | wc -l) tests named by docs/rfc-compliance exist"
exit $status
