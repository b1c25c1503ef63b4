# Packages of other Debian suites and processors, for the scripts beside this one, which read it with `.`. Nothing is
# installed and apt's own lists stay as they are: each suite has a root of its own in $DEBIAN, of which packages are
# downloaded and unpacked.
#
#   debian_root ARCH SUITE...     the root that the functions below ask, for a processor (amd64, arm64)
#   debian_unpack FOLDER PACKAGE...            downloads packages and unpacks them
#   debian_unpack_with_all FOLDER PACKAGE...   likewise, with all that they depend on
#   debian_kernel FOLDER ARCH VERSION    a kernel; debian_boot FOLDER ROOT ARCH boots it in an emulated guest
#   debian_guest ROOT ARCH SUITE PACKAGE...    what such a guest has: these packages, with busybox for the rest
#   debian_modules FOLDER RELEASE ROOT   the modules of the kernel in FOLDER that have to do with networks, for the guest
#   debian_small_kernel CONFIG    a kernel for small guests, built from Debian's source
#   debian_init                   the first lines of the guest's /init
#   debian_clang VERSION          the path of a clang of Debian 13 (19, 22), to be run as it stands

DEBIAN=${DEBIAN:-$PWD/target/debian}
debian_mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

debian_root() {
	debian_arch=$1
	shift
	debian_apt=$DEBIAN/apt-$debian_arch-$(echo "$*" | tr ' ' '-')
	APT_CONFIG=$debian_apt/apt.conf
	export APT_CONFIG
	[ ! -e "$debian_apt/complete" ] || return 0
	mkdir -p "$debian_apt/etc/apt/apt.conf.d" "$debian_apt/etc/apt/preferences.d" "$debian_apt/var/lib/apt/lists/partial" \
		"$debian_apt/var/cache/apt/archives/partial" "$debian_apt/var/lib/dpkg"
	: >"$debian_apt/var/lib/dpkg/status"
	for suite in "$@"; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian_mirror $suite main"
	done >"$debian_apt/etc/apt/sources.list"
	cat >"$APT_CONFIG" <<-CONFIG
		Dir "$debian_apt";
		Dir::State::status "$debian_apt/var/lib/dpkg/status";
		APT::Architecture "$debian_arch";
		APT::Architectures "$debian_arch";
		APT::Sandbox::User "root";
		APT::Install-Recommends "false";
		Acquire::Languages "none";
	CONFIG
	apt-get -qq update >&2 && touch "$debian_apt/complete"
}

debian_unpack() {
	into=$1
	shift
	mkdir -p "$into" "$DEBIAN/packages-$debian_arch"
	for package in "$@"; do
		file=$(apt-get -qq --print-uris download "$package" | sed -n "s/^'[^']*' \([^ ]*\) .*/\1/p")
		[ -n "$file" ] || { echo "Debian has no package $package for $debian_arch" >&2; return 1; }
		[ -e "$DEBIAN/packages-$debian_arch/$file" ] ||
			(cd "$DEBIAN/packages-$debian_arch" && apt-get -qq download "$package" >&2)
		dpkg-deb -x "$DEBIAN/packages-$debian_arch/$file" "$into"
	done
}

debian_unpack_with_all() {
	# apt's root is empty, so it names all that has to be there.
	# shellcheck disable=SC2046 # names are words
	debian_unpack "$1" $(shift; apt-get -qq -s install "$@" | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
}

# Its libraries are newer than this system's, so it brings its own, and the loader for them.
debian_clang() {
	folder=$DEBIAN/clang-$1
	if [ ! -x "$folder/clang" ]; then
		debian_root amd64 trixie
		debian_unpack_with_all "$folder/root" "clang-$1" >&2
		cat >"$folder/clang" <<-WRAPPER
			#!/bin/sh
			root=$folder/root
			exec \$root/lib64/ld-linux-x86-64.so.2 \\
				--library-path \$root/usr/lib/x86_64-linux-gnu:\$root/usr/lib/llvm-$1/lib \\
				\$root/usr/lib/llvm-$1/bin/clang -resource-dir \$root/usr/lib/llvm-$1/lib/clang/$1 "\$@"
		WRAPPER
		# The symbolic link /lib64 is of the package base-files.
		[ -e "$folder/root/lib64" ] || ln -s usr/lib64 "$folder/root/lib64"
		chmod +x "$folder/clang"
	fi
	echo "$folder/clang"
}

# Unpacks Debian's cloud kernel of a version (5.10, 6.1, 6.12 or newest) for amd64 or arm64 in FOLDER, and prints its release.
# Newer packages have the image and the modules in packages of their own, and the modules in usr/lib.
debian_kernel() {
	case $3 in
	5.10) debian_root "$2" bullseye ;;
	6.1) debian_root "$2" bookworm ;;
	6.12) debian_root "$2" trixie ;;
	newest) debian_root "$2" trixie trixie-backports ;;
	*) echo "no kernel $3; there are 5.10, 6.1, 6.12 and newest" >&2; return 1 ;;
	esac
	version=$(apt-cache madison "linux-image-cloud-$2" | cut -d '|' -f 2 | tr -d ' ' | sort -V | tail -n 1)
	image=$(apt-cache show "linux-image-cloud-$2=$version" | sed -n 's/^Depends:.*\(linux-image-[0-9][^ ,]*\).*/\1/p')
	release=${image#linux-image-}
	if apt-cache show "linux-binary-$release" >/dev/null 2>&1; then
		debian_unpack "$1" "linux-binary-$release" "linux-modules-$release"
	else
		debian_unpack "$1" "$image"
	fi
	echo "$release"
}

