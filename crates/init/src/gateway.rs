//! The gateway's configuration.

use std::fmt::Write as _;

use ipnet::IpNet;

use crate::answers::{Answers, Outside, Purpose, WELL_KNOWN};
use crate::file::File;
use crate::survey::Survey;

/// The name of the file.
pub(crate) const NAME: &str = "gateway.toml";
/// What stands for a LAN between a NAT44 and a CLAT (RFC 7335).
const BETWEEN: &str = "192.0.0.1";

pub(crate) fn file(survey: &Survey, answers: &Answers) -> File {
    let mut text = HEADER.to_owned();
    if survey.programs.packaged {
        text += "# Whom the gateway becomes once its start is complete.\nuser = \"tombolo\"\n";
    }
    match answers.purpose {
        Purpose::Nat64 => nat64(&mut text, survey, answers),
        Purpose::Nat44 => nat44(&mut text, survey, answers),
        Purpose::Clat => clat(&mut text, answers),
    }
    File { name: NAME, text, about: "the gateway's configuration", next: &["tombolo check -c {}"] }
}

const HEADER: &str = "\
# The gateway's configuration, by \"tombolo init\": tombolo.toml(5) has every key.
#
#   tombolo check -c FILE     what it says, in words, or what is wrong with it
#   tombolo doctor -c FILE    once it runs: why packets do not pass, and the line that mends it

[gateway]
# State outlives a restart and an upgrade here.
run_directory = \"/var/lib/tombolo/state\"
";

fn nat64(text: &mut String, survey: &Survey, answers: &Answers) {
    let prefix = prefix(answers);
    text.push_str(
        "\n# A stateful NAT64 (RFC 6146): hosts that have IPv6 alone reach IPv4. They need a DNS64 with the same prefix.\n\
         [[service]]\nkind = \"nat64\"\n",
    );
    if prefix == WELL_KNOWN {
        text.push_str(
            "# The well-known prefix stands for global IPv4 addresses alone (RFC 6052 section 3.1): for private ones take a prefix\n\
             # of your own.\n",
        );
    }
    let _ = writeln!(text, "prefix = \"{prefix}\"");
    inside(text, answers);
    outside(text, survey, answers);
    shares(text);
}

fn nat44(text: &mut String, survey: &Survey, answers: &Answers) {
    text.push_str(
        "\n# A stateful NAT44: hosts with private IPv4 addresses share public ones. Networks that they reach with their own\n\
         # addresses: untranslated = [\"172.16.0.0/12\"].\n[[service]]\nkind = \"nat44\"\n",
    );
    inside(text, answers);
    outside(text, survey, answers);
    shares(text);
}

fn clat(text: &mut String, answers: &Answers) {
    text.push_str(
        "\n# The hosts share one IPv4 address, which the CLAT below translates: the customer's side of 464XLAT (RFC 6877).\n\
         [[service]]\nkind = \"nat44\"\n",
    );
    inside(text, answers);
    let _ = writeln!(text, "pool = [{{ addresses = \"{BETWEEN}\" }}]");
    text.push_str("\n[[service]]\nkind = \"clat\"\n");
    let _ = match answers.prefix {
        Some(prefix) => writeln!(text, "# The prefix of the provider's NAT64.\nprefix = \"{prefix}\""),
        None => writeln!(
            text,
            "# The prefix of the provider's NAT64: asked of its routers (RFC 8781) and of the resolver (RFC 7050), and followed.\n\
             prefix = \"auto\""
        ),
    };
    if let Outside::Address(address) = answers.outside {
        text.push_str(
            "# The address that all hosts appear with. No interface may have it; in the network of the uplink this host answers\n\
             # neighbours for it.\n",
        );
        let _ = writeln!(text, "eam = [{{ ipv4 = \"{BETWEEN}\", ipv6 = \"{address}\" }}]");
    }
}

/// The NAT64 prefix.
pub(crate) fn prefix(answers: &Answers) -> String {
    answers.prefix.map_or_else(|| WELL_KNOWN.to_owned(), |prefix| prefix.to_string())
}

fn inside(text: &mut String, answers: &Answers) {
    let networks: Vec<String> = answers.networks.iter().map(|network: &IpNet| format!("\"{network}\"")).collect();
    let _ = writeln!(text, "# The hosts that may use it.\ninside = [{}]", networks.join(", "));
}

fn outside(text: &mut String, survey: &Survey, answers: &Answers) {
    match &answers.outside {
        Outside::Interface(name) => {
            text.push_str(
                "# It shares the address of this interface with the host, and follows it: ports 10000 to 29999 are the gateway's.\n",
            );
            let _ = match survey.uplink_ipv4.as_ref() == Some(name) {
                true => writeln!(text, "masquerade = true    # the interface of the default route, now {name}"),
                false => writeln!(text, "masquerade = \"{name}\""),
            };
        }
        Outside::Pool(pool) => {
            text.push_str("# The public addresses that the hosts share. The network has to route them to this host.\n");
            let _ = writeln!(text, "pool = [{{ addresses = \"{pool}\" }}]");
        }
        // A CLAT's.
        Outside::Address(_) => {}
    }
}

fn shares(text: &mut String) {
    text.push_str("# One host cannot use up the ports.\nbindings_per_subscriber = 2000\n");
}
