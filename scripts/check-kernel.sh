#!/bin/sh
# The fast path under a kernel of Debian, in a guest that QEMU emulates (no KVM needed): whether the kernel's verifier takes
# the programs of every plan and those of the generator, whether they decide as the engine does, and whether they work on
# interfaces, in the gateway's process, and when that is killed.
#
#   scripts/check-kernel.sh ARCH KERNEL
#
#   ARCH      x86-64 or arm64
#   KERNEL    5.10, 6.1, 6.12 (Debian 11, 12, 13), or newest (Debian 13's backports); the small cloud kernels
#
#   PARTS     what is tried, in order: objects lpm differential lab borders generator adoption gateway demo
#             (default: lpm differential lab borders). Of `objects`, the verifier is asked only: for the programs of every plan and of
#             the generator, as several compilers make them. In the others they are those of clang, or CLANG.
#   COMPILERS for objects, as scripts/check-clang.sh takes them (default: clang 19 22)
#   TOMBOLO   the command to try in adoption, gateway and demo, such as a static one (default: as built here)
#   PROFILE   dev or release (default); dev is built sooner
#   TOMBOLO_TRIALS    packets of each plan for differential (default: 1600); TOMBOLO_CASE is a part of the plans' names
#   TOMBOLO_PATIENCE  by how much labs wait longer than on a machine of its own (default: 6)
#   SMP, MEMORY, LIMIT    processors (2), MiB (3072) and seconds (7200) of the guest
#
# target/check-kernel/ARCH-KERNEL.log has what the guest said. What became of each part goes into the matrix of
# docs/kernel-support.md. Nothing is installed: packages are downloaded and unpacked in target/debian.
# Needs, of Debian: qemu-system-x86 or qemu-system-arm, cpio, kmod, xz-utils; for arm64 also what scripts/cross.sh needs.
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh
usage() {
	sed -n 's/^# \{0,1\}//; 2,/^set/p' "$0" | sed '/^set/d' >&2
	exit 2
}
[ $# -eq 2 ] || usage
case $1 in
x86-64) debian=amd64 target=x86_64-unknown-linux-gnu ;;
arm64) debian=arm64 target=aarch64-unknown-linux-gnu ;;
*) usage ;;
esac
trials=${TOMBOLO_TRIALS:-1600}
# Every program that a reload loads takes seconds to verify where the processor is emulated.
patience=${TOMBOLO_PATIENCE:-6}
parts=${PARTS:-lpm differential lab borders}
compilers=${COMPILERS:-clang 19 22}
results=$PWD/target/check-kernel
name=$1-$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$results" "$root/tests"

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
debian_guest "$root" "$debian" "$codename" curl ethtool iperf3 nftables conntrack libgcc-s1
release=$(debian_kernel "$work/kernel" "$debian" "$2")
debian_modules "$work/kernel" "$release" "$root"

# The tests. The daemon's start the command where cargo built it.
profile=${PROFILE:-release}
cross=
strip=strip
if [ "$debian" = arm64 ]; then
	eval "$(scripts/cross.sh env)"
	cross="--target $target"
	strip=aarch64-linux-gnu-strip
fi
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false
# Puts the tests of a crate into the guest: CRATE TEST...
take() {
	crate=$1
	shift
	# shellcheck disable=SC2086 # $cross is words or nothing
	for test in "$@"; do
		file=$(cargo test --profile "$profile" $cross -p "$crate" --test "$test" --no-run --message-format=json |
			sed -n 's/.*"kind":\["test"\].*"name":"'"$test"'".*"executable":"\([^"]*\)".*/\1/p')
		$strip -o "$root/tests/$crate-$test" "$file"
	done
}
case " $parts " in *" objects "* | *" differential "*) take tombolo-fastpath differential ;; esac
for part in lpm lab borders; do
	case " $parts " in *" $part "*) take tombolo-fastpath "$part" ;; esac
done
case " $parts " in *" generator "*) take tombolo-generator wire ;; esac
case " $parts " in
*" adoption "* | *" gateway "* | *" demo "*)
	take tombolo fastpath
	folder=$([ "$profile" = dev ] && echo debug || echo "$profile")
	tombolo=$(realpath "${CARGO_TARGET_DIR:-target}")/${cross:+$target/}$folder/tombolo
	mkdir -p "$root$(dirname "$tombolo")"
	$strip -o "$root$tombolo" "${TOMBOLO:-$tombolo}"
	ln -s "$tombolo" "$root/usr/bin/tombolo"
	;;
