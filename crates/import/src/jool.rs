//! Jool's configuration in JSON: a NAT64 (`pool4`, `bib`) or a SIIT (`eamt`, `denylist4`).

use serde_json::{Map, Value as Json};

use crate::draft::{Draft, Row, Table, Value};
use crate::hints::Hints;
use crate::outcome::{ImportError, Imported};
use crate::words;

/// Jool's range of ports where an entry of `pool4` has none (`DEFAULT_POOL4_MIN_PORT`, 61001 to 65535).
const DEFAULT_PORTS: (u16, u16) = (61_001, 65_535);

/// Which of the two programs the file is for; the file itself does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nat64,
    Siit,
}

pub(crate) fn import(text: &str, kind: Kind, hints: &Hints) -> Result<Imported, ImportError> {
    let json: Json = serde_json::from_str(text)
        .map_err(|error| ImportError::at(format!("line {}", error.line()), format!("not JSON: {error}")))?;
    let file = json.as_object().ok_or_else(|| ImportError::at("line 1", "not an object, as Jool's files are"))?;
    let mut draft = Draft::default();
    let is_nat64 = kind == Kind::Nat64;
    let mut service = Table::service(if is_nat64 { "nat64" } else { "siit" });
    if let Some(name) = file.get("instance").and_then(Json::as_str).filter(|name| is_name(name)) {
        service.name(name);
    }
    for (key, value) in file {
        match (key.as_str(), is_nat64) {
            ("instance" | "comment", _) => {}
            ("framework", _) => leave_framework(value, &mut draft),
            ("global", _) => Globals { service: &mut service, draft: &mut draft, is_nat64 }.read(value),
            ("pool4", true) => read_pool(value, &mut service, &mut draft),
            ("bib", true) => read_bib(value, &mut service, &mut draft),
            ("eamt", false) => read_eamt(value, &mut service, &mut draft),
            ("denylist4" | "blacklist4", false) => {
                let denied = items(value).filter_map(Json::as_str);
                service.set("deny", Value::texts(denied));
            }
            _ => draft.leave(key, value, "not known; see whether a key of this gateway does the same"),
        }
    }
    if is_nat64 && !hints.inside_ipv6().is_empty() {
        service.set("inside", Value::texts(hints.inside_ipv6()));
    }
    if is_nat64 && !file.contains_key("pool4") {
        share_own_address(hints, &mut service, &mut draft);
    }
    draft.services.push(service);
    Ok(draft.finish("Jool's file"))
}

/// Without `pool4` Jool takes ports of the host's own addresses.
fn share_own_address(hints: &Hints, service: &mut Table, draft: &mut Draft) {
    match hints.outside {
        Some(address) => {
            let ports = Value::Text(words::range_text(DEFAULT_PORTS));
            service.add_rows("pool", [vec![("addresses", Value::text(address)), ("ports", ports)]]);
        }
        None => {
            let why = "is missing, so that Jool takes ports of the host's own addresses; say with --outside ADDRESS which address there is, one that the host does not use itself";
            draft.leave("the file", "pool4", why);
        }
    }
}

/// What this gateway takes as a name.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= 32 && name != "default" && name.bytes().all(allowed)
}

fn items(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

fn objects<'a>(value: &'a Json, key: &'static str) -> impl Iterator<Item = (String, &'a Map<String, Json>)> {
    let place = move |number| format!("{key}[{number}]");
    items(value).enumerate().filter_map(move |(number, item)| Some((place(number), item.as_object()?)))
}

fn word<'a>(object: &'a Map<String, Json>, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Json::as_str)
}

fn leave_framework(value: &Json, draft: &mut Draft) {
    if value == "iptables" {
        let why = "rules send packets to Jool; here the prefix and the pool are routed to the gateway's device. Remove the rules";
        draft.leave("framework", value, why);
    }
}

