//! What several languages have alike: words, addresses, ranges of ports.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// The words of a line as a shell takes them: double quotes hold a word together.
pub(crate) fn of_line(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for character in line.chars() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            blank if blank.is_whitespace() && !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// An address or a prefix. Host bits are cut off.
pub(crate) fn net(text: &str) -> Option<Ipv4Net> {
    text.parse().map(|net: Ipv4Net| net.trunc()).or_else(|_| text.parse::<Ipv4Addr>().map(Ipv4Net::from)).ok()
}

/// A net as this gateway writes it: an address alone without its length.
pub(crate) fn net_text(net: &Ipv4Net) -> String {
    if net.prefix_len() == 32 { net.addr().to_string() } else { net.to_string() }
}

/// First and last, with `between` in between; one number is both.
pub(crate) fn range(text: &str, between: char) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(between).unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

/// A range of ports as this gateway writes it, which hands out no port 0.
pub(crate) fn range_text((first, last): (u16, u16)) -> String {
    let (first, last) = (first.max(1), last.max(1));
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// First and last address of `A-B` or of `A`.
pub(crate) fn addresses(text: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (Ipv4Addr, Ipv4Addr) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

/// Addresses as this gateway writes them.
pub(crate) fn addresses_text((first, last): (Ipv4Addr, Ipv4Addr)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_a_word_together() {
        assert_eq!(
            of_line(" -A x  --comment \"two words\" \"\" -j SNAT"),
            ["-A", "x", "--comment", "two words", "", "-j", "SNAT"]
        );
        assert_eq!(of_line("  "), Vec::<String>::new());
    }

    #[test]
    fn ranges_are_not_backwards() {
        assert_eq!((range("5-7", '-'), range("9", '-'), range("7:5", ':')), (Some((5, 7)), Some((9, 9)), None));
        assert_eq!(addresses("192.0.2.1-192.0.2.3").map(addresses_text).unwrap(), "192.0.2.1-192.0.2.3");
        assert_eq!(addresses("192.0.2.3-192.0.2.1"), None);
        assert_eq!(net("10.0.0.7/8").map(|net| net_text(&net)).unwrap(), "10.0.0.0/8");
    }
}
