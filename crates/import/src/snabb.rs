//! Snabb's lwAFTR: `softwire-config { ... }`, in the text form of its YANG schema (snabb-softwire-v2 and -v3).

use crate::draft::{Draft, Row, Table, Value};
use crate::outcome::{ImportError, Imported};

/// `name value;` or `name value { ... }`.
#[derive(Debug)]
struct Statement {
    line: usize,
    name: String,
    value: String,
    body: Vec<Statement>,
}

impl Statement {
    fn find(&self, name: &str) -> Option<&Self> {
        self.body.iter().find(|statement| statement.name == name)
    }

    fn value_of(&self, name: &str) -> Option<&str> {
        self.find(name).map(|statement| statement.value.as_str())
    }
}

pub(crate) fn import(text: &str) -> Result<Imported, ImportError> {
    let tokens = tokens(text)?;
    let mut tokens = tokens.as_slice();
    let mut statements = read(&mut tokens, 0)?;
    let position = statements.iter().position(|statement| statement.name == "softwire-config");
    let file = position.map(|at| statements.swap_remove(at));
    let file = file.ok_or_else(|| ImportError::at("the file", "has no softwire-config { ... }"))?;
    let mut draft = Draft::default();
    let mut service = Table::service("lwaftr");
    let softwires = file.find("binding-table").map_or(&[][..], |table| &table.body);
    read_softwires(softwires, &mut service, &mut draft);
    for interface in file.body.iter() {
        match interface.name.as_str() {
            "external-interface" | "internal-interface" => read_interface(interface, &mut service, &mut draft),
            "instance" | "instances" => {
                let why =
                    "queues and neighbours are the kernel's: give the interfaces these addresses and routes there";
                draft.leave(format!("line {}", interface.line), "instance", why);
            }
            "binding-table" => {}
            name => leave(interface, name, &mut draft),
        }
    }
    draft.services.push(service);
    Ok(draft.finish("the configuration of Snabb's lwAFTR"))
}

fn read_softwires(softwires: &[Statement], service: &mut Table, draft: &mut Draft) {
    let (mut addresses, mut shared): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut rows: Vec<Row> = Vec::new();
    for softwire in softwires {
        if softwire.name != "softwire" {
            leave(softwire, &softwire.name, draft);
            continue;
        }
        let (ipv4, b4) = (softwire.value_of("ipv4"), softwire.value_of("b4-ipv6"));
        let (Some(ipv4), Some(b4), Some(aftr)) = (ipv4, b4, softwire.value_of("br-address")) else {
            draft.leave(format!("line {}", softwire.line), "softwire", "lacks ipv4, b4-ipv6 or br-address");
            continue;
        };
        let set = softwire.find("port-set").or_else(|| softwire.find("psid-map"));
        let number = |statement: Option<&str>| statement.and_then(|text| text.parse().ok()).map(Value::Number);
        let mut row: Row = vec![("b4", Value::text(b4)), ("ipv4", Value::text(ipv4)), ("aftr", Value::text(aftr))];
        let offset = set.and_then(|set| set.value_of("reserved-ports-bit-count"));
        for (key, value) in [
            ("psid_offset", number(offset)),
            ("psid_length", number(set.and_then(|set| set.value_of("psid-length")))),
            ("psid", number(softwire.value_of("psid"))),
        ] {
            row.extend(value.map(|value| (key, value)));
        }
        rows.push(row);
        addresses.extend((!addresses.contains(&aftr)).then_some(aftr));
        shared.extend((!shared.contains(&ipv4)).then_some(ipv4));
    }
    service.set("addresses", Value::texts(addresses));
    service.set("ipv4", Value::texts(shared));
    service.add_rows("softwires", rows);
}

/// `external-interface` and `internal-interface`, as far as they are not of one instance.
fn read_interface(interface: &Statement, service: &mut Table, draft: &mut Draft) {
    let is_inside = interface.name == "internal-interface";
    for statement in &interface.body {
        let is_on = statement.value == "true";
        match (statement.name.as_str(), is_inside) {
            ("allow-incoming-icmp", false) => service.set("inbound_icmp", Value::Switch(is_on)),
            ("hairpinning", true) => service.set("hairpinning", Value::Switch(is_on)),
            ("generate-icmp-errors" | "generate-icmpv4-errors", false) => {
                service.set("tell_unreachable", Value::Switch(is_on));
            }
            ("generate-icmp-errors" | "generate-icmpv6-errors", true) => {
                service.set("tell_unknown", Value::Switch(is_on));
            }
            ("mtu", true) => service.set_if("ipv6_mtu", statement.value.parse().ok().map(Value::Number)),
            ("mtu", false) => {
                leave_with(statement, "the kernel fragments what its interface does not take; set the MTU there", draft)
            }
            ("allow-incoming-icmp", true) => {
                if !is_on {
                    leave_with(
                        statement,
                        "what comes through a softwire passes; drop ICMP with the kernel's firewall",
                        draft,
                    );
                }
            }
            ("error-rate-limiting", _) => {
                let number = |name| statement.value_of(name).and_then(|text| text.parse::<u64>().ok());
                if let (Some(packets), Some(period)) =
                    (number("packets"), number("period").filter(|period| *period > 0))
                {
                    draft.gateway.set("icmp_errors_per_second", Value::Number((packets / period).clamp(1, 1_000_000)));
                }
            }
            ("reassembly", _) => leave_with(statement, "the number of datagrams that wait is not a setting", draft),
            ("ingress-filter" | "egress-filter", _) => {
                leave_with(statement, "filter with the kernel's firewall", draft)
            }
            ("ip" | "mac" | "next-hop" | "vlan-tag", _) => {
                leave_with(statement, "addresses and routes are the kernel's", draft)
            }
            _ => leave(statement, &statement.name, draft),
        }
    }
}

