//! From Tayga's configuration file, `tayga.conf`, to a [`Configuration`]: every directive of its
//! releases 0.9.2 to 0.9.6.
//!
//! A line is a directive and its arguments, separated by blanks; `#` begins a comment where a word
//! could begin. What Tayga refuses is refused here, except that a `map` may have an IPv6 prefix
//! with more host bits than the IPv4 prefix, and lie in another one (RFC 7757 sections 3.2, 5). All
//! mistakes of a file are reported at once:
//!
//! ```text
//! tayga.conf:7: prefix 2001:db8::/95: the length is 95 bits; choose one of 32, 40, 48, 56, 64 and 96
//! ```

use std::collections::{HashMap, HashSet};
use std::fmt::{Display, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use tombolo_engine::Plan;
use tombolo_engine::mapping::dynamic_pool::{DynamicPool, Lease};
use tombolo_engine::mapping::eam::{Eam, EamError, EamTable, parse_prefix};
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::stateless::{DenyList, StatelessMap};
use tombolo_engine::mechanism::{TranslateSettings, UdpZeroChecksum};
use tombolo_engine::plan::{AnsweredBy, ErrorPolicy, OwnAddresses, Service, ServiceKind};
use tombolo_engine::row::Rows;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_tables::lpm::Prefix;
use tombolo_tables::tables::Capacity;
use tombolo_wire::Prefix64;

use crate::host::{FastPath, Host, Provision};
use crate::loops::Occupied;
use crate::problem::{ConfigError, Log, Problem};
use crate::{Configuration, Wording, value};

/// Where Tayga looks for its file.
pub const DEFAULT_FILE: &str = "/etc/tayga.conf";
/// Name of the file that remembers dynamic assignments, in `data-dir`.
pub const DYNAMIC_MAP: &str = "dynamic.map";
/// Addresses for the IPv4 side of a CLAT (RFC 7335).
const CLAT_ADDRESSES: (Ipv4Addr, u32) = (Ipv4Addr::new(192, 0, 0, 0), 0xffff_fff8);
/// What Tayga does not combine with the well-known prefix (`is_private_ip4_addr`): less than RFC 6052
/// section 3.1 forbids.
const NOT_IN_WELL_KNOWN: [(Ipv4Addr, u8); 8] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
];
/// Longest line, in bytes.
const LONGEST_LINE: usize = 510;
const MOST_WORKERS: u32 = 64;

/// What a `tayga.conf` says.
#[derive(Debug, Clone)]
pub struct Tayga {
    /// `tun-device`.
    pub device: String,
    /// `ipv4-addr`.
    pub ipv4: Ipv4Addr,
    /// `ipv6-addr`, or `ipv4-addr` in the prefix.
    pub ipv6: Ipv6Addr,
    /// `prefix`.
    pub prefix: Option<Prefix64>,
    /// `wkpf-strict`.
    pub well_known_prefix_strict: bool,
    /// `map`.
    pub maps: Vec<Map>,
    /// `map-file`, relative to `data-dir` unless it is absolute.
    pub map_file: Option<PathBuf>,
    /// `dynamic-pool`.
    pub dynamic_pool: Option<Prefix<u32>>,
    /// `data-dir`.
    pub data_directory: Option<PathBuf>,
    /// `udp-cksum-mode`.
    pub udp_zero: UdpZeroChecksum,
    /// `offlink-mtu`.
    pub lowest_ipv6_mtu: u32,
    /// `workers`; as many as there are processors if it is left out.
    pub workers: Option<usize>,
    /// `tun-up`.
    pub device_up: bool,
    /// `tun-ip`.
    pub addresses: Vec<IpNet>,
    /// `tun-route`.
    pub routes: Vec<IpNet>,
    /// `log`.
    pub log: Vec<LogOption>,
    /// What is legal, but not what it was.
    pub warnings: Vec<Problem>,
    is_ipv6_given: bool,
}

/// One `map` line.
#[derive(Debug, Clone)]
pub struct Map {
    /// The two prefixes.
    pub row: Eam,
    line: Line,
}

/// What a `map-file` says.
#[derive(Debug, Clone, Default)]
pub struct MapFile {
    /// Its rows.
    pub maps: Vec<Map>,
    /// Lines that are bad or double, and so not among them.
    pub skipped: Vec<Problem>,
}

