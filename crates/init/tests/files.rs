//! The files for hosts of several kinds. What programs say of them is tested in labs (`crates/tombolo/tests/howto.rs`).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::IpAddr;
use std::path::Path;

use tombolo_init::{AnswerError, Answers, File, Interface, Outside, Programs, Purpose, Question, Survey, files};
use tombolo_io::host::{Forwarding, Switch};
use tombolo_io::netfilter::Chain;

/// A router with an uplink and a LAN, no firewall and no package.
fn router() -> Survey {
    let interface = |name: &str, addresses: &[&str]| Interface {
        name: name.to_owned(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    };
    Survey {
        interfaces: vec![
            interface("eth0", &["203.0.113.5/24", "2001:db8:f::5/64"]),
            interface("lan.1", &["2001:db8:1::1/64", "10.0.0.1/24"]),
            interface("wg0", &[]),
        ],
        uplink_ipv4: Some("eth0".to_owned()),
        uplink_ipv6: Some("eth0".to_owned()),
        advertised: vec!["eth0".to_owned()],
        forwarding: Forwarding { ipv4: Switch::Off, ipv6: Switch::Off },
        dropping: Vec::new(),
        firewalld: false,
        resolvers: vec!["198.51.100.2".parse::<IpAddr>().unwrap()],
        programs: Programs { tombolo: "/opt/tombolo".into(), radvd: Some(true), ..Programs::default() },
    }
}

fn made(survey: &Survey, purpose: Purpose, outside: &str, inside: &str) -> Vec<File> {
    let outside = Outside::read(survey, purpose, outside).unwrap();
    let answers = Answers::read(survey, purpose, outside, inside, None).unwrap();
    let made = files(survey, &answers, Path::new("/etc/tombolo"));
    let configuration = text(&made, "gateway.toml");
    tombolo_config::parse("gateway.toml", configuration).unwrap_or_else(|error| panic!("{error}\n{configuration}"));
    made
}

fn text<'f>(files: &'f [File], name: &str) -> &'f str {
    &files.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("no {name}")).text
}

fn names(files: &[File]) -> Vec<&str> {
    files.iter().map(|file| file.name).collect()
}

#[test]
fn what_the_host_suggests_is_a_nat64_that_shares_its_address() {
    let survey = router();
    assert_eq!(Question::Purpose.default(&survey).as_deref(), Some("nat64"));
    let [outside, inside] =
        [Question::Outside(Purpose::Nat64), Question::Inside(Purpose::Nat64)].map(|it| it.default(&survey).unwrap());
    assert_eq!((outside.as_str(), inside.as_str()), ("eth0", "lan.1"));
    let made = made(&survey, Purpose::Nat64, &outside, &inside);
    assert_eq!(
        names(&made),
        [
            "gateway.toml",
            "gateway.sysctl.conf",
            "gateway.service",
            "gateway.nft",
            "gateway.unbound.conf",
            "gateway.radvd.conf"
        ]
    );
    let toml = text(&made, "gateway.toml");
    assert!(toml.contains("masquerade = true") && toml.contains("inside = [\"2001:db8:1::/64\"]"), "{toml}");
    assert!(!toml.contains("user ="), "{toml}");
    assert!(text(&made, "gateway.sysctl.conf").contains("\nnet.ipv6.conf.eth0.accept_ra = 2\n"));
    let unit = text(&made, "gateway.service");
    assert!(unit.contains("\nExecStart=/opt/tombolo run -c /etc/tombolo/gateway.toml\n"), "{unit}");
    assert!(unit.contains("\nExecReload=/opt/tombolo reload ") && unit.contains("/etc/tombolo/gateway.sysctl.conf\n"));
    let unbound = text(&made, "gateway.unbound.conf");
    for line in [
        "interface: 2001:db8:1::1",
        "access-control: 2001:db8:1::/64 allow",
        "dns64-prefix: 64:ff9b::/96",
        "forward-addr: 198.51.100.2",
        "outgoing-port-avoid: 10000-29999",
    ] {
        assert!(unbound.lines().any(|own| own.trim() == line), "{line}: {unbound}");
    }
    let radvd = text(&made, "gateway.radvd.conf");
    for line in [
        "interface lan.1 {",
        "prefix 2001:db8:1::/64 { };",
        "RDNSS 2001:db8:1::1 { };",
        "nat64prefix 64:ff9b::/96 { };",
    ] {
        assert!(radvd.lines().any(|own| own.trim() == line), "{line}: {radvd}");
    }
}

