#!/bin/sh
# The programs for the kernel by several compilers: each has to compile them, and the kernel that runs has to take what it made,
# for every plan of the differential test.
#
#   scripts/check-clang.sh [COMPILER]...     default: clang 19 22
#
# A number is Debian 13's clang of that version, which is downloaded and not installed (scripts/debian.sh); a word is a command.
# TARGET compiles for another processor, and then nothing is loaded: aarch64-unknown-linux-gnu; nor with ONLY_COMPILE. The objects stay in
# target/check-clang/PROCESSOR/clang-VERSION.
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh
[ $# -gt 0 ] || set -- clang 19 22
host=$(rustc -vV | sed -n 's/^host: //p')
target=${TARGET:-$host}
out=$PWD/target/check-clang/${target%%-*}

# The build scripts leave the words that they gave to the compiler.
words=$(cargo build --profile "${PROFILE:-dev}" ${TARGET:+--target "$TARGET"} -p tombolo-fastpath -p tombolo-generator -p tombolo-tester \
	--message-format=json | sed -n 's/.*"build-script-executed".*#\(tombolo-[a-z]*\)@.*"out_dir":"\([^"]*\)".*/\1 \2/p' |
	sed -n 's/^tombolo-\(fastpath\|generator\|tester\) /\1 /p')

# What the objects of a compiler depend on: those that are there need not be made again.
made_of() {
	{
		"$1" --version
		for folder in crates/*/bpf $(echo "$words" | cut -d ' ' -f 2); do
			find "$folder" -name '*.[ch]' -o -name '*.words' | sort | xargs -r cat
		done
	} | sha256sum
}

folders=
for compiler in "$@"; do
	case $compiler in
	[0-9]*) clang=$(debian_clang "$compiler") ;;
	*) clang=$compiler ;;
	esac
	into=$out/clang-$("$clang" -dumpversion | sed 's/\..*//')
	folders=$folders${folders:+:}$into
	sources=$(made_of "$clang")
	[ "$(cat "$into/made-of" 2>/dev/null)" != "$sources" ] || continue
	rm -rf "$into"
	mkdir -p "$into"
	echo "$words" | while read -r crate folder; do
		for file in "$folder"/*.words; do
			object=$(basename "$file" .words).o
			echo "$("$clang" --version | head -n 1): $object" >&2
			# One word a line; paths with line breaks are not to be feared.
			(cd "crates/$crate" && tr '\n' '\0' <"$file" | xargs -0 "$clang" -o "$into/$object")
		done
	done
	echo "$sources" >"$into/made-of"
done
[ "$target" = "$host" ] && [ -z "${ONLY_COMPILE:-}" ] || exit 0
TOMBOLO_OBJECTS=$folders cargo test -p tombolo-fastpath --test differential -- --ignored --nocapture what_other_compilers