/// What `log` switches on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOption {
    /// Packets that are dropped.
    Drop,
    /// Packets that are refused with an ICMP error.
    Reject,
    /// Packets that are answered with an ICMP error for another reason.
    Icmp,
    /// Packets to the gateway itself.
    Own,
    /// Assignments from the dynamic pool.
    Dynamic,
}

/// A line with a directive.
#[derive(Debug, Clone)]
struct Line {
    file: Arc<str>,
    number: usize,
    directive: &'static str,
    arguments: Vec<String>,
}

impl Line {
    fn problem(&self, text: impl Display) -> Problem {
        let place = format!("{} {}", self.directive, self.arguments.join(" "));
        Problem { file: self.file.to_string(), line: self.number, place, text: text.to_string() }
    }

    fn first(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }
}

/// Directives and how many arguments each takes; `None` for any number.
const DIRECTIVES: [(&str, Option<usize>); 17] = [
    ("tun-device", Some(1)),
    ("ipv4-addr", Some(1)),
    ("ipv6-addr", Some(1)),
    ("prefix", Some(1)),
    ("wkpf-strict", Some(1)),
    ("map", Some(2)),
    ("map-file", Some(1)),
    ("dynamic-pool", Some(1)),
    ("data-dir", Some(1)),
    ("strict-frag-hdr", Some(1)),
    ("udp-cksum-mode", Some(1)),
    ("log", None),
    ("offlink-mtu", Some(1)),
    ("workers", Some(1)),
    ("tun-up", Some(1)),
    ("tun-ip", Some(1)),
    ("tun-route", Some(1)),
];

/// Directives that may stand more than once.
const REPEATED: [&str; 3] = ["map", "tun-ip", "tun-route"];

/// Reads and validates the file at `path`. `state_directory` stands in for `data-dir` where the
/// file has none: systemd gives it in `STATE_DIRECTORY`.
///
/// # Errors
/// [`ConfigError`], with everything that is wrong with the file.
pub fn load(path: &Path, state_directory: Option<&str>) -> Result<Tayga, ConfigError> {
    let name = path.display().to_string();
    parse(&name, &read(path, &name)?, state_directory)
}

