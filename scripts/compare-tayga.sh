#!/bin/sh
# TCP through Tayga and through `tombolo tayga`, in turns, on the same device with the same configuration, in a lab of three
# namespaces: Mbit/s by iperf3, to the server and back, and the median of the ratios. Needs root, tayga and iperf3.
#
#   scripts/compare-tayga.sh [ROUNDS [SECONDS]]      3 rounds of 3 seconds each way if left out
set -eu

cd "$(dirname "$0")/.."
rounds=${1:-3}
seconds=${2:-3}
tombolo=${CARGO_TARGET_DIR:-$PWD/target}/release/tombolo
[ -x "$tombolo" ] || cargo build --release -p tombolo
name=tayga$$
home=$(mktemp -d)
inside() { node=$1; shift; ip netns exec "tombolo-$name-$node" "$@"; }
finish() { "$tombolo" lab down "$name" > /dev/null; rm -rf "$home"; }
trap finish EXIT
trap 'exit 1' INT TERM

"$tombolo" lab up "$name" > /dev/null
cat > "$home/tayga.conf" <<END
tun-device nat64
ipv4-addr 192.168.255.1
prefix 2001:db8:1:ffff::/96
map 192.168.255.2 2001:db8:1::2
data-dir $home
END
server=2001:db8:1:ffff::198.51.100.2
inside server iperf3 -s -D -I "$home/iperf3.pid" > /dev/null

one() { # program: prints Mbit/s to the server and back
    inside gateway $1 -c "$home/tayga.conf" --mktun > /dev/null
    inside gateway ip link set nat64 up
    inside gateway ip route add 2001:db8:1:ffff::/96 dev nat64
    inside gateway ip route add 192.168.255.0/24 dev nat64
    ip netns exec "tombolo-$name-gateway" $1 -c "$home/tayga.conf" -n > /dev/null 2>&1 &
    pid=$!
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        inside client ping -c 1 -W 1 "$server" > /dev/null && break
    done
    for way in "" -R; do
        inside client iperf3 -c "$server" -t "$seconds" $way -J |
            sed -n '/"sum_received"/,/}/s/.*"bits_per_second":[^0-9]*\([0-9.e+]*\).*/\1/p' |
            awk '{ printf "%.0f ", $1 / 1e6 }'
    done
    # `ip netns exec` has become the program.
    kill "$pid"
    wait "$pid" 2> /dev/null || true
    inside gateway $1 -c "$home/tayga.conf" --rmtun > /dev/null
}

echo "round        tayga out   back   tombolo out   back   ratio out   back"
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    if [ $((round % 2)) -eq 1 ]; then
        a=$(one tayga); b=$(one "$tombolo tayga")
    else
        b=$(one "$tombolo tayga"); a=$(one tayga)
    fi
    echo "$round $a $b" | awk '{ printf "%5d %16d %6d %13d %6d %11.1f %6.1f\n", $1, $2, $3, $4, $5, $4 / $2, $5 / $3 }'
done | tee "$home/rounds"
median() { awk -v column="$1" '{ print $column }' "$home/rounds" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
echo "median ratio: $(median 6) out, $(median 7) back"
