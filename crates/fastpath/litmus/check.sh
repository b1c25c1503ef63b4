#!/bin/sh
# Runs each litmus test of this folder with herd7: what its condition describes is never observed, and is observed as soon as the
# barriers are taken out. HERD7 names another herd7, with arguments.
set -eu
cd "$(dirname "$0")"
herd=${HERD7:-herd7}
$herd -version >/dev/null 2>&1 || { echo "SKIP: litmus: no herd7; apt-get install herdtools7 (Debian sid)" >&2; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Herd's word: Never, Sometimes, Always.
observed() {
	$herd "$@" | sed -n 's/^Observation [^ ]* \([^ ]*\) .*/\1/p'
}

expect() {
	[ "$2" = "$3" ] && return
	echo "litmus: $1: ${2:-no answer}, not $3" >&2
	failed=$((failed + 1))
}

for test in *.litmus; do
	case $test in
	*.arm64.litmus)
		with=$(observed "$test")
		if ! grep -q SWPAL "$test"; then
			echo "$test: $with, without a barrier"
			expect "$test" "$with" Never
			continue
		fi
		sed 's/SWPAL W7,W8,\[X9\]/NOP             /g' "$test" >"$work/$test"
		without=$(observed "$work/$test")
		sed 's/SWPAL W7,W8,\[X9\]/DMB ISH         /g' "$test" >"$work/$test"
		before_8_1=$(observed "$work/$test")
		echo "$test: $with; without barriers $without; with those of cores before ARMv8.1 $before_8_1"
		expect "$test" "$with" Never
		expect "$test, without barriers" "$without" Sometimes
		expect "$test, before ARMv8.1" "$before_8_1" Never
		;;
	*.x86-64.litmus)
		with=$(observed "$test")
		echo "$test: $with, without a barrier"
		expect "$test" "$with" Never
		;;
	*.rust.litmus)
		with=$(observed -model rc11.cat "$test")
		sed '/atomic_thread_fence/d' "$test" >"$work/$test"
		without=$(observed -model rc11.cat "$work/$test")
		echo "$test: $with; without fences $without"
		expect "$test" "$with" Never
		expect "$test, without fences" "$without" Sometimes
		;;
	esac
done
[ "$failed" -eq 0 ]
