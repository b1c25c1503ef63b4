#!/bin/sh
# Breaks rules of the kernel's programs, one at a time, and says how the plan of the differential test fails that was made for the
# rule: a plan that finds nothing there tries nothing. Arguments: names of rules (all of them). Needs root.
#
# crates/fastpath must be as committed, and is so again afterwards. A rule whose plan does not fail is listed as `unseen`.
set -eu

cd "$(dirname "$0")/.."
git diff --quiet HEAD -- crates/fastpath || { echo "crates/fastpath has changes that are not committed" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 1; }
work=$(mktemp -d)
log=$work/log
trap 'git checkout -q -- crates/fastpath; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# The rule, a part of the plan's name, the file, and what sed does to it; a tab between each two.
rules() {
	cat <<'RULES'
come-round	nat64 twice	bpf/nat64.h	s/is_in_any_prefix(packet->source) || //
permission-renewed	permissions renewed	bpf/napt.h	s/WRITE(permission->seen, counts_as)/WRITE(permission->seen, counts_as - 1)/
permission-needed	permissions renewed	bpf/napt.h	s/return PASSED(MISS_PERMISSION);/;/
permission-ended	permissions renewed	bpf/napt.h	s/>= plan.lifetimes\[state\])/>= plan.lifetimes[state] + 1000)/
small-without-df	64:ff9b::/96	bpf/nat64.h	s/size <= LARGEST_WITHOUT_DF ? 0 : IPV4_DF/IPV4_DF/
reset-in-doubt	permissions renewed	bpf/napt.h	s/if (side == SIDE_OUTSIDE && event == EVENT_RST && is_reset(next))/if (0)/
unanswered	few unanswered	bpf/napt.h	s/>= service->unanswered_per_subscriber/>= service->unanswered_per_subscriber + 1000/
beside-the-drawn	64:ff9b::/96	bpf/bind.h	s/if (port >= drawn.first \&\& port <= drawn.last \&\&/if (port \&\&/
held-syn	SYNs held	bpf/napt.h	s/if (state == STATE_OUTSIDE_INIT_HELD || /if (state == 15 || /
forged-source	map-e br	bpf/map_br.h	s/if (is_forged(packet))/if (0)/
ends-of-softwires	addresses of ends	bpf/aftr.h	s/is_service_continuity(packet->destination4) || //
edge-without-napt	without napt	src/service/map_ce.rs	0,/record.set_edge(edge)?;/s//if edge.napt.is_none() { record.kind = crate::record::KIND_B4; let own = Ipv4Addr::from_bits(edge.ce.ipv4().key()); record.inside_ranges = fill(\&mut record.inside, \&AddressRanges::new([own..=own]))?; } else { record.set_edge(edge)?; }/
RULES
}

try() {
	TOMBOLO_CASE=$1 cargo test -p tombolo-fastpath --test differential -- --nocapture programs_decide >"$log" 2>&1
}

unseen=0
rules | cut -f2 | sort -u | while read -r plan; do
	try "$plan" || { cat "$log"; echo "$plan: it fails as it is" >&2; exit 1; }
done
rules >"$work/rules"
while IFS='	' read -r name plan file change; do
	case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
	sed -i "$change" "crates/fastpath/$file"
	git diff --quiet HEAD -- crates/fastpath && { echo "$name: $file has nothing to break" >&2; exit 1; }
	cargo test -p tombolo-fastpath --test differential --no-run >"$log" 2>&1 || { cat "$log"; exit 1; }
	if try "$plan"; then
		why=unseen unseen=$((unseen + 1))
	elif grep -q LoadError "$log"; then
		why="the kernel does not take it: break it in another way" unseen=$((unseen + 1))
	else
		why=$(sed -n '/panicked at/{n;s/frame \[[^]]*\]/frame/;s/translated \[[^]]*\]/translated/;s/\[\[.*\]\]/sent/;p;q}' "$log" | cut -c1-200)
	fi
	printf '%s\t%s\t%s\n' "$name" "$plan" "$why"
	git checkout -q -- crates/fastpath
done <"$work/rules"
[ "$unseen" = 0 ]