fn leave(statement: &Statement, what: &str, draft: &mut Draft) {
    draft.leave(format!("line {}", statement.line), what, "not known; see whether a key of this gateway does the same");
}

fn leave_with(statement: &Statement, why: &str, draft: &mut Draft) {
    draft.leave(format!("line {}", statement.line), format!("{} {}", statement.name, statement.value).trim_end(), why);
}

/// Blocks within blocks; the language has five.
const DEEPEST: usize = 16;

/// A word, or one of `{`, `}` and `;`, with its line.
type Token = (usize, String);

fn tokens(text: &str) -> Result<Vec<Token>, ImportError> {
    let mut tokens = Vec::new();
    let mut in_comment = false;
    for (number, line) in (1..).zip(text.lines()) {
        let mut rest = line;
        while !rest.is_empty() {
            if in_comment {
                let Some((_, behind)) = rest.split_once("*/") else { break };
                (in_comment, rest) = (false, behind);
                continue;
            }
            let character = rest.chars().next().unwrap_or_default();
            let length = match character {
                blank if blank.is_whitespace() => {
                    rest = &rest[blank.len_utf8()..];
                    continue;
                }
                _ if rest.starts_with("//") => break,
                _ if rest.starts_with("/*") => {
                    (in_comment, rest) = (true, &rest[2..]);
                    continue;
                }
                '{' | '}' | ';' => 1,
                '"' => match rest[1..].find('"') {
                    Some(end) => {
                        tokens.push((number, rest[1..=end].to_owned()));
                        rest = &rest[end + 2..];
                        continue;
                    }
                    None => {
                        return Err(ImportError::at(
                            format!("line {number}"),
                            "a quoted text does not end on its line",
                        ));
                    }
                },
                _ => rest.find(|end: char| end.is_whitespace() || "{};\"".contains(end)).unwrap_or(rest.len()),
            };
            let (token, behind) = rest.split_at(length);
            tokens.push((number, token.to_owned()));
            rest = behind;
        }
    }
    Ok(tokens)
}

/// Statements up to the end of the block, or of the file. A value may be missing, and so may the `;` behind one that the
/// examples of the documentation forget in front of a block.
fn read(tokens: &mut &[Token], depth: usize) -> Result<Vec<Statement>, ImportError> {
    let mut statements = Vec::new();
    let in_block = depth > 0;
    while let Some(((line, token), rest)) = tokens.split_first() {
        *tokens = rest;
        match token.as_str() {
            "}" if in_block => return Ok(statements),
            "}" => return Err(ImportError::at(format!("line {line}"), "a } without its {")),
            ";" => {}
            "{" => return Err(ImportError::at(format!("line {line}"), "a { without a name in front of it")),
            _ if depth > DEEPEST => {
                return Err(ImportError::at(format!("line {line}"), "blocks within too many others"));
            }
            name => statements.push(statement(*line, name, tokens, depth)?),
        }
    }
    if in_block { Err(ImportError::at("the end of the file", "a { has no }")) } else { Ok(statements) }
}

fn statement(line: usize, name: &str, tokens: &mut &[Token], depth: usize) -> Result<Statement, ImportError> {
    let mut values: Vec<&str> = Vec::new();
    let mut body = Vec::new();
    while let Some(((next_line, token), rest)) = tokens.split_first() {
        match token.as_str() {
            ";" => {
                *tokens = rest;
                break;
            }
            "{" => {
                *tokens = rest;
                body = read(tokens, depth + 1)?;
                break;
            }
            "}" => break,
            // The next statement, on a line of its own.
            _ if *next_line != line && !values.is_empty() => break,
            value => {
                values.push(value);
                *tokens = rest;
            }
        }
    }
    Ok(Statement { line, name: name.to_owned(), value: values.join(" "), body })
}
