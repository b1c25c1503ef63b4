#!/bin/sh
# Jool beside this project's gateway, in one guest: Debian 12 with its kernel and its Jool, in a machine that QEMU emulates
# (no KVM needed, and no kernel module in this system). The tester is the guest's as well, so that all of a run were measured
# alike. An emulated processor is no processor: the ratios within a run say something, the heights nothing. It has one core,
# which tester and gateway share, and a clock that counts its instructions, so that what else this system does tears no holes
# into the trials: a ratio is one of instructions, the tester's included, and knows no caches.
#
#   scripts/measure-jool.sh [PRESET...]
#
#   PRESET    what is measured, in its quick form (tombolo bench preset --list); by default features, and with few
#             connections, for an emulated processor is slow: rate of connections, throughput, tear-down
#
#   TOMBOLO   the program, where it is not to be built
#   RESULTS   where the result files go (target/measure-jool)
#   GUEST     a shell command in the guest before that
#   MEMORY, LIMIT, NICE    MiB (4096), seconds (7200) and niceness (0) of the guest
#   INSTRUCTION    how long an instruction takes: 2 to the power of this, in ns (1)
#
# Debian's packages are downloaded and unpacked in target/debian, nothing is installed; Jool's modules are compiled there, in
# a root of Debian 12 with that kernel's headers. Needs root (chroot) and, of Debian: qemu-system-x86, cpio, kmod, xz-utils.
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh
case ${1:-} in -*)
	sed -n 's/^# \{0,1\}//; 2,/^set/p' "$0" | sed '/^set/d' >&2
	exit 2
	;;
esac
results=${RESULTS:-$PWD/target/measure-jool}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$results" "$root/results"

debian_guest "$root" amd64 bookworm curl ethtool iperf3 nftables iptables conntrack tayga unbound jool-tools libgcc-s1 base-files util-linux
release=$(debian_kernel "$work/kernel" amd64 6.1)
debian_modules "$work/kernel" "$release" "$root"

# Jool's modules, as dkms would make them: the kernel's headers name files of /usr/src, so it is done in a root of their own.
built=$DEBIAN/jool-$release
if [ ! -e "$built/complete" ]; then
	rm -rf "$built"
	debian_unpack_with_all "$built/root" dash coreutils findutils grep sed mawk make gcc-12 libc6-dev "linux-headers-$release"
	debian_unpack "$built/root" jool-dkms
	for folder in bin sbin lib lib64; do
		[ -e "$built/root/$folder" ] || ln -s "usr/$folder" "$built/root/$folder"
	done
	ln -sf dash "$built/root/bin/sh"
	[ -e "$built/root/usr/bin/awk" ] || ln -s mawk "$built/root/usr/bin/awk"
	mkdir -p "$built/root/dev"
	chroot "$built/root" sh -c '
		set -e
		cd /usr/src/jool-dkms-*/src/mod
		for part in common nat64 siit; do
			make -C /usr/src/linux-headers-'"$release"' M="$PWD/$part" modules
		done' >"$built/log" 2>&1 || { tail -n 30 "$built/log" >&2; exit 1; }
	for part in common/jool_common nat64/jool siit/jool_siit; do
		cp "$built"/root/usr/src/jool-dkms-*/src/mod/$part.ko "$built"
	done
	rm -rf "$built/root"
	: >"$built/complete"
fi
mkdir -p "$root/lib/modules/$release/extra"
cp "$built"/*.ko "$root/lib/modules/$release/extra"
depmod -b "$root" "$release"

[ -n "${TOMBOLO:-}" ] || cargo build --release -p tombolo
strip -o "$root/usr/bin/tombolo" "${TOMBOLO:-${CARGO_TARGET_DIR:-target}/release/tombolo}"

debian_init >"$root/init"
cat >>"$root/init" <<INIT
modprobe jool && modprobe jool_siit && echo "jool: \$(jool --version)"
mkdir -p /results
# On one core nobody may go before the others: without this capability the tester's attempts at real-time priority fail, and
# sender, ksoftirqd and the gateway's processes share the core as the scheduler sees fit.
bench() { /usr/bin/setpriv --inh-caps=-sys_nice --bounding-set=-sys_nice -- tombolo bench "\$@" 2>&1 | cat; }
${GUEST:-}
for preset in ${*:-thesis-features}; do bench preset \$preset --quick -o /results; done
if [ $# = 0 ]; then
	nat64="--technology nat64 --quick --against tombolo:tc --against tombolo:off"
	few="--repetitions 2 --fill-rate 2000 --inside-ports 1000 --outside-ports 1"
	bench throughput \$nat64 \$few --dut plain --against jool -o /results/throughput.jsonl
	bench connection-rate \$nat64 \$few --dut jool -o /results/connection-rate.jsonl
	# So many that deleting them takes longer than the command's own tenth of a second.
	bench teardown \$nat64 --dut jool --repetitions 3 --fill-rate 4000 --inside-ports 50000 --outside-ports 4 -o /results/teardown.jsonl
fi
for file in /results/*.jsonl; do
	echo "BEGIN \${file##*/}"
	gzip -c \$file | base64
	echo END
done
echo "measure-jool: done"
poweroff -f
INIT
chmod +x "$root/init"
QEMU="-icount shift=${INSTRUCTION:-1},sleep=off" APPEND="tsc=reliable" SMP=1 NICE=${NICE:-0} MEMORY=${MEMORY:-4096} \
	debian_boot "$work/kernel" "$root" amd64 | tee "$results/guest.log" | sed '/^BEGIN /,/^END/d'

# The result files, from what the guest printed.
for file in $(sed -n 's/^BEGIN //p' "$results/guest.log"); do
	sed -n "/^BEGIN $file\$/,/^END\$/p" "$results/guest.log" | sed '1d; $d' | base64 -d | gzip -d >"$results/$file"
	echo "$results/$file"
done
grep -q '^measure-jool: done' "$results/guest.log"
