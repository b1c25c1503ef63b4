#!/bin/sh
# A customer's edge of MAP-E on a small machine: a guest with 64 MB of memory runs the small static binary, whose NAPT serves TCP and UDP of a
# host for ten minutes. What process and machine take of the memory is printed every half minute; at the end the process may not have grown.
#
#   scripts/check-small.sh
#
#   MEMORY, MINUTES    64 (MiB) and 10
#
# Debian's kernels do not start in so little. A small one is built from Debian's source with what such a machine needs (scripts/small-kernel.config,
# some minutes, once). QEMU emulates the guest, without KVM. Host, edge and relay (the kernel's own tunnel) are network namespaces of it. Files are
# on a disk: in an initramfs they would take memory. target/check-small.log has what it said. Needs what scripts/setup.sh guests installs.
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh
minutes=${MINUTES:-10}
binary=$PWD/target/static/tombolo-small-x86-64
[ -x "$binary" ] || scripts/static.sh x86-64
log=$PWD/target/check-small.log
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
disk=$work/disk
mkdir -p "$disk" "$work/nothing" "$work/kernel"
cp "$(debian_small_kernel scripts/small-kernel.config)" "$work/kernel/vmlinuz"

# The disk: programs, the gateway, its configuration.
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
debian_guest "$disk" amd64 "$codename" iperf3
cp "$binary" "$disk/usr/bin/tombolo"
cp examples/map-e-ce.toml "$disk/gateway.toml"
mkdir -p "$disk/proc" "$disk/sys" "$disk/dev" "$disk/tmp" "$disk/run" "$disk/var/lib"
ln -sfn /run "$disk/var/run"

cat >"$disk/small" <<SMALL
#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t tmpfs lib /var/lib
mkdir -p /run/netns /dev/net
# Busybox' shell would take its own.
ip() { /sbin/ip "\$@"; }
echo "kernel \$(uname -r) \$(uname -m), \$(grep MemTotal /proc/meminfo)"

# host 192.168.1.2 - 192.168.1.1 edge 2001:db8:fe::2 - 2001:db8:fe::1 relay, server 198.51.100.2
ip netns add host
ip netns add relay
ip link add lan0 type veth peer name eth0 netns host
ip link add wan0 type veth peer name edge0 netns relay
ip link set lo up
sysctl() { echo "\$2" >"/proc/sys/\$1"; }
sysctl net/ipv4/ip_forward 1
sysctl net/ipv6/conf/all/forwarding 1
for one in lan0 wan0; do sysctl net/ipv6/conf/\$one/accept_dad 0; ip link set \$one up; done
ip address add 192.168.1.1/24 dev lan0
ip address add 2001:db8:fe::2/64 dev wan0 nodad
ip -6 route add default via 2001:db8:fe::1
ip -n host link set lo up
ip -n host link set eth0 up
ip -n host address add 192.168.1.2/24 dev eth0
ip -n host route add default via 192.168.1.1
ip netns exec relay /bin/busybox sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/forwarding; echo 1 >/proc/sys/net/ipv4/ip_forward'
ip -n relay link set lo up
ip -n relay link set edge0 up
ip -n relay address add 2001:db8:fe::1/64 dev edge0 nodad
ip -n relay address add 2001:db8:ffff::1/128 dev lo nodad
ip -n relay address add 198.51.100.2/32 dev lo
ip -n relay -6 route add 2001:db8:12:3400::/56 via 2001:db8:fe::2
ip -n relay -6 tunnel add map0 mode ipip6 local 2001:db8:ffff::1 remote 2001:db8:12:3400:0:c000:212:34 encaplimit none
ip -n relay link set map0 up
ip -n relay route add 192.0.2.18/32 dev map0

echo "before the gateway: \$(grep MemAvailable /proc/meminfo)"
tombolo run -c /gateway.toml >/tmp/gateway.log 2>&1 &
gateway=\$!
ready=
for second in \$(seq 60); do grep -q "gateway: ready" /tmp/gateway.log && ready=1 && break; sleep 1; done
cat /tmp/gateway.log
echo "with the gateway\${ready:+, which is ready}: \$(grep MemAvailable /proc/meminfo)"
ip netns exec relay iperf3 -s -D >/dev/null 2>&1
sleep 1
memory() { sed -n "s/^\$1:[[:space:]]*\([0-9]*\) kB/\1/p" "\$2"; }
failures=0
end=\$((\$(cut -d . -f 1 /proc/uptime) + $minutes * 60))
rounds=0
while [ "\$(cut -d . -f 1 /proc/uptime)" -lt \$end ]; do
	ip netns exec host ping -c 2 -W 2 198.51.100.2 >/tmp/ping 2>&1 || { cat /tmp/ping; failures=\$((failures + 1)); }
	ip netns exec host iperf3 -c 198.51.100.2 -t 10 -P 2 >/tmp/tcp 2>&1 || { tail -n 2 /tmp/tcp; failures=\$((failures + 1)); }
	ip netns exec host iperf3 -c 198.51.100.2 -u -b 2M -l 1200 -t 10 -P 2 >/tmp/udp 2>&1 || { tail -n 2 /tmp/udp; failures=\$((failures + 1)); }
	rounds=\$((rounds + 1))
	printf 'RESULT\t%s s\tprocess %s kB\tpeak %s kB\tavailable %s kB\tTCP %s\tUDP %s\n' "\$(cut -d . -f 1 /proc/uptime)" \
		"\$(memory VmRSS /proc/\$gateway/status)" "\$(memory VmHWM /proc/\$gateway/status)" "\$(memory MemAvailable /proc/meminfo)" \
		"\$(sed -n 's/^\[SUM\].* \([0-9.]* [KMG]*bits.sec\).*receiver/\1/p' /tmp/tcp)" "\$(sed -n 's/^\[SUM\].*sec.* \([0-9.]* [KMG]*bits.sec\).* \([0-9]*\/[0-9]*\).*receiver/\1, lost \2/p' /tmp/udp)"
	[ \$rounds -gt 2 ] || { early=\$(memory VmRSS /proc/\$gateway/status); available=\$(memory MemAvailable /proc/meminfo); }
done
late=\$(memory VmRSS /proc/\$gateway/status)
tombolo show bindings 2>/dev/null | tail -n 3
kill -0 \$gateway || failures=\$((failures + 1))
# A page more now and then is no growth. Tables of the kernel's programs are not the process's.
left=\$(memory MemAvailable /proc/meminfo)
[ "\${late:-0}" -gt 0 ] && [ "\$late" -le \$((early + early / 20)) ] && [ \$left -ge \$((available - 1024)) ] || { echo "check-small: the process has grown from \$early to \$late kB, or the rest has shrunk from \$available to \$left kB"; failures=\$((failures + 1)); }
echo "check-small: \$rounds rounds, \$failures failures, process from \$early to \$late kB, available from \$available to \$left kB"
/bin/busybox poweroff -f
SMALL
chmod +x "$disk/small"
mke2fs -q -t ext2 -d "$disk" "$work/disk.ext2" "$(($(du -sm "$disk" | cut -f 1) + 32))M" >/dev/null

export QEMU="-drive file=$work/disk.ext2,format=raw,if=virtio,readonly=on" APPEND="root=/dev/vda ro init=/small random.trust_cpu=1"
export MEMORY="${MEMORY:-64}" SMP=1 LIMIT=$((minutes * 60 + 900))
debian_boot "$work/kernel" "$work/nothing" amd64 | tee "$log"
grep -q '^check-small: .* 0 failures' "$log"