fn read(path: &Path, name: &str) -> Result<String, ConfigError> {
    let bytes = std::fs::read(path).map_err(|error| ConfigError::unreadable(name, &error))?;
    // Comments may be in any encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Validates the text of a file that is called `name` in errors.
///
/// # Errors
/// [`ConfigError`], with everything that is wrong with the text.
pub fn parse(name: &str, text: &str, state_directory: Option<&str>) -> Result<Tayga, ConfigError> {
    let mut log = Log::default();
    let lines = lines(name, text, &DIRECTIVES, &mut log);
    let read = Reader { name, lines: &lines }.read(state_directory, &mut log);
    let warnings = log.finish()?;
    match read {
        Some(tayga) => Ok(Tayga { warnings, ..tayga }),
        // Nothing is missing without a mistake that says so.
        None => Err(ConfigError::one(Problem {
            file: name.to_owned(),
            line: 0,
            place: String::new(),
            text: "says too little; see tayga.conf(5)".to_owned(),
        })),
    }
}

/// The lines that say something; mistakes in their form are logged.
fn lines(name: &str, text: &str, known: &[(&'static str, Option<usize>)], log: &mut Log) -> Vec<Line> {
    let file: Arc<str> = name.into();
    let mut found: Vec<Line> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
        let Some(word) = words.next() else { continue };
        let mut line_of = |directive| Line {
            file: Arc::clone(&file),
            number,
            directive,
            arguments: words.by_ref().map(str::to_owned).collect(),
        };
        if line.len() > LONGEST_LINE {
            log.mistake(line_of("").problem(format!("too long; a line has at most {LONGEST_LINE} bytes")));
            continue;
        }
        let Some((directive, count)) = known.iter().find(|(directive, _)| directive.eq_ignore_ascii_case(word)) else {
            let names: Vec<_> = known.iter().map(|(directive, _)| *directive).collect();
            let mut problem = line_of("").problem(format!("unknown directive; known here: {}", names.join(", ")));
            problem.place = word.to_owned();
            log.mistake(problem);
            continue;
        };
        let line = line_of(directive);
        match count {
            Some(count) if line.arguments.len() != *count => {
                let s = if *count == 1 { "" } else { "s" };
                log.mistake(
                    line.problem(format!("takes {count} argument{s}; comments begin with \"#\" and a blank before")),
                );
            }
            _ if !REPEATED.contains(directive) && found.iter().any(|other| other.directive == *directive) => {
                log.mistake(line.problem("stands in the file twice; remove one of the lines"));
            }
            _ => found.push(line),
        }
    }
    found
}

struct Reader<'a> {
    name: &'a str,
    lines: &'a [Line],
}

impl Reader<'_> {
    fn find(&self, directive: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.directive == directive)
    }

    /// The value of a directive, if the file has it and it is good.
    fn value<T>(&self, directive: &str, log: &mut Log, read: impl FnOnce(&Line) -> Result<T, Problem>) -> Option<T> {
        self.find(directive).and_then(|line| log.keep(read(line)))
    }

    fn missing(&self, directive: &str, example: &str) -> Problem {
        let text = format!("missing; add \"{directive} {example}\"");
        Problem { file: self.name.to_owned(), line: 0, place: directive.to_owned(), text }
    }

    fn read(&self, state_directory: Option<&str>, log: &mut Log) -> Option<Tayga> {
        for (directive, example) in [("tun-device", "nat64"), ("ipv4-addr", "192.168.255.1")] {
            if self.find(directive).is_none() {
                log.mistake(self.missing(directive, example));
            }
        }
        if self.find("prefix").is_none() && self.find("map").is_none() && self.find("map-file").is_none() {
            log.mistake(self.missing("prefix", "2001:db8:1:ffff::/96"));
        }
        if let Some(line) = self.find("strict-frag-hdr") {
            let _ = log.keep(switch(line));
            log.warning(line.problem(
                "has no effect: a Fragment header is added only to what is a fragment (RFC 7915, RFC 8021); remove the line",
            ));
        }
        let well_known_prefix_strict = self.value("wkpf-strict", log, switch).unwrap_or(true);
        let prefix = self.value("prefix", log, prefix64);
        let ipv4 = self.value("ipv4-addr", log, ipv4_address);
        let given = self.value("ipv6-addr", log, ipv6_address);
        let ipv6 = self.own_ipv6(ipv4, given, prefix, well_known_prefix_strict, log);
        let maps = read_maps(self.lines, log);
        check_maps(&maps, &occupied(ipv4, ipv6, prefix), log);
        let data_directory = self.value("data-dir", log, directory);
        let from_systemd = || state_directory.and_then(|list| list.split(':').next()).map(PathBuf::from);
        // Everything is read before anything is found missing, so that every mistake is told.
        let device = self.value("tun-device", log, device);
        let map_file = self.value("map-file", log, |line| Ok(PathBuf::from(line.first())));
        let dynamic_pool = self.value("dynamic-pool", log, pool);
        let udp_zero = self.value("udp-cksum-mode", log, udp_zero);
        let lowest_ipv6_mtu = self.value("offlink-mtu", log, |line| number(line, 1280, 65_535));
        let workers = self.value("workers", log, |line| Ok(number(line, 0, MOST_WORKERS)?.max(1) as usize));
        let up = |line: &Line| if line.first() == "up" { Ok(true) } else { switch(line) };
        let device_up = self.value("tun-up", log, up);
        let addresses = self.nets("tun-ip", log);
        let routes = self.nets("tun-route", log).into_iter().map(|net| net.trunc()).collect();
        let log_options = self.log_options(log);
        Some(Tayga {
            device: device?,
            ipv4: ipv4?,
            ipv6: ipv6?,
            prefix,
            well_known_prefix_strict,
            maps,
            map_file,
            dynamic_pool,
            data_directory: data_directory.or_else(from_systemd),
            udp_zero: udp_zero.unwrap_or(UdpZeroChecksum::Drop),
            lowest_ipv6_mtu: lowest_ipv6_mtu.unwrap_or(1280),
            workers,
            device_up: device_up.unwrap_or(false),
            addresses,
            routes,
            log: log_options,
            warnings: Vec::new(),
            is_ipv6_given: given.is_some(),
        })
    }

    /// The gateway's IPv6 address: the one given, else the IPv4 address in the prefix.
    fn own_ipv6(
        &self,
        ipv4: Option<Ipv4Addr>,
        given: Option<Ipv6Addr>,
        prefix: Option<Prefix64>,
        strict: bool,
        log: &mut Log,
    ) -> Option<Ipv6Addr> {
        if let Some(line) = self.find("ipv6-addr") {
            let (address, prefix) = (given?, prefix.filter(|prefix| given.is_some_and(|own| prefix.contains(own))));
            if let Some(prefix) = prefix {
                let text =
                    format!("lies in the prefix {prefix}; leave the line out, or choose an address outside of it");
                log.mistake(line.problem(text));
            }
            return Some(address);
        }
        let Some(prefix) = prefix else {
            if self.find("prefix").is_none() {
                log.mistake(self.missing("ipv6-addr", "2001:db8:1::2"));
            }
            return None;
        };
        let own = ipv4?.to_bits();
        if strict && prefix.is_well_known() && not_in_well_known().any(|net| net.contains(own)) {
            let line = self.find("ipv4-addr")?;
            log.mistake(line.problem(format!(
                "may not be combined with {prefix} (RFC 6052 section 3.1); add \"ipv6-addr\" with an address of your own"
            )));
        }
        Some(prefix.embed(ipv4?))
    }

    fn nets(&self, directive: &str, log: &mut Log) -> Vec<IpNet> {
        let lines = self.lines.iter().filter(|line| line.directive == directive);
        lines.filter_map(|line| log.keep(net(line))).collect()
    }

    fn log_options(&self, log: &mut Log) -> Vec<LogOption> {
        const OPTIONS: [(&str, LogOption); 5] = [
            ("drop", LogOption::Drop),
            ("reject", LogOption::Reject),
            ("icmp", LogOption::Icmp),
            ("self", LogOption::Own),
            ("dyn", LogOption::Dynamic),
        ];
        let Some(line) = self.find("log") else { return Vec::new() };
        let mut options = Vec::new();
        for word in &line.arguments {
            match OPTIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
                Some((_, option)) => options.push(*option),
                None => log.mistake(
                    line.problem(format!("\"{word}\" is unknown; use some of drop, reject, icmp, self and dyn")),
                ),
            }
        }
        options
    }
}

