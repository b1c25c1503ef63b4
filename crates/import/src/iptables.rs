//! What `iptables-save` prints: the table `nat`.

use crate::draft::Draft;
use crate::hints::Hints;
use crate::netfilter::{Action, PORTS_ASKED_FOR, Rule, convert, is_of_miniupnpd};
use crate::outcome::{ImportError, Imported};
use crate::words;

pub(crate) fn import(text: &str, hints: &Hints) -> Result<Imported, ImportError> {
    let mut draft = Draft::default();
    let mut rules = Vec::new();
    let mut table = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let place = format!("line {number}");
        match line.chars().next() {
            None | Some('#') => {}
            Some('*') => table = Some(&line[1..]),
            Some(':') => {}
            _ if line == "COMMIT" => table = None,
            Some('-' | '[') if table == Some("nat") => rules.extend(rule(&place, line, &mut draft)),
            Some('-' | '[') => draft.leave(place, line, leave_as_it_is(table)),
            _ => return Err(ImportError::at(place, format!("not a line of iptables-save: {line}"))),
        }
    }
    if rules.is_empty() {
        return Err(ImportError::at("the file", "has no rule of the table nat; give what `iptables-save` prints"));
    }
    convert(&rules, hints, &mut draft);
    Ok(draft.finish("what iptables-save prints"))
}

fn leave_as_it_is(table: Option<&str>) -> String {
    let table = table.unwrap_or("no table");
    format!(
        "the table {table} goes on as it is, beside the gateway; what it says of translated packets has to name the device of the gateway"
    )
}

/// A rule of the table nat, if it is of the two chains that packets of others go through.
fn rule(place: &str, line: &str, draft: &mut Draft) -> Option<Rule> {
    let words = words::of_line(line);
    let mut words = words.iter().map(String::as_str).skip_while(|word| word.starts_with('['));
    let mut rule = Rule { place: place.to_owned(), said: line.to_owned(), ..Rule::default() };
    let (mut chain, mut target) = ("", None);
    let mut is_negated = false;
    while let Some(word) = words.next() {
        let negated = std::mem::replace(&mut is_negated, false);
        let mut value = || words.next().unwrap_or_default();
        match word {
            "!" => is_negated = true,
            "-A" => chain = value(),
            // Their condition follows, or there is none.
            "-m" => match value() {
                "comment" | "tcp" | "udp" | "icmp" | "multiport" => {}
                other => rule.conditions.push(format!("-m {other}")),
            },
            "--comment" => drop(value()),
            "-s" if !negated => rule.sources.extend(words::net(value())),
            "-d" => {
                rule.destinations_negated = negated;
                rule.destinations.extend(words::net(value()));
            }
            "-p" if !negated => rule.protocols.push(value().to_owned()),
            "--dport" | "--dports" if !negated => {
                let ranges = value().split(',').map(|range| words::range(range, ':'));
                match ranges.collect::<Option<Vec<_>>>() {
                    Some(ranges) => rule.destination_ports.extend(ranges),
                    None => rule.conditions.push("ports that are no numbers".into()),
                }
            }
            // The gateway goes by addresses: what leaves by other interfaces is not sent to it.
            "-i" | "-o" if !negated => drop(value()),
            "-j" | "-g" => {
                let name = value();
                target = Some(name);
                rule.action = action(name, &mut words);
            }
            // A match's options belong together.
            other => match rule.conditions.last_mut() {
                Some(last) => last.push_str(&format!(" {other}")),
                None => rule.conditions.push(other.to_owned()),
            },
        }
    }
    if !rule.protocols.iter().all(|name| ["tcp", "udp", "icmp"].contains(&name.as_str())) {
        rule.conditions.push(format!("-p {}", rule.protocols.join(" ")));
    }
    match chain {
        _ if is_of_miniupnpd(chain) || target.is_some_and(is_of_miniupnpd) => {
            draft.leave(place, line, PORTS_ASKED_FOR);
            None
        }
        "PREROUTING" | "POSTROUTING" => Some(rule),
        "OUTPUT" | "INPUT" => {
            draft.leave(place, line, "what the host itself sends is not the gateway's; keep the rule");
            None
        }
        _ => {
            draft.leave(
                place,
                line,
                "chains of one's own are not followed; write its rules into PREROUTING and POSTROUTING, and try again",
            );
            None
        }
    }
}

/// A target with its options, which stand at the end of a rule.
fn action<'a>(target: &str, words: &mut impl Iterator<Item = &'a str>) -> Action {
    let options: Vec<&str> = words.collect();
    let value = |name: &str| {
        let at = options.iter().position(|option| *option == name)?;
        options.get(at + 1).copied()
    };
    match target {
        "SNAT" => to_source(value("--to-source")).unwrap_or_default(),
        "MASQUERADE" => Action::Masquerade(value("--to-ports").and_then(|range| words::range(range, '-'))),
        "DNAT" => to_destination(value("--to-destination")).unwrap_or_default(),
        "ACCEPT" | "RETURN" => Action::Accept,
        _ => Action::Other,
    }
}

/// `ADDRESS[-ADDRESS][:PORT[-PORT]]`
fn to_source(target: Option<&str>) -> Option<Action> {
    let (addresses, ports) = split(target?)?;
    Some(Action::Source(vec![words::addresses(addresses)?], ports))
}

/// The same, with one address.
fn to_destination(target: Option<&str>) -> Option<Action> {
    let (address, ports) = split(target?)?;
    Some(Action::Destination(address.parse().ok()?, ports))
}

fn split(target: &str) -> Option<(&str, Option<(u16, u16)>)> {
    match target.split_once(':') {
        Some((addresses, ports)) => Some((addresses, Some(words::range(ports, '-')?))),
        None => Some((target, None)),
    }
}
