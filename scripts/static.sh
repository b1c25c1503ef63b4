#!/bin/sh
# Statically linked, stripped binaries, which need nothing of the system they run on but its kernel:
#
#   scripts/static.sh [x86-64|arm64]...     target/static/tombolo-ARCH, and tombolo-small-ARCH without lab and tester
#
# Each is tried in an empty root: check, explain and translate, and for x86-64 whether names are resolved there. For arm64 scripts/cross.sh says what is needed.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- x86-64 arm64
out=$PWD/target/static
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# A datagram from 2001:db8:1::2 to 198.51.100.2, by NAT64; 20 bytes shorter when translated.
packet=60000000000c114020010db80001000000000000000000020064ff9b0000000000000000c633640212340035000cb6aa70696e67

# Runs a command of the gateway where there is nothing but its files.
in_empty_root() {
	emulator=$1
	shift
	if [ "$(id -u)" -eq 0 ]; then
		(cd / && chroot "$work/root" ${emulator:+/emulator} /tombolo "$@")
	else
		unshare -r chroot "$work/root" ${emulator:+/emulator} /tombolo "$@"
	fi
}

# A CLAT asks the resolver for its prefix (RFC 7050) before it misses the rest of a system.
resolves() {
	mkdir "$work/root/etc"
	echo "64:ff9b::c000:aa ipv4only.arpa" >"$work/root/etc/hosts"
	cat >"$work/root/clat.toml" <<-CLAT
		[[service]]
		kind = "clat"
		prefix = "auto"
		eam = [{ ipv6 = "2001:db8:1::c0a8:100/120", ipv4 = "192.168.1.0/24" }]
	CLAT
	(cd / && unshare -rn chroot "$work/root" /tombolo run -c /clat.toml) >"$work/said" 2>&1 || true
	grep -q "prefix of the PLAT found.*64:ff9b::/96" "$work/said" ||
		{ cat "$work/said" >&2; echo "static: names are not resolved in an empty root" >&2; exit 1; }
}

for arch in "$@"; do
	case $arch in
	x86-64) target=x86_64-unknown-linux-gnu emulator= ;;
	arm64) target=aarch64-unknown-linux-gnu emulator=$(command -v qemu-aarch64-static || true) ;;
	*) echo "static: x86-64 or arm64" >&2; exit 2 ;;
	esac
	[ "$arch" = x86-64 ] || eval "$(scripts/cross.sh env)"
	for size in "" small-; do
		RUSTFLAGS="-C target-feature=+crt-static" CARGO_PROFILE_RELEASE_STRIP=symbols \
			cargo build --release --target "$target" --target-dir target/static-build -p tombolo \
			${size:+--no-default-features}
		cp "target/static-build/$target/release/tombolo" "$out/tombolo-$size$arch"
		if [ "$arch" = arm64 ] && [ -z "$emulator" ]; then
			echo "static: not tried, there is no qemu-aarch64-static: apt-get install qemu-user-static" >&2
			continue
		fi
		rm -rf "$work/root"
		mkdir -p "$work/root"
		cp "$out/tombolo-$size$arch" "$work/root/tombolo"
		[ -z "$emulator" ] || cp "$emulator" "$work/root/emulator"
		# The addresses of documentation are not global.
		sed '/^prefix/a well_known_prefix_strict = false' examples/nat64.toml >"$work/root/gateway.toml"
		perl -e 'print pack("VvvVVVV VVVV H*", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 101, 0, 0, 52, 52, shift)' "$packet" \
			>"$work/root/in.pcap"
		in_empty_root "$emulator" check -c /gateway.toml >/dev/null
		in_empty_root "$emulator" explain -c /gateway.toml "$packet" | grep -q "198.51.100.2"
		in_empty_root "$emulator" translate -c /gateway.toml --inside /in.pcap --outside-out /out.pcap >/dev/null
		[ "$(wc -c <"$work/root/out.pcap")" -eq 72 ] || { echo "static: translate left the wrong packet" >&2; exit 1; }
		[ -n "$emulator" ] || resolves
		if in_empty_root "$emulator" lab list >/dev/null 2>&1; then has_lab=yes; else has_lab=no; fi
		[ "$has_lab" = "$([ -z "$size" ] && echo yes || echo no)" ] || { echo "static: lab: $has_lab" >&2; exit 1; }
	done
done
ls -l "$out"
