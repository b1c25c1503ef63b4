//! What `nft -j list ruleset` prints: chains of the type `nat` (libnftables-json(5)).

use serde_json::{Map, Value as Json};

use crate::draft::Draft;
use crate::hints::Hints;
use crate::netfilter::{Action, PORTS_ASKED_FOR, Rule, convert, is_of_miniupnpd};
use crate::outcome::{ImportError, Imported};
use crate::words;

pub(crate) fn import(text: &str, hints: &Hints) -> Result<Imported, ImportError> {
    let json: Json = serde_json::from_str(text).map_err(|error| {
        ImportError::at(format!("line {}", error.line()), "not JSON; give what `nft -j list ruleset` prints")
    })?;
    let items: Vec<&Map<String, Json>> =
        json["nftables"].as_array().into_iter().flatten().filter_map(Json::as_object).collect();
    let chains: Vec<&Json> = items.iter().filter_map(|item| item.get("chain")).collect();
    let mut draft = Draft::default();
    let mut rules = Vec::new();
    for (number, rule) in items.iter().enumerate().filter_map(|(number, item)| Some((number, item.get("rule")?))) {
        let is_its = |chain: &&&Json| {
            ["family", "table"].iter().all(|key| chain[*key] == rule[*key]) && chain["name"] == rule["chain"]
        };
        let chain = chains.iter().find(is_its).copied().unwrap_or(&Json::Null);
        let place = format!("nftables[{number}] (table {} chain {})", word(&rule["table"]), word(&rule["chain"]));
        match (chain["type"].as_str(), chain["hook"].as_str()) {
            _ if is_of_miniupnpd(word(&rule["chain"])) => draft.leave(place, &rule["expr"], PORTS_ASKED_FOR),
            (Some("nat"), Some("prerouting" | "postrouting")) => rules.push(read_rule(place, rule)),
            (Some("nat"), _) => {
                draft.leave(place, &rule["expr"], "what the host itself sends is not the gateway's; keep the rule")
            }
            _ => {
                let why = "not of a chain for NAT; it goes on as it is, beside the gateway. What it says of translated packets has to name the device of the gateway";
                draft.leave(place, &rule["expr"], why);
            }
        }
    }
    if rules.is_empty() {
        return Err(ImportError::at(
            "the file",
            "has no rule in a chain of the type nat; give what `nft -j list ruleset` prints",
        ));
    }
    convert(&rules, hints, &mut draft);
    Ok(draft.finish("what nft -j list ruleset prints"))
}

fn word(json: &Json) -> &str {
    json.as_str().unwrap_or_default()
}

fn read_rule(place: String, json: &Json) -> Rule {
    let mut rule = Rule { place, said: json["expr"].to_string(), ..Rule::default() };
    for expression in json["expr"].as_array().into_iter().flatten() {
        let Some((name, body)) = expression.as_object().and_then(|object| object.iter().next()) else { continue };
        match name.as_str() {
            "match" => read_match(body, &mut rule),
            "snat" => rule.action = source(body).unwrap_or_default(),
            "dnat" => rule.action = destination(body).unwrap_or_default(),
            "masquerade" => rule.action = Action::Masquerade(range(&body["port"])),
            "accept" | "return" => rule.action = Action::Accept,
            // They change nothing.
            "counter" | "log" | "comment" => {}
            other => rule.conditions.push(other.to_owned()),
        }
    }
    rule
}

fn read_match(body: &Json, rule: &mut Rule) {
    let (left, right) = (&body["left"], &body["right"]);
    let is_negated = body["op"] == "!=";
    let payload = &left["payload"];
    let what = match (word(&payload["protocol"]), word(&payload["field"])) {
        ("", _) => ("meta", word(&left["meta"]["key"])),
        payload => payload,
    };
    let all = |json: &Json| -> Vec<Json> { json["set"].as_array().cloned().unwrap_or_else(|| vec![json.clone()]) };
    let understood = match (what, is_negated) {
        (("ip", "saddr"), false) => nets(&all(right)).map(|nets| rule.sources.extend(nets)),
        (("ip", "daddr"), negated) => nets(&all(right)).map(|nets| {
            rule.destinations_negated = negated;
            rule.destinations.extend(nets);
        }),
        (("tcp" | "udp" | "th", "dport"), false) => {
            all(right).iter().map(range).collect::<Option<Vec<_>>>().map(|ranges| {
                rule.destination_ports.extend(ranges);
                if what.0 != "th" && !rule.protocols.iter().any(|name| name == what.0) {
                    rule.protocols.push(what.0.to_owned());
                }
            })
        }
        (("meta", "l4proto") | ("ip", "protocol"), false) => {
            let names: Vec<String> = all(right).iter().map(|name| word(name).to_owned()).collect();
            let known = names.iter().all(|name| ["tcp", "udp", "icmp"].contains(&name.as_str()));
            known.then(|| rule.protocols.extend(names))
        }
        // The gateway goes by addresses: what leaves by other interfaces is not sent to it.
        (("meta", "iifname" | "oifname" | "iif" | "oif"), false) => Some(()),
        _ => None,
    };
    if understood.is_none() {
        rule.conditions.push(name_of(left));
    }
}

/// What a match looks at, in words: `ct mark`, `tcp flags`.
fn name_of(left: &Json) -> String {
    let Some((kind, body)) = left.as_object().and_then(|left| left.iter().next()) else { return left.to_string() };
    let parts = [body.get("protocol"), body.get("key"), body.get("field")];
    let parts: Vec<&str> = parts.into_iter().flatten().map(word).collect();
    if kind == "payload" { parts.join(" ") } else { format!("{kind} {}", parts.join(" ")) }
}

fn nets(items: &[Json]) -> Option<Vec<ipnet::Ipv4Net>> {
    let net = |item: &Json| match item["prefix"].as_object() {
        Some(prefix) => words::net(&format!("{}/{}", prefix["addr"].as_str()?, prefix["len"])),
        None => words::net(item.as_str()?),
    };
    items.iter().map(net).collect()
}

/// A number, or `{"range": [first, last]}`.
fn range(json: &Json) -> Option<(u16, u16)> {
    let number = |json: &Json| json.as_u64().and_then(|number| u16::try_from(number).ok());
    match json["range"].as_array().map(Vec::as_slice) {
        Some([first, last]) => Some((number(first)?, number(last)?)),
        _ => number(json).map(|port| (port, port)),
    }
}

fn source(body: &Json) -> Option<Action> {
    let address = &body["addr"];
    let addresses = match (&address["range"], address.get("prefix")) {
        (Json::Array(ends), _) => words::addresses(&format!("{}-{}", word(ends.first()?), word(ends.get(1)?)))?,
        (_, Some(prefix)) => {
            let net = words::net(&format!("{}/{}", word(&prefix["addr"]), prefix["len"]))?;
            (net.network(), net.broadcast())
        }
        _ => words::addresses(address.as_str()?)?,
    };
    Some(Action::Source(vec![addresses], range(&body["port"])))
}

fn destination(body: &Json) -> Option<Action> {
    Some(Action::Destination(body["addr"].as_str()?.parse().ok()?, range(&body["port"])))
}
