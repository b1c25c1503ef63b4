#!/bin/sh
# Builds for arm64 on x86-64, or runs the tests that an emulator of single programs can run.
#
#   scripts/cross.sh build [cargo's words]    target/aarch64-unknown-linux-gnu/release/tombolo
#   scripts/cross.sh test                     wire, tables and engine under qemu-user; without the longest random ones
#   scripts/cross.sh env                      the settings, for eval: cargo --target aarch64-unknown-linux-gnu does the rest
#
# Needs gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, for tests qemu-user-static; and Rust's library for arm64: rustup adds
# it here; of Debian's rustc (13, from its backports) it is libstd-rust-dev:arm64, after `dpkg --add-architecture arm64`.
set -eu
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu

need() {
	command -v "$1" >/dev/null || { echo "cross: no $1 here; apt-get install $2" >&2; exit 1; }
}

need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
	command -v rustup >/dev/null ||
		{ echo "cross: rustc has no library for $target; with Debian's: apt-get install libstd-rust-dev:arm64" >&2; exit 1; }
	rustup target add "$target"
fi
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER

case ${1:-build} in
build)
	[ $# -eq 0 ] || shift
	cargo build --release --target "$target" -p tombolo "$@"
	;;
test)
	need qemu-aarch64-static qemu-user-static
	# What takes minutes each when emulated: random packets and exhaustive walks, which the native run has.
	cargo test --release --target "$target" -p tombolo-wire -p tombolo-tables -p tombolo-engine -- \
		--skip random_ --skip exhaustive --skip creating_and_sweeping --skip a_million
	;;
env)
	echo "export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER"
	;;
*)
	echo "cross: build, test or env" >&2
	exit 2
	;;
esac
