#!/bin/sh
# Builds a gateway to upgrade from, and says where it is: what the tests of upgrades (crates/tombolo/tests/migration.rs) look for in
# TOMBOLO_FORMER. Without an argument it is this version with its records laid out otherwise (`cfg(other_layout)`: fields in another
# order, flags and ticks that are other numbers); else the version that git knows by the argument.
set -eu

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$target/former"
# What is built once is built fast: our own crates, since those of others are there.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false
unoptimised=$(sed -n 's/^name = "\(tombolo.*\)"$/--config profile.dev.package.\1.opt-level=0/p' crates/*/Cargo.toml)
if [ $# -eq 0 ]; then
    # A wrapper for our own crates, for which cargo keeps what it makes apart: those of others serve both.
    # shellcheck disable=SC2086 # words of their own
    RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/other-layout.sh" cargo $unoptimised build -p tombolo --no-default-features >&2
    # Of a run that was cut short it may be the same file, which mv refuses.
    rm -f "$target/former/other-layout"
    mv "$target/debug/tombolo" "$target/former/other-layout"
    echo "$target/former/other-layout"
else
    tree=$(mktemp -d)
    trap 'git worktree remove --force "$tree"' EXIT
    git worktree add --detach "$tree" "$1" >&2
    # shellcheck disable=SC2086 # words of their own
    cargo $unoptimised build --manifest-path "$tree/Cargo.toml" -p tombolo --target-dir "$target/former/build" >&2
    version=$(git rev-parse --short "$1")
    rm -f "$target/former/$version"
    mv "$target/former/build/debug/tombolo" "$target/former/$version"
    echo "$target/former/$version"
fi
