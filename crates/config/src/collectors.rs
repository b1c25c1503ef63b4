//! `gateway.binding_log_collectors`: who gets the log of bindings over the network, and by what a collector
//! over TLS is known (RFC 5425).

use std::net::SocketAddr;
use std::path::Path;

use crate::difference::Wording;
use crate::document::{Node, Table};
use crate::host::{Collector, CollectorFormat, Identity, Tls, Transport, Trust};
use crate::problem::{Log, Problem};
use crate::reference::COLLECTOR;

/// Kinds of collectors, as their addresses begin.
const KINDS: [(&str, CollectorFormat, Transport); 5] = [
    ("syslog+udp", CollectorFormat::Syslog, Transport::Udp),
    ("syslog+tcp", CollectorFormat::Syslog, Transport::Tcp),
    ("syslog+tls", CollectorFormat::Syslog, Transport::Tls),
    ("ipfix+udp", CollectorFormat::Ipfix, Transport::Udp),
    ("ipfix+tcp", CollectorFormat::Ipfix, Transport::Tcp),
];
/// Where systems keep the certificates of authorities that they trust: Debian, Fedora, openSUSE, Alpine.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// `["syslog+udp://192.0.2.9:514", { to = "syslog+tls://[2001:db8::9]:6514", name = "logs.example.net" }]`.
pub(crate) fn read(node: &Node<'_>, log: &mut Log) -> Vec<Collector> {
    let items = log.keep(node.items()).unwrap_or_default();
    let found: Vec<Collector> = items.iter().filter_map(|item| read_one(item, log)).collect();
    let is_twice = |(place, collector): (usize, &Collector)| found[..place].iter().any(|other| other.is_at(collector));
    if found.iter().enumerate().any(is_twice) {
        log.mistake(node.problem("names a collector twice; remove one of them"));
    }
    found
}

fn read_one(node: &Node<'_>, log: &mut Log) -> Option<Collector> {
    if !node.is_table() {
        let (format, transport, address) = log.keep(place(node))?;
        let tls = if transport == Transport::Tls { Some(tls(None, node, address, log)?) } else { None };
        return Some(Collector { format, transport, address, tls });
    }
    let table = node.table(&COLLECTOR, log)?;
    let to = table.require("to", log)?;
    let (format, transport, address) = log.keep(place(&to))?;
    if transport == Transport::Tls {
        return Some(Collector { format, transport, address, tls: Some(tls(Some(&table), node, address, log)?) });
    }
    if let Some(other) = ["name", "ca", "fingerprint", "certificate", "key"].iter().find_map(|key| table.find(key)) {
        log.mistake(other.problem("is for TLS; write syslog+tls, or leave it out"));
        return None;
    }
    Some(Collector { format, transport, address, tls: None })
}

fn place(node: &Node<'_>) -> Result<(CollectorFormat, Transport, SocketAddr), Problem> {
    let text = node.text()?;
    let wrong = || {
        let kinds = KINDS.map(|(name, ..)| name).join(", ");
        node.problem(format!(
            "no collector; write its kind ({kinds}) and its address with a port, as \"syslog+udp://192.0.2.9:514\""
        ))
    };
    let (kind, address) = text.split_once("://").ok_or_else(wrong)?;
    let (_, format, transport) = *KINDS.iter().find(|(name, ..)| *name == kind).ok_or_else(wrong)?;
    let address: SocketAddr = address.parse().map_err(|_| wrong())?;
    if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
        return Err(node.problem("nobody can be reached there; use the address of a host, and a port"));
    }
    Ok((format, transport, address))
}

/// By what the collector is known, and what it knows the gateway by. Files are read now, and with each reload.
fn tls(table: Option<&Table<'_>>, node: &Node<'_>, address: SocketAddr, log: &mut Log) -> Option<Tls> {
    let find = |key| table.and_then(|table| table.find(key));
    let name = find("name").map(|node| node.text().map(str::to_owned));
    let name = log.keep(name.unwrap_or_else(|| Ok(address.ip().to_string())))?;
    let trust = match (find("fingerprint"), find("ca")) {
        (Some(_), Some(ca)) => {
            log.mistake(ca.problem("a certificate that is known by its fingerprint needs no authority; remove one"));
            return None;
        }
        (Some(fingerprint), None) => Trust::Fingerprint(log.keep(digest(&fingerprint))?),
        (None, Some(ca)) => Trust::Roots(read_file(&ca, "CERTIFICATE", log)?),
        (None, None) => Trust::Roots(system(node, log)?),
    };
    let identity = match (find("certificate"), find("key")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(Identity {
            certificate: read_file(&certificate, "CERTIFICATE", log)?,
            key: read_file(&key, "PRIVATE KEY", log)?,
        }),
        (Some(one), None) | (None, Some(one)) => {
            log.mistake(one.problem("the gateway needs both, certificate and key, or neither"));
            return None;
        }
    };
    Some(Tls { name, trust, identity })
}