/// `pool4`: entries of the same addresses and ports are one for several protocols.
fn read_pool(value: &Json, service: &mut Table, draft: &mut Draft) {
    let mut entries: Vec<(String, String, Vec<String>)> = Vec::new();
    for (place, entry) in objects(value, "pool4") {
        let said = || Json::Object(entry.clone());
        if entry.get("mark").is_some_and(|mark| mark != 0) {
            draft.leave(
                place,
                said(),
                "pools go by the prefixes of hosts here, and not by marks; name them: { addresses = ..., for = [\"2001:db8:1::/48\"] }",
            );
            continue;
        }
        let protocol = word(entry, "protocol").map(str::to_ascii_lowercase);
        let ports = entry.get("port range").map_or(Some(DEFAULT_PORTS), |range| match range {
            Json::Number(number) => number.to_string().parse().ok().map(|port: u16| (port, port)),
            range => words::range(range.as_str()?, '-'),
        });
        let (Some(protocol), Some(net), Some(ports)) = (protocol, word(entry, "prefix").and_then(words::net), ports)
        else {
            draft.leave(place, said(), "protocol, prefix or port range cannot be read");
            continue;
        };
        let (net, ports) = (words::net_text(&net), words::range_text(ports));
        match entries.iter_mut().find(|(known, range, _)| (known, range) == (&net, &ports)) {
            Some((_, _, protocols)) if protocols.contains(&protocol) => {}
            Some((_, _, protocols)) => protocols.push(protocol),
            None => entries.push((net, ports, vec![protocol])),
        }
    }
    service.add_rows(
        "pool",
        entries.into_iter().map(|(net, ports, protocols)| {
            let mut row: Row = vec![("addresses", Value::Text(net)), ("ports", Value::Text(ports))];
            if protocols.len() < 3 {
                row.push(("protocols", Value::Texts(protocols)));
            }
            row
        }),
    );
}

/// `bib`: endpoints are written `ADDRESS#PORT`.
fn read_bib(value: &Json, service: &mut Table, draft: &mut Draft) {
    for (place, entry) in objects(value, "bib") {
        let row = || {
            let (inside, inside_port) = word(entry, "ipv6 address")?.split_once('#')?;
            let (outside, outside_port) = word(entry, "ipv4 address")?.split_once('#')?;
            let protocol = word(entry, "protocol").unwrap_or("TCP").to_ascii_lowercase();
            Some(vec![
                ("inside", Value::Text(format!("[{inside}]:{inside_port}"))),
                ("outside", Value::Text(format!("{outside}:{outside_port}"))),
                ("protocol", Value::Text(protocol)),
            ])
        };
        match row() {
            Some(row) => service.add_rows("static", [row]),
            None => draft.leave(
                place,
                Json::Object(entry.clone()),
                "an address cannot be read: they are written ADDRESS#PORT",
            ),
        }
    }
}

fn read_eamt(value: &Json, service: &mut Table, draft: &mut Draft) {
    for (place, entry) in objects(value, "eamt") {
        match (word(entry, "ipv4 prefix"), word(entry, "ipv6 prefix")) {
            (Some(ipv4), Some(ipv6)) => {
                service.add_rows("eam", [vec![("ipv4", Value::text(ipv4)), ("ipv6", Value::text(ipv6))]]);
            }
            _ => draft.leave(place, Json::Object(entry.clone()), "a prefix is missing"),
        }
    }
}

/// The table `global`.
struct Globals<'a> {
    service: &'a mut Table,
    draft: &'a mut Draft,
    is_nat64: bool,
}

