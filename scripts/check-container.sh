#!/bin/sh
# Builds the image of packaging/Containerfile with Debian's buildah, and runs the gateway's program in it: check, and what says that it
# lacks a device. The image begins with nothing (FROM scratch), so no registry is asked.
#
#   scripts/static.sh x86-64 && scripts/check-container.sh
#
# As root. buildah is in a root of Debian 12 of its own (debootstrap), in target/debian; nothing is installed but into that.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || { echo "check-container: needs root, to make a root of Debian and to enter it" >&2; exit 1; }
binary=target/static/tombolo-small-x86-64
[ -x "$binary" ] || { echo "check-container: no $binary: scripts/static.sh x86-64" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "check-container: no debootstrap here; apt-get install debootstrap" >&2; exit 1; }
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
kept=$PWD/target/debian/root-buildah.tar
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mkdir -p "$(dirname "$kept")" "$root"

if [ ! -e "$kept" ]; then
	{
		debootstrap --variant=minbase bookworm "$root" "$mirror" &&
			cp /etc/resolv.conf "$root/etc/resolv.conf" &&
			DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends buildah &&
			chroot "$root" apt-get clean
	} >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
	tar -C "$root" -cf "$kept" .
else
	tar -C "$root" -xf "$kept"
fi
mkdir "$root/context"
cp "$binary" packaging/Containerfile packaging/tombolo.toml "$root/context"
cat >"$root/inside.sh" <<'INSIDE'
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
mount -t proc proc /proc
cd /context
buildah bud --quiet -f Containerfile -t tombolo . >/dev/null
image=$(buildah mount "$(buildah from tombolo)")
[ "$(cd "$image" && find . -type f)" = ./usr/bin/tombolo ] || { echo "check-container: there is more in it than the program" >&2; exit 1; }
buildah inspect --type image tombolo | grep -q '"/usr/bin/tombolo"' || { echo "check-container: no entry point" >&2; exit 1; }
# What whoever runs containers gives them.
mkdir -p "$image/etc/tombolo" "$image/dev" "$image/proc"
mount -t proc proc "$image/proc"
cp -a /dev/null /dev/random /dev/urandom "$image/dev/"
grep -v '^user' tombolo.toml >"$image/etc/tombolo/tombolo.toml"
chroot "$image" /usr/bin/tombolo check -c /etc/tombolo/tombolo.toml
if said=$(chroot "$image" /usr/bin/tombolo run -c /etc/tombolo/tombolo.toml 2>&1); then
	echo "check-container: it ran without a device" >&2
	exit 1
fi
echo "$said" | grep -q /dev/net/tun || { echo "check-container: it does not say what it lacks: $said" >&2; exit 1; }
INSIDE
# buildah wants its root to be a mount.
unshare --mount --net sh -c 'mount --bind "$1" "$1" && mount --make-rprivate "$1" && exec chroot "$1" sh /inside.sh' sh "$root"
echo "check-container: built, and its program runs in it"
