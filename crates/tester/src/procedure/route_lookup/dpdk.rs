//! DPDK's own benchmark of its own tables, `dpdk-test-fib` (Debian: package dpdk-dev), given our
//! routes and keys.
//!
//! It looks up in bulk and prints time-stamp-counter cycles a lookup; so its figures belong beside
//! our batched ones. It runs without huge pages and without touching any device.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use tombolo_tables::lpm::Route;

use super::keys::{Drawn, Keys};

/// Name of the program.
pub const PROGRAM: &str = "dpdk-test-fib";

/// More routes want more memory than the program is given.
pub const MOST_ROUTES: usize = 100_000;

/// Writes the files that the program reads.
///
/// # Errors
/// What the file system says.
pub fn write_files<K: Drawn>(folder: &Path, routes: &[Route<K>], keys: Keys<'_, K>, count: usize) -> io::Result<()> {
    let mut text = String::new();
    for route in routes {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{}/{} {}",
            plain(route.prefix.key().address().into()),
            route.prefix.prefix_len(),
            route.next_hop.number()
        );
    }
    fs::write(folder.join("routes"), text)?;
    let mut text = String::new();
    keys.drive(count, |key| {
        let _ = writeln!(text, "{}", plain(key.address().into()));
        0
    });
    fs::write(folder.join("keys"), text)
}

/// The address without "::", which the program's parser does not know everywhere.
fn plain(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|segment| format!("{segment:x}")).join(":"),
    }
}

/// One run: nanoseconds a lookup; nothing if the program is missing or fails.
#[must_use]
pub fn run<K: Drawn>(folder: &Path, routes: usize) -> Option<f64> {
    let mut command = Command::new(PROGRAM);
    command.args(["--no-huge", "--no-pci", "--no-telemetry", "-m", "1024", "--log-level=lib.eal:debug"]);
    command.arg(format!("--file-prefix=tombolo-{}", std::process::id())).arg("--");
    if K::FAMILY == 6 {
        command.arg("-6");
    }
    // Second-level tables: a route over /24 needs one for IPv4, up to three for IPv6.
    let tables = if K::FAMILY == 4 { 65_000 } else { 3 * routes + 1000 };
    command.arg("-f").arg(folder.join("routes")).arg("-t").arg(folder.join("keys"));
    let output = command.arg("-g").arg(tables.to_string()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    parse(&String::from_utf8_lossy(&text))
}

/// Reads cycles a lookup and the counter's rate from the program's output.
fn parse(text: &str) -> Option<f64> {
    let number_after = |label: &str| {
        let rest = text.split(label).nth(1)?.trim_start_matches(['~', ' ']);
        rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse::<f64>().ok()
    };
    let cycles = number_after("AVG FIB lookup")?;
    let kilohertz = number_after("TSC frequency is")?;
    (kilohertz > 0.0).then(|| cycles / kilohertz * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_become_nanoseconds() {
        let text = "EAL: TSC frequency is ~2600000 KHz\nAVG FIB add 3183\nAVG FIB lookup 26.0\nAVG FIB delete 2";
        assert!((parse(text).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(parse("dpdk-test-fib: not found"), None);
    }
}
