# Packages of other Debian suites and processors, for the scripts beside this one, which read it with `.`. Nothing is
# installed and apt's own lists stay as they are: each suite has a root of its own in $DEBIAN, of which packages are
# downloaded and unpacked.
#
#   debian_root ARCH SUITE...     the root that the functions below ask, for a processor (amd64, arm64)
#   debian_unpack FOLDER PACKAGE...            downloads packages and unpacks them
#   debian_unpack_with_all FOLDER PACKAGE...   likewise, with all that they depend on
#   debian_clang VERSION          the path of a clang of Debian 13 (19, 22), to be run as it stands

DEBIAN=${DEBIAN:-$PWD/target/debian}
debian_mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

debian_root() {
	debian_arch=$1
	shift
	root=$DEBIAN/apt-$debian_arch-$(echo "$*" | tr ' ' '-')
	APT_CONFIG=$root/apt.conf
	export APT_CONFIG
	[ ! -e "$root/complete" ] || return 0
	mkdir -p "$root/etc/apt/apt.conf.d" "$root/etc/apt/preferences.d" "$root/var/lib/apt/lists/partial" \
		"$root/var/cache/apt/archives/partial" "$root/var/lib/dpkg"
	: >"$root/var/lib/dpkg/status"
	for suite in "$@"; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian_mirror $suite main"
	done >"$root/etc/apt/sources.list"
	cat >"$APT_CONFIG" <<-CONFIG
		Dir "$root";
		Dir::State::status "$root/var/lib/dpkg/status";
		APT::Architecture "$debian_arch";
		APT::Architectures "$debian_arch";
		APT::Sandbox::User "root";
		APT::Install-Recommends "false";
		Acquire::Languages "none";
	CONFIG
	apt-get -qq update >&2 && touch "$root/complete"
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