fn switch(line: &Line) -> Result<bool, Problem> {
    let is_one_of = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(line.first()));
    match () {
        () if is_one_of(["yes", "true", "on", "1"]) => Ok(true),
        () if is_one_of(["no", "false", "off", "0"]) => Ok(false),
        () => Err(line.problem("neither yes nor no; write one of them")),
    }
}

fn number(line: &Line, least: u32, most: u32) -> Result<u32, Problem> {
    let number = line.first().parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| line.problem(format!("out of range; use a number from {least} to {most}")))
}

fn device(line: &Line) -> Result<String, Problem> {
    let name = line.first();
    if name.len() > 15 || name.contains(['/', ':', '%']) || name == "." || name == ".." {
        return Err(line.problem("cannot be the name of a device; use 1 to 15 letters, digits and hyphens"));
    }
    Ok(name.to_owned())
}

fn ipv4_address(line: &Line) -> Result<Ipv4Addr, Problem> {
    let address: Ipv4Addr =
        line.first().parse().map_err(|_| line.problem("not an IPv4 address; write it as 192.168.255.1"))?;
    if tombolo_engine::mechanism::screen::is_illegal_source_ipv4(address) {
        return Err(line.problem("a reserved address; choose a unicast address"));
    }
    Ok(address)
}

fn ipv6_address(line: &Line) -> Result<Ipv6Addr, Problem> {
    let address: Ipv6Addr =
        line.first().parse().map_err(|_| line.problem("not an IPv6 address; write it as 2001:db8:1::2"))?;
    if tombolo_engine::mechanism::screen::is_illegal_source_ipv6(address) {
        return Err(line.problem("a reserved address; choose a unicast address"));
    }
    Ok(address)
}

fn prefix64(line: &Line) -> Result<Prefix64, Problem> {
    value::prefix64(line.first()).map_err(|text| line.problem(text))
}

