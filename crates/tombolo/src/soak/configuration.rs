//! What the gateway of the soak is configured as.

pub(super) const CONFIGURATION: &str = r#"
[capacity]
subscribers = 20000
bindings = 100000
sessions = 200000
[timeouts]
udp = 30
icmp = 10
tcp_established = 40
tcp_opening = 10
tcp_transitory = 30
port_reuse = 5
[[service]]
kind = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool = [{ addresses = "192.0.2.0/28", ports = "1024-65535" }]
static = [{ inside = "[2001:db8:1::2]:8080", outside = "192.0.2.1:8080", protocol = "tcp" }]
allocation = { mode = "blocks", block_size = 64, blocks = 4 }
limits = { new_subscribers_per_second = 40 }
[[service]]
kind = "nat44"
inside = ["10.0.0.0/24"]
pool = [{ addresses = "192.0.2.16/28", ports = "1024-65535" }]
static = [{ inside = "10.0.0.2:8080", outside = "192.0.2.17:8080", protocol = "tcp" }]
bindings_per_subscriber = 600
unsolicited_syn = "hold"
limits = { sessions = 800, new_bindings_per_second = 200 }
"#;

/// Static bindings of the configuration: what may be left in the end.
pub(super) const STATIC_BINDINGS: u32 = 2;
