#!/bin/sh
# The part of check-deb.sh that runs inside a root of Debian and a network namespace of its own.
set -eu
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
unit=/usr/lib/systemd/system/tombolo.service
[ -e "$unit" ] || unit=/lib/systemd/system/tombolo.service

fail() {
	echo "check-deb: $*" >&2
	[ ! -e /tmp/log ] || cat /tmp/log >&2
	exit 1
}

# The files of the system; what installing any package writes to does not count.
files() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /run -o -path /var/lib/dpkg -o -path /var/log -o -path /inside.sh \
		-o -path /var/cache -o -name '*.deb' \) -prune -o -print | grep -v -e '^/etc/\(passwd\|group\|shadow\|gshadow\|subuid\|subgid\)-\?$' \
		-e '^/etc/\.pwd.lock$' -e '^/var/lib/systemd/deb-systemd-helper' | sort
	ls -d /var/log/tombolo /run/tombolo 2>/dev/null || true
	getent passwd tombolo || true
}

# What a line of the unit says.
says() {
	sed -n "s/^$1=//p" "$unit"
}

# Runs the gateway as the unit has it: user, capabilities, folders, somebody who is told when it is ready.
start() {
	mkdir -p /var/lib/tombolo /var/log/tombolo /run/tombolo
	capabilities=$(says CapabilityBoundingSet | tr 'A-Z ' 'a-z,' | sed 's/cap_/+/g')
	rm -f /tmp/notify /tmp/told
	perl -MIO::Socket::UNIX -e '
		my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => "/tmp/notify") or die;
		open my $told, ">>", "/tmp/told"; $told->autoflush(1);
		while (defined $socket->recv(my $text, 4096)) { print $told "$text\n"; last if $text =~ /^STOPPING=1/ }' &
	until [ -e /tmp/notify ]; do sleep 0.1; done
	# shellcheck disable=SC2046 # words
	NOTIFY_SOCKET=/tmp/notify WATCHDOG_USEC=2000000 JOURNAL_STREAM=0:0 setpriv --bounding-set "-all,$capabilities" --no-new-privs \
		$(says ExecStart) 2>>/tmp/log &
	gateway=$!
	waited=0
	until grep -q '^READY=1' /tmp/told 2>/dev/null; do
		kill -0 "$gateway" 2>/dev/null || fail "the gateway did not start"
		waited=$((waited + 1))
		[ "$waited" -lt 300 ] || fail "nobody was told that the gateway is ready"
		sleep 0.1
	done
}

stop() {
	kill -TERM "$gateway"
	wait "$gateway" || fail "the gateway ended with an error"
	gateway=
	grep -q '^STOPPING=1' /tmp/told || fail "nobody was told that the gateway ends"
	grep -q '^WATCHDOG=1' /tmp/told || fail "nobody was told that the gateway lives"
}

# The only binding, but for the times that go on.
bound() {
	tombolo show bindings --gateway /var/lib/tombolo/state --csv | sed 1d | cut -d , -f 1-8
}

gateway=
trap '[ -z "$gateway" ] || kill "$gateway" 2>/dev/null || true' EXIT
files >/tmp/before
dpkg -i /first.deb >/tmp/dpkg 2>&1 || { cat /tmp/dpkg >&2; fail "dpkg -i"; }

systemd-analyze verify --man=no "$unit" || fail "the unit is not right"
tombolo check -c /etc/tombolo/tombolo.toml >/dev/null || fail "its configuration is not right"
for page in man1/tombolo.1 man1/tombolo-run.1 man5/tombolo.toml.5; do
	# Containers leave manual pages out: /etc/dpkg/dpkg.cfg.d.
	dpkg -L tombolo | grep -q "/usr/share/man/$page.gz" || fail "no manual page $page"
done

# Somebody inside, and somewhere to go.
ip link set lo up
ip link add outside type veth peer name other
ip link set other up
ip address add 198.51.100.1/24 dev outside
ip address add 2001:db8::1/64 dev outside nodad
ip link set outside up
says ExecStartPre | sed 's/^-+//' | sh || fail "its sysctl.conf is not right"
[ "$(cat /proc/sys/net/ipv6/conf/all/forwarding)" = 1 ] || fail "the host does not forward"

: >/tmp/log
start
grep -q '^<6>.*ready' /tmp/log || fail "the log has no priorities"
grep -q 'user="tombolo"' /tmp/log || fail "the gateway did not become the user tombolo"
perl -MSocket=:all -e '
	socket(my $socket, AF_INET6, SOCK_DGRAM, 0) or die; bind($socket, pack_sockaddr_in6(40000, inet_pton(AF_INET6, "2001:db8::1"))) or die;
	send($socket, "hello", 0, pack_sockaddr_in6(53, inet_pton(AF_INET6, "64:ff9b::808:808"))) or die'
sleep 0.5
first=$(bound)
[ -n "$first" ] || fail "a datagram made no binding"

# What is written for this host is read by those that it is for.
ip address add 2001:db8:1::1/64 dev other nodad
tombolo init -o /tmp/init --service nat64 --outside outside --inside other >/dev/null || fail "init"
tombolo check -c /tmp/init/gateway.toml >/dev/null || fail "init: gateway.toml"
nft -c -f /tmp/init/gateway.nft || fail "init: gateway.nft"
unbound-checkconf /tmp/init/gateway.unbound.conf >/dev/null || fail "init: gateway.unbound.conf"
radvd --configtest -C /tmp/init/gateway.radvd.conf 2>/tmp/log || fail "init: gateway.radvd.conf"
mkdir -p /run/systemd/system/tombolo.service.d
cp /tmp/init/gateway.service.conf /run/systemd/system/tombolo.service.d/gateway.conf
systemd-analyze verify --man=no "$unit" || fail "init: gateway.service.conf"
rm -r /run/systemd/system/tombolo.service.d

# A reload is told as well.
tombolo reload --gateway /var/lib/tombolo/state >/dev/null || fail "reload"
grep -q '^RELOADING=1' /tmp/told || fail "nobody was told of the reload"

# The upgrade, and what systemd would do then.
dpkg -i /second.deb >/tmp/dpkg 2>&1 || { cat /tmp/dpkg >&2; fail "the upgrade"; }
stop
start
[ "$(bound)" = "$first" ] || fail "the upgrade lost a binding: $first, now $(bound)"
stop

dpkg --purge tombolo >/tmp/dpkg 2>&1 || { cat /tmp/dpkg >&2; fail "the purge"; }
files >/tmp/after
diff /tmp/before /tmp/after || fail "the purge left this"
[ -z "$(ip rule show | grep 'proto 84' || true)" ] || fail "the purge left rules"