esac
objects=
case " $parts " in
*" objects "*)
	# shellcheck disable=SC2086
	ONLY_COMPILE=1 TARGET=${cross:+$target} PROFILE=$profile scripts/check-clang.sh $compilers
	mkdir "$root/objects"
	cp -r "target/check-clang/${target%%-*}/." "$root/objects"
	objects=$(cd "$root" && echo objects/* | sed 's/objects/\/objects/g' | tr ' ' ':')
	;;
esac

# What the guest does. Each part ends with a line for the results.
debian_init >"$root/init"
cat >>"$root/init" <<INIT
export TOMBOLO_TRIALS=$trials TOMBOLO_CASE='${TOMBOLO_CASE:-}' TOMBOLO_PATIENCE=$patience
failures=0
part() {
	what=\$1
	shift
	started=\$(cut -d . -f 1 /proc/uptime)
	{ "\$@" 2>&1; echo \$? >/tmp/status; } | tee /tmp/said
	status=\$(cat /tmp/status)
	seconds=\$((\$(cut -d . -f 1 /proc/uptime) - started))
	passed=\$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' /tmp/said)
	skipped=\$(grep -c SKIP /tmp/said)
	packets=\$(sed -n 's/^all: Score { translated: \([0-9]*\),.* passed: \([0-9]*\),.*/\1 packets translated, \2 passed on/p' /tmp/said)
	[ \$what != objects ] || packets="\$(grep -c ': taken' /tmp/said) taken, \$(grep -c ': refused\$' /tmp/said) refused"
	[ \$status = 0 ] && verdict=passed || { verdict=failed; failures=\$((failures + 1)); }
	checked="\${passed:-0} tests, \$skipped skipped"
	[ \$what != demo ] || checked="\$(grep -o 'ok: ' /tmp/said | wc -l) steps"
	printf 'RESULT\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "\$(uname -r)" \$what \$verdict \
		"\$checked" "\$packets" "\${seconds} s"
}
run() {
	case \$1 in
	objects) TOMBOLO_OBJECTS=$objects part \$1 /tests/tombolo-fastpath-differential --ignored --nocapture ;;
	lpm | differential | lab | borders) part \$1 /tests/tombolo-fastpath-\$1 --nocapture --test-threads 1 ;;
	generator) part \$1 /tests/tombolo-generator-wire --nocapture --test-threads 1 ;;
	adoption) part \$1 /tests/tombolo-fastpath --test-threads 1 known_sessions what_the_kernel_takes the_doctor \
		netfilter an_interface xdp_goes ;;
	gateway) part \$1 /tests/tombolo-fastpath --test-threads 1 gateway_with_tc nat44_with_tc ;;
	demo) part \$1 tombolo lab demo ;;
	esac
}
for one in $parts; do run \$one; done
echo "check-kernel: \$failures parts failed"
poweroff -f
INIT
chmod +x "$root/init"
debian_boot "$work/kernel" "$root" "$debian" | tee "$results/$name.log"

# The matrix: what was seen of these parts before goes, what was seen now comes.
grep '^RESULT' "$results/$name.log" | cut -f 2- >"$results/$name.tsv"
page=docs/kernel-support.md
awk -F '\t' '
	FILENAME == ARGV[1] {
		row = "|"
		for (field = 1; field <= NF; field++)
			row = row " " ($field == "" ? "" : $field " ") "|"
		rows[++count] = row
		seen["| " $1 " | " $2 " | " $4 " |"] = 1
		next
	}
	/^\| / {
		split($0, cells, " *[|] *")
		if (("| " cells[2] " | " cells[3] " | " cells[5] " |") in seen)
			next
	}
	/^<!-- end of the matrix/ { for (row = 1; row <= count; row++) print rows[row] }
	{ print }
' "$results/$name.tsv" "$page" >"$work/page"
cat "$work/page" >"$page"
cat "$results/$name.tsv"
grep -q '^check-kernel: 0 parts failed' "$results/$name.log"
