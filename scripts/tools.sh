#!/bin/sh
# Programs of others that tests hold the gateway's output against: nfcapd and nfdump, rsyslogd, promtool. Their
# packages for Debian would start daemons when they are installed, so they are only unpacked, into the folder that this
# prints. Without a network, or without apt, the folder lacks them and the tests that need them say SKIP.
set -eu

cd "$(dirname "$0")/.."
folder="${CARGO_TARGET_DIR:-target}/tools"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
echo "$folder"

# Those, and the libraries that nothing else here has.
packages="nfdump librrd8 libdbi1 rsyslog rsyslog-gnutls libestr0 libfastjson4 liblognorm5 prometheus"
if [ -e "$folder/.complete-2" ] || ! command -v apt-get >/dev/null; then
    exit 0
fi
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
# apt's own user cannot write here, which apt says for each of them.
# shellcheck disable=SC2086
if (cd "$packed" && apt-get download -q $packages >/dev/null 2>&1); then
    for package in "$packed"/*.deb; do
        dpkg-deb -x "$package" "$folder"
    done
    # Of its 100 MB the server itself is the most, and nobody asks for it.
    rm -f "$folder/usr/bin/prometheus"
    touch "$folder/.complete-2"
else
    echo "tools: packages cannot be downloaded: $packages" >&2
fi