fn system(node: &Node<'_>, log: &mut Log) -> Option<Vec<u8>> {
    let found = SYSTEM.iter().find_map(|path| Some((path, std::fs::read(path).ok()?)));
    let Some((path, bytes)) = found else {
        log.mistake(node.problem("this host has no list of authorities; name ca, or the certificate's fingerprint"));
        return None;
    };
    log.reads(Path::new(path), Some(Wording::digest(&String::from_utf8_lossy(&bytes))));
    Some(bytes)
}

/// A file of PEM (RFC 7468), relative to the configuration file, that has something of this kind.
pub(crate) fn read_file(node: &Node<'_>, kind: &str, log: &mut Log) -> Option<Vec<u8>> {
    let path = log.keep(node.beside())?;
    let bytes = std::fs::read(&path);
    log.reads(&path, bytes.as_ref().ok().map(|bytes| Wording::digest(&String::from_utf8_lossy(bytes))));
    let wrong = match &bytes {
        Err(error) => format!("{} cannot be read: {error}", path.display()),
        Ok(bytes) if !String::from_utf8_lossy(bytes).contains(&format!("{kind}-----")) => {
            format!("{} has no \"-----BEGIN {kind}-----\"; name a file of PEM", path.display())
        }
        Ok(_) => return bytes.ok(),
    };
    log.mistake(node.problem(wrong));
    None
}

/// SHA-256 of a certificate in DER, in hexadecimal digits, with colons between them or without.
fn digest(node: &Node<'_>) -> Result<[u8; 32], Problem> {
    let text: String = node.text()?.chars().filter(|digit| *digit != ':').collect();
    let mut bytes = [0; 32];
    let is_right = text.len() == 64
        && text.is_ascii()
        && bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)).all(|(byte, digits)| {
            let parsed = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
            parsed.is_some_and(|parsed| {
                *byte = parsed;
                true
            })
        });
    let hint = "no SHA-256; write what \"openssl x509 -in FILE -noout -fingerprint -sha256\" says";
    if is_right { Ok(bytes) } else { Err(node.problem(hint)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str =
        "[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\npool = [{ addresses = \"192.0.2.1\" }]\n";

    fn parse(collectors: &str) -> Result<Vec<Collector>, String> {
        let text = format!("[gateway]\nbinding_log = \"/log\"\nbinding_log_collectors = [{collectors}]\n{SERVICE}");
        crate::parse("test.toml", &text)
            .map(|found| found.host.binding_log_collectors)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_collector_over_tls_is_known_by_name_and_authority_or_by_fingerprint() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("ca.pem");
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n").unwrap();
        let of = |more: &str| parse(&format!("{{ to = \"syslog+tls://192.0.2.9:6514\"{more} }}"));
        let found = of(&format!(", name = \"logs.example.net\", ca = \"{}\"", file.display())).unwrap().remove(0);
        let tls = found.tls.as_ref().unwrap();
        assert_eq!(
            (found.to_string().as_str(), tls.name.as_str()),
            ("syslog+tls://192.0.2.9:6514", "logs.example.net")
        );
        let print = ["0a"; 32].join(":");
        let pinned = of(&format!(", fingerprint = \"{print}\"")).unwrap().remove(0).tls.unwrap();
        assert_eq!((pinned.name.as_str(), &pinned.trust), ("192.0.2.9", &Trust::Fingerprint([10; 32])));
        let wrong = [
            (", fingerprint = \"0a\"".to_owned(), "no SHA-256"),
            (", ca = \"nowhere.pem\"".to_owned(), "cannot be read"),
            (format!(", ca = \"{0}\", key = \"{0}\"", file.display()), "both, certificate and key"),
            (format!(", ca = \"{0}\", certificate = \"{0}\", key = \"{0}\"", file.display()), "BEGIN PRIVATE KEY"),
            (format!(", ca = \"{}\", fingerprint = \"{print}\"", file.display()), "needs no authority"),
        ];
        for (more, words) in wrong {
            let said = of(&more).unwrap_err();
            assert!(said.contains(words), "{more}: {said}");
        }
        let said = parse("{ to = \"syslog+tcp://192.0.2.9:601\", name = \"a\" }").unwrap_err();
        assert!(said.contains("is for TLS"), "{said}");
    }

    #[test]
    fn what_is_secret_is_not_printed() {
        let identity = Identity { certificate: b"certificate".to_vec(), key: b"secret".to_vec() };
        assert!(!format!("{identity:?}").contains("115, 101"), "{identity:?}");
    }
}
