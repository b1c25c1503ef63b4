#!/bin/sh
# A customer's edge of MAP-E on a small machine: a guest with 64 MB of memory runs the small static binary, whose NAPT serves TCP and UDP of a
# host for ten minutes. What process and machine take of the memory is printed every half minute; at the end the process may not have grown.
#
#   scripts/check-small.sh [x86-64|arm64]    default: x86-64
#
#   KERNEL, MEMORY, MINUTES    6.1 (as scripts/check-kernel.sh has them), 64 (MiB) and 10
#
# QEMU emulates the guest, without KVM. Host, edge and relay (the kernel's own tunnel) are network namespaces of it. Files are on a disk of its
# own: in an initramfs they would take memory. target/check-small/ARCH.log has what it said. Needs what scripts/setup.sh guests installs.
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh
arch=${1:-x86-64}
case $arch in
x86-64) debian=amd64 ;;
arm64) debian=arm64 ;;
*) echo "check-small: x86-64 or arm64" >&2; exit 2 ;;
esac
minutes=${MINUTES:-10}
binary=$PWD/target/static/tombolo-small-$arch
[ -x "$binary" ] || scripts/static.sh "$arch"
results=$PWD/target/check-small
mkdir -p "$results"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
disk=$work/disk
initramfs=$work/initramfs
mkdir -p "$disk" "$initramfs/bin" "$initramfs/disk"

# The disk: programs, the gateway, its configuration.
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
debian_guest "$disk" "$debian" "$codename" iperf3
release=$(debian_kernel "$work/kernel" "$debian" "${KERNEL:-6.1}")
debian_modules "$work/kernel" "$release" "$disk"
cp "$binary" "$disk/usr/bin/tombolo"
cp examples/map-e-ce.toml "$disk/gateway.toml"
mkdir -p "$disk/proc" "$disk/sys" "$disk/dev" "$disk/tmp" "$disk/run" "$disk/var/lib"
ln -sfn /run "$disk/var/run"

# What mounts the disk.
cp "$disk/bin/busybox" "$initramfs/bin/busybox"
modules=$(find "$work/kernel" -path "*lib/modules/$release" -prune)
kept=$initramfs/lib/modules/$release
mkdir -p "$kept/kernel/drivers" "$kept/kernel/fs"
cp "$modules"/modules.builtin* "$modules"/modules.order "$kept" 2>/dev/null || true
for folder in drivers/virtio drivers/block fs/ext4 fs/jbd2 fs/mbcache crypto lib; do
	for found in "$modules/kernel/$folder" "$modules/kernel/$folder".ko*; do
		[ ! -e "$found" ] || { mkdir -p "$kept/kernel/$(dirname "$folder")" && cp -r "$found" "$kept/kernel/$(dirname "$folder")"; }
	done
done
find "$kept/kernel/drivers/block" -type f ! -name 'virtio_blk*' -delete
depmod -b "$initramfs" "$release"
cat >"$initramfs/init" <<-'INIT'
	#!/bin/busybox sh
	export PATH=/bin
	/bin/busybox mkdir -p /proc /sys /dev /sbin
	/bin/busybox --install -s /bin
	mount -t proc proc /proc
	mount -t sysfs sysfs /sys
	mount -t devtmpfs dev /dev
	for module in virtio_pci virtio_mmio virtio_blk ext4; do modprobe $module 2>/dev/null; done
	mount -t ext4 -o ro /dev/vda /disk || { ls /dev; poweroff -f; }
	umount /proc /sys /dev
	exec switch_root /disk /small
INIT
chmod +x "$initramfs/init"

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
for module in veth tun ip6_tunnel sch_ingress cls_bpf act_bpf; do modprobe \$module; done
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
ip -n relay -6 tunnel add br mode ipip6 local 2001:db8:ffff::1 remote 2001:db8:12:3400:0:c000:212:34 encaplimit none
ip -n relay link set br up
ip -n relay route add 192.0.2.18/32 dev br

tombolo run -c /gateway.toml >/tmp/gateway.log 2>&1 &
gateway=\$!
for second in 1 2 3 4 5 6 7 8 9 10; do grep -q 'serving\|ready\|running' /tmp/gateway.log && break; sleep 1; done
cat /tmp/gateway.log
ip netns exec relay iperf3 -s -D >/dev/null 2>&1
sleep 1
memory() { sed -n "s/^\$1: *\([0-9]*\) kB/\1/p" "\$2"; }
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
	[ \$rounds -gt 2 ] || early=\$(memory VmRSS /proc/\$gateway/status)
done
late=\$(memory VmRSS /proc/\$gateway/status)
tombolo show bindings 2>/dev/null | tail -n 3
kill -0 \$gateway || failures=\$((failures + 1))
# Memory is flat: a page more now and then is not.
[ "\${late:-0}" -le \$((early + early / 20)) ] || { echo "check-small: the process has grown from \$early to \$late kB"; failures=\$((failures + 1)); }
echo "check-small: \$rounds rounds, \$failures failures, from \$early to \$late kB"
/bin/busybox poweroff -f
SMALL
chmod +x "$disk/small"
mke2fs -q -t ext2 -d "$disk" "$work/disk.ext2" "$(($(du -sm "$disk" | cut -f 1) + 32))M"

export QEMU="-drive file=$work/disk.ext2,format=raw,if=virtio,readonly=on" MEMORY="${MEMORY:-64}" SMP="${SMP:-1}" LIMIT=$((minutes * 60 + 900))
debian_boot "$work/kernel" "$initramfs" "$debian" | tee "$results/$arch.log"
grep -q '^check-small: .* 0 failures' "$results/$arch.log"