impl Globals<'_> {
    fn read(mut self, globals: &Json) {
        for (key, value) in globals.as_object().into_iter().flatten() {
            self.read_one(key, value, globals);
        }
    }

    fn read_one(&mut self, key: &str, value: &Json, all: &Json) {
        let is_on = value.as_bool() == Some(true);
        match key {
            // What is so in any case, and what has no consequence.
            "comment" | "handle-rst-during-fin-rcv" | "trace" | "debug" | "logging-debug" | "tos" => {}
            "manually-enabled" | "enabled" if is_on => {}
            "manually-enabled" | "enabled" => {
                self.leave(key, value, "a gateway that is not to translate is not started")
            }
            "pool6" => self.service.set_if("prefix", value.as_str().map(Value::text)),
            "zeroize-traffic-class" if is_on => self.service.set("traffic_class_4to6", Value::Number(0)),
            "override-tos" if is_on => {
                let tos = all.get("tos").and_then(Json::as_u64).unwrap_or(0);
                self.service.set("traffic_class_6to4", Value::Number(tos));
            }
            "zeroize-traffic-class" | "override-tos" => {}
            "mtu-plateaus" => {
                self.service.set("mtu_plateaus", Value::Numbers(items(value).filter_map(Json::as_u64).collect()));
            }
            "lowest-ipv6-mtu" => self.service.set_if("lowest_ipv6_mtu", value.as_u64().map(Value::Number)),
            "amend-udp-checksum-zero" => {
                self.service.set("udp_zero_checksum", Value::text(if is_on { "compute" } else { "drop" }));
            }
            "logging-bib" | "logging-session" if is_on => {
                self.draft.gateway.set("binding_log", Value::text("/var/log/tombolo/bindings.jsonl"));
                if key == "logging-session" {
                    self.draft.gateway.set("binding_log_detail", Value::text("sessions"));
                }
            }
            "logging-bib" | "logging-session" => {}
            _ if self.is_nat64 => self.read_nat64(key, value, is_on),
            _ => self.read_siit(key, value, is_on),
        }
    }

    fn read_nat64(&mut self, key: &str, value: &Json, is_on: bool) {
        match key {
            "address-dependent-filtering" => {
                let filtering = if is_on { "address-dependent" } else { "endpoint-independent" };
                self.service.set("filtering", Value::text(filtering));
            }
            "drop-externally-initiated-tcp" => {
                self.service.set("inbound_tcp", Value::text(if is_on { "denied" } else { "filtered" }));
            }
            "maximum-simultaneous-opens" => {
                let holds = value.as_u64().unwrap_or(0) > 0;
                self.service.set("unsolicited_syn", Value::text(if holds { "hold" } else { "drop" }));
            }
            "source-icmpv6-errors-better" if is_on => {}
            "tcp-est-timeout" => self.time("tcp_established", key, value, 7200),
            "tcp-trans-timeout" => {
                self.time("tcp_opening", key, value, 240);
                self.time("tcp_transitory", key, value, 240);
            }
            "udp-timeout" => self.time("udp", key, value, 120),
            "icmp-timeout" => self.time("icmp", key, value, 60),
            "drop-icmpv6-info" if !is_on => {}
            "f-args" => self.leave(
                key,
                value,
                "how ports are chosen depends on no part of the address here; see port_parity and allocation",
            ),
            "ss-enabled" if !is_on => {}
            key if key.starts_with("ss-") => {
                self.leave(
                    key,
                    value,
                    "sessions are not copied to another machine; a restart of this one keeps them (run_directory)",
                );
            }
            _ => self.leave_unknown(key, value),
        }
    }

    fn read_siit(&mut self, key: &str, value: &Json, is_on: bool) {
        match key {
            "eam-hairpin-mode" => {
                let mode = match value {
                    Json::Number(number) => ["off", "simple", "intrinsic"]
                        .get(usize::try_from(number.as_u64().unwrap_or(9)).unwrap_or(9))
                        .copied(),
                    mode => mode.as_str(),
                };
                self.service.set_if("hairpinning", mode.map(Value::text));
            }
            "rfc6791v4-prefix" => {
                self.service.set_if("icmp_sources", value.as_str().map(|prefix| Value::texts([prefix])));
            }
            "rfc6791v6-prefix" if value.is_null() => {}
            "randomize-rfc6791-addresses" if is_on => {}
            _ => self.leave_unknown(key, value),
        }
    }

    /// A timeout of at least `least` seconds, which is what the RFCs ask for.
    fn time(&mut self, timeout: &'static str, key: &str, value: &Json, least: u64) {
        match seconds(value) {
            Some(seconds) if seconds >= least => self.draft.timeouts.set(timeout, Value::Number(seconds)),
            Some(_) => self.leave(key, value, &format!("less than the {least} s of the RFCs; the default holds")),
            None => self.leave(key, value, "neither seconds nor HH:MM:SS"),
        }
    }

    fn leave(&mut self, key: &str, value: &Json, why: &str) {
        self.draft.leave(format!("global.{key}"), value, why);
    }

    fn leave_unknown(&mut self, key: &str, value: &Json) {
        self.leave(key, value, "not known; see whether a key of this gateway does the same");
    }
}

/// Seconds, or `HH:MM:SS` with or without a fraction, which is rounded up.
fn seconds(value: &Json) -> Option<u64> {
    let Some(text) = value.as_str() else { return value.as_u64() };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut seconds: u64 = 0;
    for part in whole.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    Some(seconds + u64::from(fraction.bytes().any(|digit| digit != b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_seconds_or_hours_minutes_and_seconds() {
        assert_eq!(seconds(&json!("2:00:00")), Some(7200));
        assert_eq!(seconds(&json!("0:04:00.500")), Some(241));
        assert_eq!(seconds(&json!(300)), Some(300));
        assert_eq!(seconds(&json!("300")), Some(300));
        assert_eq!(seconds(&json!("soon")), None);
    }
}
