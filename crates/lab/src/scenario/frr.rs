//! FRR in the place of BIRD: other people's routers speak the same BGP and BFD.

use super::start::Daemon;
use crate::{Lab, LabError};

/// Where Debian's package has the daemons.
const PROGRAMS: &str = "/usr/lib/frr";
/// How configurations of FRR begin; those of BIRD do not.
const BEGINS: &str = "frr version";

/// Where the part for BGP begins.
const BGP: &str = "router bgp";

/// FRR as the router of the Internet: it tells these neighbours the default route, and spreads packets over those that announce the
/// same with the same MED.
pub(super) fn outside_router(neighbours: impl Iterator<Item = String>) -> String {
    let neighbours: String = neighbours.map(|address| format!(" neighbor {address} peer-group nodes\n")).collect();
    format!(
        "{BEGINS} 8.4
bfd
 profile nodes
  detect-multiplier 3
  receive-interval 100
  transmit-interval 100
 exit
exit
{BGP} 65002
 bgp router-id 10.255.0.102
 no bgp ebgp-requires-policy
 timers bgp 3 9
 neighbor nodes peer-group
 neighbor nodes remote-as 64512
 neighbor nodes bfd profile nodes
 neighbor nodes timers connect 2
 neighbor nodes advertisement-interval 0
{neighbours} address-family ipv4 unicast
  neighbor nodes default-originate
  maximum-paths 8
 exit-address-family
exit
"
    )
}

impl Lab {
    /// FRR's three daemons in one group: zebra, which has the kernel's routes, BFD, and BGP. None if the configuration is not FRR's.
    pub(super) fn frr(&self, node: &str, text: &str) -> Result<Option<Daemon>, LabError> {
        if !text.starts_with(BEGINS) {
            return Ok(None);
        }
        // Each daemon reads what is its own.
        let (bfd, bgp) = text.split_at(text.find(BGP).unwrap_or(text.len()));
        for (name, text) in [("zebra", ""), ("bfdd", bfd), ("bgpd", bgp)] {
            self.file(&format!("{node}.{name}.conf"), text)?;
        }
        let files = self.directory()?.join(node).display().to_string();
        let directory = format!("{files}.frr");
        let common = |name: &str| {
            format!(
                "{PROGRAMS}/{name} -f {files}.{name}.conf -i {directory}/{name}.pid -z {directory}/zserv -u frr -g frr -P 0 \
                 --vty_socket {directory} --log stdout --log-level informational"
            )
        };
        let script = format!(
            "mkdir -p {directory}
            chown frr:frr {directory}
            {} &
            until [ -e {directory}/zserv ]; do sleep 0.05; done
            {} --bfdctl {directory}/bfdd.sock &
            exec {}",
            common("zebra"),
            common("bfdd"),
            common("bgpd")
        );
        let arguments = vec!["-c".to_owned(), script];
        Ok(Some(Daemon { program: "sh".to_owned(), arguments, says: "bgp@" }))
    }
}