# The programs of a guest whose initramfs is ROOT, of a suite as old as the libraries that ours are linked with; busybox for
# the rest.
debian_guest() {
	guest=$1
	debian_root "$2" "$3"
	shift 3
	debian_unpack_with_all "$guest" busybox-static kmod iproute2 iputils-ping "$@"
	rm -rf "$guest"/usr/share/doc "$guest"/usr/share/man "$guest"/usr/share/locale "$guest"/usr/share/perl* \
		"$guest"/usr/lib/*/perl*
	mkdir -p "$guest/bin"
	[ -e "$guest/bin/busybox" ] || cp "$guest/usr/bin/busybox" "$guest/bin/busybox"
	# Debian's link for the loader; where /lib is no link it has the loader itself.
	[ -e "$guest/lib64" ] || [ ! -e "$guest/usr/lib64" ] || ln -s usr/lib64 "$guest/lib64"
	for applet in sh mount mkdir ln cut sed grep cat printf uname poweroff ls rm sleep tee gzip base64 dd; do
		[ -e "$guest/bin/$applet" ] || [ -e "$guest/usr/bin/$applet" ] || ln -s /bin/busybox "$guest/bin/$applet"
	done
}

debian_modules() {
	modules=$(find "$1" -path "*lib/modules/$2" -prune)
	kept=$3/lib/modules/$2
	mkdir -p "$kept/kernel/drivers"
	# The newer packages leave these to another one; depmod does without.
	cp "$modules"/modules.builtin* "$modules"/modules.order "$kept" 2>/dev/null || true
	cp -r "$modules/kernel/net" "$modules/kernel/lib" "$modules/kernel/crypto" "$kept/kernel" 2>/dev/null || true
	cp -r "$modules/kernel/drivers/net" "$kept/kernel/drivers"
	depmod -b "$3" "$2"
}

debian_init() {
	cat <<-'INIT'
		#!/bin/busybox sh
		export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ TERM=dumb RUST_BACKTRACE=0
		mkdir -p /proc /sys /dev /tmp /run /var /etc
		mount -t proc proc /proc
		mount -t sysfs sysfs /sys
		mount -t devtmpfs dev /dev
		mount -t bpf bpf /sys/fs/bpf
		mount -t tmpfs run /run
		ln -s /run /var/run
		mkdir -p /run/netns /dev/net
		ip link set lo up
		for module in veth tun sch_ingress cls_bpf act_bpf; do modprobe $module; done
		echo "kernel $(uname -r) $(uname -m)"
	INIT
}

# A kernel that has what CONFIG names and little else, built from the source of Debian's; where it is.
debian_small_kernel() {
	small=$DEBIAN/small-kernel
	if ! cmp -s "$1" "$small/config"; then
		rm -rf "$small"
		mkdir -p "$small"
		debian_root amd64 bookworm
		debian_unpack "$small/package" linux-source-6.1
		tar -xf "$small"/package/usr/src/linux-source-6.1.tar.xz -C "$small"
		cp "$1" "$small/linux-source-6.1/kernel/configs/guest.config"
		make -C "$small/linux-source-6.1" -s tinyconfig guest.config >&2
		make -C "$small/linux-source-6.1" -s -j "$(nproc)" bzImage >&2
		cp "$small/linux-source-6.1/arch/x86/boot/bzImage" "$small/vmlinuz"
		rm -rf "$small/package" "$small/linux-source-6.1"
		cp "$1" "$small/config"
	fi
	echo "$small/vmlinuz"
}

# Boots the kernel that was unpacked in FOLDER with an initramfs of the files of ROOT, in a guest that QEMU emulates. What it
# says comes on standard output. SMP, MEMORY (MiB), LIMIT (seconds), CPU and NICE are the guest's;
# QEMU has further arguments for the emulator, APPEND for the kernel.
debian_boot() {
	(cd "$2" && find . | cpio -o -H newc --quiet) >"$1/initramfs"
	set -- "$1" "$3"
	case $2 in
	# Without erms and fsrm, for which Linux copies and clears byte by byte: the emulator takes twice the time for a verifier.
	amd64) set -- "$1" qemu-system-x86_64 -machine q35 -cpu "${CPU:-max,-erms,-fsrm}" -append "console=ttyS0 quiet panic=-1 mitigations=off ${APPEND:-}" ;;
	# A processor with the atomic instructions of ARMv8.1.
	arm64) set -- "$1" qemu-system-aarch64 -machine virt -cpu "${CPU:-cortex-a76}" -append "console=ttyAMA0 quiet panic=-1 mitigations=off ${APPEND:-}" ;;
	esac
	kernel=$1
	shift
	# shellcheck disable=SC2086 # QEMU is words or nothing
	timeout "${LIMIT:-7200}" nice -n "${NICE:-10}" "$@" -accel tcg -smp "${SMP:-2}" -m "${MEMORY:-3072}" -nographic -no-reboot -nic none ${QEMU:-} \
		-kernel "$(find "$kernel" -name 'vmlinuz*' | head -n 1)" -initrd "$kernel/initramfs" </dev/null | sed -u 's|\r$||'
}
