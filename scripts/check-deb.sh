#!/bin/sh
# Installs the package in Debian 12 and 13, each in a folder of its own: the unit is verified, what it would run is run by hand (there is
# no systemd that runs) with no more capabilities than it has, an upgrade keeps a binding with its port, and after a purge all files
# are those from before the installation.
#
#   scripts/check-deb.sh [SUITE]...    default: bookworm trixie
#
# PROFILE is for scripts/deb.sh. As root. Debian's debootstrap makes the folders, in target/debian; no package is installed but into them.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- bookworm trixie
[ "$(id -u)" -eq 0 ] || { echo "check-deb: needs root, to make a root of Debian and to enter it" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "check-deb: no debootstrap here; apt-get install debootstrap" >&2; exit 1; }
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
kept=$PWD/target/debian
packages=$PWD/target/debian-package
mkdir -p "$kept"

rm -f "$packages"/*.deb
scripts/deb.sh 0.1.0-1 >/dev/null
scripts/deb.sh 0.1.0-2 >/dev/null
first=$(echo "$packages"/tombolo_0.1.0-1_*.deb)
second=$(echo "$packages"/tombolo_0.1.0-2_*.deb)

work=$(mktemp -d)
root=$work/root
cleanup() {
	umount -l -R "$root/proc" "$root/sys" "$root/dev" 2>/dev/null || true
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# A Debian with what the package needs and the test. Debootstrap of Debian 12 does not follow dependencies between alternatives as
# those of 13 are, so apt does it.
make_root() {
	debootstrap --variant=minbase "$1" "$2" "$mirror" &&
		cp /etc/resolv.conf "$2/etc/resolv.conf" &&
		printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d" && chmod +x "$2/usr/sbin/policy-rc.d" &&
		DEBIAN_FRONTEND=noninteractive chroot "$2" apt-get install -y --no-install-recommends adduser iproute2 nftables procps radvd systemd \
			unbound util-linux &&
		chroot "$2" apt-get clean
}

for suite in "$@"; do
	if [ ! -e "$kept/root-$suite.tar" ]; then
		make_root "$suite" "$work/new" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
		tar -C "$work/new" -cf "$kept/root-$suite.tar" .
		rm -rf "$work/new"
	fi
	mkdir "$root"
	tar -C "$root" -xf "$kept/root-$suite.tar"
	cp "$first" "$root/first.deb"
	cp "$second" "$root/second.deb"
	cp scripts/check-deb-inside.sh "$root/inside.sh"
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --make-rslave "$root/sys"
	mount -t tmpfs tmpfs "$root/dev"
	mkdir "$root/dev/net"
	for device in null zero full random urandom; do cp -a "/dev/$device" "$root/dev/"; done
	[ -e /dev/net/tun ] && cp -a /dev/net/tun "$root/dev/net/tun" || mknod "$root/dev/net/tun" c 10 200
	unshare --net chroot "$root" /bin/sh /inside.sh || { echo "check-deb: $suite: failed" >&2; exit 1; }
	umount -R "$root/proc" "$root/sys" "$root/dev"
	rm -rf --one-file-system "$root"
	echo "check-deb: $suite: installed, verified, run, upgraded, purged"
done
