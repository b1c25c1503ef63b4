#!/bin/sh
# The fast path in a guest with Debian 12's kernel, 6.1: whether its verifier takes the programs of every plan of the
# differential test, and whether they work on interfaces, where TC has no links yet (before 6.6) and the program is a filter
# of clsact. QEMU emulates the processor, so no KVM is needed; it takes some minutes.
#
# Needs: apt-get install qemu-system-x86 busybox-static cpio iproute2 iputils-ping curl ethtool, and clang for the programs.
# TOMBOLO_TRIALS: packets of each plan (default 2000). KERNEL: a linux-image package that is there already.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/bin" "$root/modules" "$root/tests"

# The kernel: the package that Debian 12 boots.
package=${KERNEL:-}
if [ -z "$package" ]; then
	name=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-6\.1[^ ]*\)/\1/p' | head -n 1)
	[ -n "$name" ] || { echo "apt knows no kernel 6.1; is this Debian 12? KERNEL=FILE.deb names one" >&2; exit 1; }
	(cd "$work" && apt-get download "$name")
	package=$(ls "$work"/linux-image-6.1*.deb)
fi
dpkg-deb -x "$package" "$work/kernel"
for module in veth sch_ingress cls_bpf act_bpf; do
	find "$work/kernel/lib/modules" -name "$module.ko" -exec cp {} "$root/modules" \;
done

# The tests, and what they run, each with its libraries.
cargo test --release -p tombolo-fastpath --no-run --message-format=json |
	sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' >"$work/executables"
for name in differential lab lpm; do
	cp "$(grep "/$name-" "$work/executables" | tail -n 1)" "$root/tests/$name"
	strip "$root/tests/$name"
done
cp "$(command -v busybox)" "$root/bin/busybox"
for tool in ip ping curl ethtool; do
	cp "$(command -v "$tool")" "$root/bin/$tool"
done
for program in "$root"/tests/* "$root"/bin/ip "$root"/bin/ping "$root"/bin/curl "$root"/bin/ethtool; do
	ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -L "$library" "$root$library"
	done
done
cat >"$root/init" <<INIT
#!/bin/busybox sh
export PATH=/bin HOME=/ TOMBOLO_TRIALS=${TOMBOLO_TRIALS:-2000} RUST_BACKTRACE=0
/bin/busybox --install -s /bin 2>/dev/null
mkdir -p /proc /sys /dev /tmp /run/netns /var
ln -s /run /var/run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /run/netns
ip link set lo up
for module in /modules/*.ko; do insmod \$module; done
uname -r
failed=
for test in lpm differential lab; do
	/tests/\$test --nocapture --test-threads 1 || failed="\$failed \$test"
done
if [ -z "\$failed" ]; then echo "kernel \$(uname -r): all tests passed"; else echo "kernel \$(uname -r): failed:\$failed"; fi
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"
timeout "${LIMIT:-3000}" qemu-system-x86_64 -machine q35 -accel tcg -cpu max -smp 2 -m 4096 -nographic -no-reboot \
	-kernel "$work"/kernel/boot/vmlinuz-* -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" \
	</dev/null | tee "$work/log"
grep -q "all tests passed" "$work/log"