#[test]
fn a_packaged_unit_is_overridden_and_what_a_program_lacks_is_a_comment() {
    let mut survey = router();
    survey.programs.packaged = true;
    survey.programs.radvd = Some(false);
    survey.resolvers.clear();
    let made = made(&survey, Purpose::Nat64, "192.0.2.0/28", "2001:db8:1::/64, lan.1");
    let unit = text(&made, "gateway.service.conf");
    assert!(
        unit.contains("[Service]\nExecStartPre=\n") && unit.contains("\nExecStart=\nExecStart=/opt/tombolo run"),
        "{unit}"
    );
    let toml = text(&made, "gateway.toml");
    assert!(toml.contains("user = \"tombolo\"") && toml.contains("addresses = \"192.0.2.0/28\""), "{toml}");
    assert!(text(&made, "gateway.radvd.conf").contains("# radvd 2.20 and later: nat64prefix"));
    assert!(!text(&made, "gateway.unbound.conf").contains("forward-zone:"));
}

#[test]
fn a_host_with_odhcpd_gets_its_options() {
    let mut survey = router();
    survey.programs.odhcpd = true;
    let made = made(&survey, Purpose::Nat64, "eth0", "lan.1");
    let text = text(&made, "gateway.odhcpd");
    assert!(
        text.contains("\toption ra_pref64 '64:ff9b::/96'") && text.contains("\tlist dns '2001:db8:1::1'"),
        "{text}"
    );
    assert!(!names(&made).contains(&"gateway.radvd.conf"));
}

#[test]
fn a_nat44_needs_no_files_of_dns() {
    let made = made(&router(), Purpose::Nat44, "192.0.2.1", "lan.1,100.64.0.0/10");
    assert_eq!(names(&made), ["gateway.toml", "gateway.sysctl.conf", "gateway.service", "gateway.nft"]);
    assert!(text(&made, "gateway.toml").contains("inside = [\"10.0.0.0/24\", \"100.64.0.0/10\"]"));
    let rules = text(&made, "gateway.nft");
    assert!(
        rules.contains("\t\tiifname \"lan.1\" accept\n") && rules.contains("\t\tip saddr 192.0.2.1/32 accept\n"),
        "{rules}"
    );
}

#[test]
fn behind_ipv6_alone_a_clat_is_suggested() {
    let mut survey = router();
    survey.uplink_ipv4 = None;
    assert_eq!(Question::Purpose.default(&survey).as_deref(), Some("clat"));
    let outside = Question::Outside(Purpose::Clat).default(&survey).unwrap();
    let made = made(&survey, Purpose::Clat, &outside, "lan.1");
    let toml = text(&made, "gateway.toml");
    assert!(toml.contains("prefix = \"auto\"") && toml.contains("ipv6 = \"2001:db8:f::464\""), "{toml}");
}

#[test]
fn chains_that_drop_let_the_device_pass() {
    let mut survey = router();
    let chain = |family, name: &str| Chain { family, table: "filter".into(), name: name.into() };
    survey.dropping = vec![chain("inet", "forward"), chain("ip6", "FORWARD")];
    let made = made(&survey, Purpose::Nat64, "eth0", "lan.1");
    let rules = text(&made, "gateway.nft");
    for line in [
        "insert rule inet filter forward oifname \"tombolo\" accept",
        "insert rule inet filter forward iifname \"tombolo\" accept",
        "# Not for nftables: run  ip6tables-nft -I FORWARD -o tombolo -j ACCEPT",
    ] {
        assert!(rules.lines().any(|own| own == line), "{line}: {rules}");
    }
}

#[test]
fn firewalld_is_told_by_its_own_commands() {
    let survey = Survey { firewalld: true, ..router() };
    let made = made(&survey, Purpose::Nat64, "eth0", "lan.1");
    assert!(text(&made, "gateway.firewalld.sh").contains("--policy=to-gateway --add-egress-zone=trusted"));
    assert!(!names(&made).contains(&"gateway.nft"));
}

#[test]
fn answers_that_cannot_be_are_refused() {
    let survey = router();
    let outside = |purpose, text| Outside::read(&survey, purpose, text).unwrap_err();
    assert!(matches!(outside(Purpose::Nat64, "eth9"), AnswerError::Unknown { .. }));
    assert!(matches!(outside(Purpose::Nat64, "203.0.113.0/29"), AnswerError::Own { .. }));
    assert!(matches!(outside(Purpose::Nat64, "wg0"), AnswerError::Lacks { family: "IPv4", .. }));
    assert!(matches!(outside(Purpose::Clat, "2001:db8:1::1"), AnswerError::Own { .. }));
    assert!(matches!(outside(Purpose::Clat, "192.0.2.1"), AnswerError::Unknown { .. }));
    let inside = |text| {
        let outside = Outside::Interface("eth0".to_owned());
        Answers::read(&survey, Purpose::Nat64, outside, text, None).unwrap_err()
    };
    assert!(matches!(inside("eth0"), AnswerError::Both(_)));
    assert!(matches!(inside("wg0"), AnswerError::Lacks { family: "IPv6", .. }));
    assert!(matches!(inside("10.0.0.0/24"), AnswerError::Family { family: "IPv6", .. }));
    assert!(matches!(inside(" , "), AnswerError::Nothing(_)));
    assert!(matches!("nat46".parse::<Purpose>(), Err(AnswerError::Purpose(_))));
}
