#!/bin/sh
# Installs what building and testing need on Debian and Ubuntu. Safe to call again: when nothing is missing it asks dpkg
# once and ends. Works as root or through sudo.
#
#   scripts/setup.sh           what `make test` and `make demo` need
#   scripts/setup.sh guests    also what other processors and emulated guests need: cross.sh, static.sh, check-kernel.sh, check-small.sh
set -eu

packages="
    bind9-dnsutils bird2 clang clang-format conntrack curl etcd-client etcd-server ethtool frr gcc iperf3 iproute2 iptables
    iputils-ping iputils-tracepath libbpf-dev libelf-dev llvm make natpmpc nftables openssh-client
    openssh-server openssl radvd tayga tcpdump tftp-hpa tftpd-hpa traceroute tshark unbound vsftpd
"
case "$*" in
"") ;;
guests)
    packages="$packages bc bison cpio flex gcc-aarch64-linux-gnu kmod libc6-dev-arm64-cross qemu-system-arm qemu-system-x86 qemu-user-static xz-utils"
    ;;
*)
    echo "setup: nothing, or guests" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "setup: no dpkg here; install the equivalents of:" $packages >&2
    exit 0
fi

# Words, not lines: the list above is split on purpose.
# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $packages 2>/dev/null |
    sed -n 's/^installed //p') || true

missing=""
for package in $packages; do
    case "
$installed
" in
    *"
$package
"*) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: not root and no sudo; missing:$missing" >&2
        exit 1
    fi
    root="sudo"
fi

echo "setup: installing$missing" >&2
# tshark asks whether everybody may capture; etcd, radvd, sshd, tayga, tftpd, unbound and vsftpd would start daemons, which a policy of the host's own may forbid.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $root tee $policy >/dev/null
    $root chmod 755 $policy
    trap '$root rm -f $policy' EXIT
fi
$root env DEBIAN_FRONTEND=noninteractive apt-get update -q
# shellcheck disable=SC2086
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