fn pool(line: &Line) -> Result<Prefix<u32>, Problem> {
    let prefix = parse_prefix(line.first()).map_err(|error| line.problem(fix(&error)))?;
    // Only to see whether it can be made.
    DynamicPool::new(prefix, Lease::default()).map_err(|error| line.problem(error))?;
    Ok(prefix)
}

fn directory(line: &Line) -> Result<PathBuf, Problem> {
    let path = PathBuf::from(line.first());
    if path.is_absolute() { Ok(path) } else { Err(line.problem("not an absolute path; begin with \"/\"")) }
}

fn udp_zero(line: &Line) -> Result<UdpZeroChecksum, Problem> {
    let word = line.first().to_ascii_lowercase();
    match word.as_str() {
        word if word.starts_with("dr") => Ok(UdpZeroChecksum::Drop),
        word if word.starts_with("calc") => Ok(UdpZeroChecksum::Compute),
        word if word.starts_with("fwd") || word.starts_with("forw") => Ok(UdpZeroChecksum::Forward),
        _ => Err(line.problem("unknown; use drop, fwd or calc")),
    }
}

fn net(line: &Line) -> Result<IpNet, Problem> {
    let text = line.first();
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    net.ok_or_else(|| line.problem("neither an address nor a prefix; write it as 192.168.255.0/24 or 2001:db8::1"))
}

fn fix(error: &EamError) -> String {
    match error {
        EamError::Prefix(error) => format!("{error}; write the prefix without host bits"),
        error => error.to_string(),
    }
}

fn not_in_well_known() -> impl Iterator<Item = Prefix<u32>> {
    NOT_IN_WELL_KNOWN.into_iter().map(|(address, length)| Prefix::covering(address.to_bits(), length))
}

fn read_maps(lines: &[Line], log: &mut Log) -> Vec<Map> {
    let maps = lines.iter().filter(|line| line.directive == "map");
    let read = |line: &Line| {
        let row = Eam::parse(&line.arguments[0], &line.arguments[1]).map_err(|error| line.problem(fix(&error)))?;
        Ok(Map { row, line: line.clone() })
    };
    maps.filter_map(|line| log.keep(read(line))).collect()
}

/// What no `map` may have: the gateway's two addresses, which it answers, and the prefix, which is
/// routed to it.
fn occupied(ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>, prefix: Option<Prefix64>) -> Occupied {
    let routed = prefix.iter().map(|prefix| Prefix::covering(prefix.address().to_bits(), prefix.length())).collect();
    Occupied { ipv4, ipv6, routed, names: ["ipv4-addr", "ipv6-addr"] }
}

/// The same prefix twice is a mistake of the second line.
fn check_maps(maps: &[Map], occupied: &Occupied, log: &mut Log) {
    let (mut ipv4, mut ipv6) = (HashMap::new(), HashMap::new());
    for map in maps {
        if let Some(text) = occupied.conflict_with(&map.row) {
            log.mistake(map.line.problem(text));
        }
        let number = map.line.number;
        let others = [ipv4.insert(map.row.ipv4(), number), ipv6.insert(map.row.ipv6(), number)];
        if let Some(other) = others.into_iter().flatten().next() {
            log.mistake(map.line.problem(format!("maps what line {other} maps already; remove one of them")));
        }
    }
}

impl Tayga {
    /// The rows of the `map-file`, from its text; `name` is what the file is called. It has `map`
    /// lines only. Programs write it while the gateway runs, so a line that is bad, leads back to the
    /// gateway, or maps what an earlier one maps, takes nothing from the others: it is skipped and
    /// said.
    #[must_use]
    pub fn parse_map_file(&self, name: &str, text: &str) -> MapFile {
        let mut log = Log::default();
        let occupied = occupied(Some(self.ipv4), Some(self.ipv6), self.prefix);
        let lines = lines(name, text, &[("map", Some(2))], &mut log);
        let (mut ipv4, mut ipv6) = (HashMap::new(), HashMap::new());
        let mut maps = Vec::new();
        for map in read_maps(&lines, &mut log) {
            if let Some(text) = occupied.conflict_with(&map.row) {
                log.mistake(map.line.problem(format!("{text}; the line is ignored")));
                continue;
            }
            let others = [ipv4.get(&map.row.ipv4()), ipv6.get(&map.row.ipv6())];
            if let Some(other) = others.into_iter().flatten().next() {
                log.mistake(
                    map.line.problem(format!("maps what line {other} maps already; the line is ignored, remove it")),
                );
                continue;
            }
            ipv4.insert(map.row.ipv4(), map.line.number);
            ipv6.insert(map.row.ipv6(), map.line.number);
            maps.push(map);
        }
        MapFile { maps, skipped: log.into_mistakes() }
    }

