#!/bin/sh
# The Debian package, target/debian-package/tombolo_VERSION_ARCH.deb: the program, its unit for systemd, a configuration to begin with,
# manual pages, completions for shells, examples and documentation. It runs on Debian 12 and later if it was built on 12.
#
#   scripts/deb.sh [VERSION]     the package's version; default: that of Cargo.toml
#
# PROFILE is cargo's: release (default) or dev, which is built sooner. cargo-deb is built in target/tools where there is none.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/target/debian-package
made=$PWD/target/package
profile=${PROFILE:-release}
binaries=${CARGO_TARGET_DIR:-target}/$([ "$profile" = dev ] && echo debug || echo "$profile")

PATH=$PATH:$PWD/target/tools/bin
command -v cargo-deb >/dev/null || CARGO_TARGET_DIR=target/tools/build cargo install --quiet --locked --root target/tools cargo-deb

cargo build --profile "$profile" -p tombolo
rm -rf "$made"
mkdir -p "$made/man1" "$made/man5" "$out"
"$binaries/tombolo" man --to "$made/man1"
mv "$made/man1/tombolo.toml.5" "$made/man5"
gzip -9n "$made"/man?/*
for shell in bash zsh fish; do "$binaries/tombolo" completions $shell >"$made/$shell"; done
mv "$made/bash" "$made/tombolo.bash"
mv "$made/zsh" "$made/_tombolo"
mv "$made/fish" "$made/tombolo.fish"

cargo deb --quiet --no-build --profile "$profile" -p tombolo ${1:+--deb-version "$1"} --output "$out" >/dev/null
ls -l "$out"
