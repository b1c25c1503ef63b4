//! What befalls the host of the gateway: links, routes and addresses that go and come back.

use std::time::Duration;

use anyhow::Context as _;
use tombolo_lab::Lab;

/// How long a link is down.
const DOWN: Duration = Duration::from_millis(300);

/// Each side of the gateway goes down and comes back, with its addresses and routes.
pub(super) fn flap_links(lab: &Lab) -> anyhow::Result<()> {
    let gateway = lab.node("gateway")?;
    for interface in ["inside0", "outside0"] {
        // Else IPv6 addresses, and all routes through them, would go for good.
        gateway.set_sysctl(&format!("net.ipv6.conf.{interface}.keep_addr_on_down"), "1")?;
        let before = routes_of(lab, interface)?;
        gateway.set_down(interface)?;
        std::thread::sleep(DOWN);
        gateway.set_up(interface)?;
        restore(lab, &before)?;
    }
    Ok(())
}

/// A tool that owns the routing tables throws away what it did not make.
pub(super) fn flush_routes(lab: &Lab) -> anyhow::Result<()> {
    for family in ["-4", "-6"] {
        let text = ip(lab, &[family, "route", "show", "table", "all"])?;
        for line in text.lines().filter(|line| line.contains(&format!("dev {DEVICE}"))) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if ["local", "multicast", "anycast", "broadcast"].contains(&words[0]) || line.contains("proto kernel") {
                continue;
            }
            // Gone already is as good.
            let _ = ip(lab, &[&[family, "route", "del"], &without_state(&words)[..]].concat());
        }
    }
    Ok(())
}

/// The gateway's network cards get other MAC addresses, and its kernel says so to the neighbours; else
/// they would send to the old ones until they ask by themselves, after half a minute.
pub(super) fn change_macs(lab: &Lab, round: u8) -> anyhow::Result<()> {
    let gateway = lab.node("gateway")?;
    for (interface, number) in [("inside0", 1), ("outside0", 2)] {
        gateway.set_sysctl(&format!("net.ipv4.conf.{interface}.arp_notify"), "1")?;
        gateway.set_sysctl(&format!("net.ipv6.conf.{interface}.ndisc_notify"), "1")?;
        ip(lab, &["link", "set", "dev", interface, "address", &format!("02:00:5e:{round:02x}:00:{number:02x}")])?;
    }
    Ok(())
}

/// The gateway's device.
const DEVICE: &str = "tombolo";

/// Routes that do not come back by themselves when the link does.
fn routes_of(lab: &Lab, interface: &str) -> anyhow::Result<Vec<(&'static str, Vec<String>)>> {
    let mut routes = Vec::new();
    for family in ["-4", "-6"] {
        let text = ip(lab, &[family, "route", "show", "dev", interface])?;
        for line in text.lines().filter(|line| !line.contains("proto kernel")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let mut words: Vec<String> = without_state(&words).into_iter().map(str::to_owned).collect();
            words.extend(["dev".to_owned(), interface.to_owned()]);
            routes.push((family, words));
        }
    }
    Ok(routes)
}

fn restore(lab: &Lab, routes: &[(&'static str, Vec<String>)]) -> anyhow::Result<()> {
    for (family, words) in routes {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        ip(lab, &[&[*family, "route", "replace"], &words[..]].concat())?;
    }
    Ok(())
}

/// The words of a listed route that name it; `ip` lists some that it does not take.
fn without_state<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let mut named = Vec::new();
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "linkdown" | "dead" | "onlink" => {}
            "pref" | "error" | "expires" => drop(words.next()),
            _ => named.push(word),
        }
    }
    named
}

fn ip(lab: &Lab, arguments: &[&str]) -> anyhow::Result<String> {
    let output = lab.node("gateway")?.command("ip").args(arguments.iter().copied()).run()?;
    Ok(output.success().with_context(|| format!("ip {}", arguments.join(" ")))?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ip_lists_and_does_not_take_is_left_out() {
        let listed = "2001:db8:1:f::/64 via 2001:db8:1::2 metric 1024 linkdown pref medium";
        let words: Vec<&str> = listed.split_whitespace().collect();
        assert_eq!(without_state(&words).join(" "), "2001:db8:1:f::/64 via 2001:db8:1::2 metric 1024");
    }
}