    /// Where the `map-file` is, as seen from the working directory.
    #[must_use]
    pub fn map_file_path(&self) -> Option<PathBuf> {
        let file = self.map_file.as_ref()?;
        Some(self.data_directory.as_ref().map_or_else(|| file.clone(), |directory| directory.join(file)))
    }

    /// Where dynamic assignments are remembered.
    #[must_use]
    pub fn dynamic_map_path(&self) -> Option<PathBuf> {
        self.dynamic_pool?;
        Some(self.data_directory.as_ref()?.join(DYNAMIC_MAP))
    }

    /// Reads the `map-file`, if there is one.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load_map_file(&self) -> Result<MapFile, ConfigError> {
        let Some(path) = self.map_file_path() else { return Ok(MapFile::default()) };
        let name = path.display().to_string();
        Ok(self.parse_map_file(&name, &read(&path, &name)?))
    }

    /// The configuration that does what Tayga does. `loaded` is what the `map-file` says, `mtu` the
    /// MTU of the device. What was skipped of it is told among the warnings. A row that the file itself has, or a duplicate, is left out and told
    /// among the warnings.
    ///
    /// # Errors
    /// [`ConfigError`] if the table cannot be made.
    pub fn configuration(
        &self,
        loaded: &MapFile,
        dynamic: Option<Arc<DynamicPool>>,
        mtu: u32,
    ) -> Result<Configuration, ConfigError> {
        let mut warnings = self.warnings.clone();
        warnings.extend_from_slice(&loaded.skipped);
        let mut rows: Vec<Eam> = Vec::new();
        // As in Tayga, the gateway's two addresses stand for each other.
        if self.is_ipv6_given
            && let Ok(own) =
                Eam::new(Prefix::covering(self.ipv4.to_bits(), 32), Prefix::covering(self.ipv6.to_bits(), 128))
        {
            rows.push(own);
        }
        let mut ipv4: HashSet<_> = rows.iter().map(Eam::ipv4).collect();
        let mut ipv6: HashSet<_> = rows.iter().map(Eam::ipv6).collect();
        for map in self.maps.iter().chain(&loaded.maps) {
            if ipv4.contains(&map.row.ipv4()) || ipv6.contains(&map.row.ipv6()) {
                warnings.push(map.line.problem("an address of it is mapped already; the line is ignored, remove it"));
            } else {
                ipv4.insert(map.row.ipv4());
                ipv6.insert(map.row.ipv6());
                rows.push(map.row);
            }
        }
        let explicit = EamTable::new(rows).map_err(|error| {
            let text = error.to_string();
            ConfigError::one(Problem { file: self.device.clone(), line: 0, place: "map".into(), text })
        })?;
        let siit = Siit {
            role: Role::Everything,
            mapping: StatelessMap {
                explicit,
                prefix: self.prefix,
                // Tayga's list is another one.
                well_known_prefix_strict: false,
                denied: self.denied(),
            },
            dynamic,
            embedded_hosts: Vec::new(),
            hairpinning: Hairpinning::Intrinsic,
            error_sources: ErrorSources::default(),
            identify_nodes: false,
            translate: TranslateSettings {
                udp_zero_4to6: self.udp_zero,
                udp_zero_6to4: self.udp_zero,
                lowest_ipv6_mtu: self.lowest_ipv6_mtu,
                ipv6_mtu: mtu.max(1280),
                ipv4_mtu: mtu,
                ..TranslateSettings::default()
            },
        };
        let plan = Plan {
            services: vec![Service::new(0, "tayga", ServiceKind::Siit(siit))],
            retired: Vec::new(),
            cluster: None,
            rows: Rows::default(),
            times: Default::default(),
            capacity: Capacity { subscribers: 1, bindings: 1, sessions: 8, outside_slots: 1, leases: 0 },
            pcp: Default::default(),
            own: OwnAddresses {
                ipv4: Some(self.ipv4),
                ipv6: Some(self.ipv6),
                answered_by: AnsweredBy::Gateway,
                errors: ErrorPolicy::default(),
            },
        };
        Ok(Configuration { host: self.host(), plan, warnings, wording: Wording::default() })
    }

    /// What the prefix may not stand for.
    fn denied(&self) -> DenyList {
        let is_strict = self.well_known_prefix_strict && self.prefix.is_some_and(Prefix64::is_well_known);
        let prefixes: Vec<_> = not_in_well_known().filter(|_| is_strict).collect();
        // Eight prefixes have room.
        DenyList::new(&prefixes).unwrap_or_default()
    }

    /// The pool of `dynamic-pool`, with nothing lent.
    #[must_use]
    pub fn make_dynamic_pool(&self) -> Option<Arc<DynamicPool>> {
        let pool = DynamicPool::new(self.dynamic_pool?, Lease::default());
        pool.ok().map(Arc::new)
    }

    fn host(&self) -> Host {
        Host {
            device: self.device.clone(),
            queues: self.workers,
            // The translation is the one service there is.
            lease_files: self.dynamic_map_path().into_iter().map(|path| (0, path)).collect(),
            // Its operators have their rules of netfilter at the device.
            fastpath: FastPath::Off,
            provision: Provision::Administrator {
                up: self.device_up,
                addresses: self.addresses.clone(),
                routes: self.routes.clone(),
            },
            file_directories: self
                .map_file_path()
                .and_then(|file| file.parent().map(Path::to_owned))
                .into_iter()
                .collect(),
            ..Host::default()
        }
    }

    /// The same as a file for `tombolo run`, with comments on what is not the same.
    #[must_use]
    pub fn to_toml(&self, loaded: &[Map]) -> String {
        let mut text = String::from("[gateway]\n");
        let mut say = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        say(format!("device = \"{}\"", self.device));
        say(format!("ipv4 = \"{}\"\nipv6 = \"{}\"", self.ipv4, self.ipv6));
        say("# No interface has these addresses.\nanswered_by = \"gateway\"".into());
        if let Some(workers) = self.workers {
            say(format!("queues = {workers}"));
        }
        for (directive, nets) in [("tun-ip", &self.addresses), ("tun-route", &self.routes)] {
            for net in nets {
                say(format!("# {directive} {net}: routes to the device are made from what is below"));
            }
        }
        say(String::from("\n[[service]]"));
        say(format!("kind = \"{}\"", if self.is_clat() { "clat" } else { "siit" }));
        if let Some(prefix) = self.prefix {
            say(format!("prefix = \"{prefix}\""));
        }
        if !self.well_known_prefix_strict {
            say("well_known_prefix_strict = false".into());
        }
        if let Some(pool) = self.dynamic_pool {
            say(format!("dynamic_pool = \"{pool}\""));
        }
        if let Some(path) = self.dynamic_map_path() {
            say(format!("dynamic_map = \"{}\"", path.display()));
        }
        let zero = match self.udp_zero {
            UdpZeroChecksum::Drop => "drop",
            UdpZeroChecksum::Compute => "compute",
            UdpZeroChecksum::Forward => "forward",
        };
        say(format!("udp_zero_checksum = \"{zero}\"\nlowest_ipv6_mtu = {}", self.lowest_ipv6_mtu));
        say(format!("udp_zero_checksum_6to4 = \"{zero}\""));
        if let Some(file) = self.map_file_path() {
            say(format!("# From {} too; a reload reads this file only.", file.display()));
        }
        let rows = self.maps.iter().chain(loaded).fold(String::new(), |mut rows, map| {
            let _ = writeln!(rows, "    {{ ipv4 = \"{}\", ipv6 = \"{}\" }},", map.row.ipv4(), map.row.ipv6());
            rows
        });
        if !rows.is_empty() {
            say(format!("eam = [\n{rows}]"));
        }
        text
    }

    /// Whether IPv4 hosts are inside: their addresses are those of a CLAT.
    fn is_clat(&self) -> bool {
        let (network, mask) = CLAT_ADDRESSES;
        let is_clat = |map: &Map| map.row.ipv4().key() & mask == network.to_bits();
        self.prefix.is_some() && !self.maps.is_empty() && self.maps.iter().all(is_clat)
    }
}
