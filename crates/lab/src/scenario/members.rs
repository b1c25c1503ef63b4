//! Members of etcd in a lab, and the certificates that nodes and members show each other.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::description::Scenario;
use super::network::numbered;
use super::start::{DIRECTORY, Daemon, READY};
use crate::{Lab, LabError, Process};

/// How long it may take to make the certificates.
const LIMIT: Duration = Duration::from_secs(30);

/// The address of a member, which has a number in its name.
pub(super) fn address_of(member: &str) -> Ipv6Addr {
    let number = member.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0_u16);
    numbered(0xc, 0xe0 + number)
}

/// Where clients find a member.
pub(super) fn endpoint_of(member: &str) -> String {
    format!("https://[{}]:2379", address_of(member))
}

impl Scenario {
    /// Where its members of etcd are.
    #[must_use]
    pub fn member_addresses(&self) -> Vec<Ipv6Addr> {
        self.members.iter().map(|member| address_of(member)).collect()
    }

    /// Where clients find them.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| endpoint_of(member)).collect()
    }
}

impl Lab {
    /// An authority, and what it has certified: nodes by their names, members of etcd by their addresses too. In the lab's directory:
    /// `ca.pem`, and `NAME.pem` and `NAME.key` of each.
    ///
    /// # Errors
    /// [`LabError`] if openssl is not there, or fails.
    pub fn make_certificates(&self, nodes: &[&str], members: &[&str]) -> Result<(), LabError> {
        let of_nodes = nodes.iter().map(|node| (*node, format!("DNS:{node}")));
        let of_members = members.iter().map(|member| (*member, format!("DNS:{member},IP:{}", address_of(member))));
        let mut script = "set -e
            openssl ecparam -name prime256v1 -genkey -noout -out ca.key
            openssl req -x509 -new -key ca.key -days 3650 -subj /CN=cluster -addext basicConstraints=critical,CA:TRUE -out ca.pem\n"
            .to_owned();
        for (name, alternatives) in of_nodes.chain(of_members) {
            script.push_str(&format!(
                "openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out {name}.key
                openssl req -new -key {name}.key -subj /CN={name} -out {name}.csr
                echo subjectAltName={alternatives} > {name}.ext
                openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile {name}.ext -out {name}.pem\n"
            ));
        }
        let directory = self.directory()?.display().to_string();
        let any = nodes.iter().chain(members).next().copied().unwrap_or_default();
        let command = self.node(any)?.command("sh").args(["-c".to_owned(), format!("cd {directory}\n{script}")]);
        command.limit(LIMIT).run()?.success().map(drop)
    }

    /// Starts members of etcd that know of each other, and waits until they serve. Each ends with the process or this one.
    ///
    /// # Errors
    /// [`LabError`] if they do not become ready; their own words are in it.
    pub fn start_members(&self, members: &[&'static str]) -> Result<Vec<(&'static str, Process)>, LabError> {
        self.start_some_members(members, members, "new")
    }

    /// Starts some of the members again that have ended, with what they had. They serve when most are there.
    ///
    /// # Errors
    /// As [`start_members`](Self::start_members).
    pub fn restart_members(
        &self,
        some: &[&'static str],
        members: &[&'static str],
    ) -> Result<Vec<(&'static str, Process)>, LabError> {
        self.start_some_members(some, members, "existing")
    }

    fn start_some_members(
        &self,
        some: &[&'static str],
        members: &[&'static str],
        state: &str,
    ) -> Result<Vec<(&'static str, Process)>, LabError> {
        let start =
            |member: &&'static str| Ok((*member, self.spawn_daemon(member, self.member(member, members, state)?)?));
        let mut started = some.iter().map(start).collect::<Result<Vec<_>, LabError>>()?;
        for (_, process) in &mut started {
            process.wait_for_text(SERVES, READY)?;
        }
        Ok(started)
    }

    /// What a member is started as.
    pub(super) fn member(&self, member: &str, members: &[&'static str], state: &str) -> Result<Daemon, LabError> {
        let directory = self.directory()?;
        let file = |name: String| directory.join(name).display().to_string();
        let peer = |member: &str| format!("https://[{}]:2380", address_of(member));
        let all: Vec<String> = members.iter().map(|member| format!("{member}={}", peer(member))).collect();
        let [ca, certificate, key] = ["ca.pem".to_owned(), format!("{member}.pem"), format!("{member}.key")].map(file);
        let settings = [
            ("name", member.to_owned()),
            ("data-dir", file(format!("{member}.data"))),
            ("listen-client-urls", endpoint_of(member)),
            ("advertise-client-urls", endpoint_of(member)),
            ("listen-peer-urls", peer(member)),
            ("initial-advertise-peer-urls", peer(member)),
            ("initial-cluster", all.join(",")),
            ("initial-cluster-state", state.to_owned()),
            ("heartbeat-interval", "50".to_owned()),
            ("election-timeout", "500".to_owned()),
            ("cert-file", certificate.clone()),
            ("key-file", key.clone()),
            ("trusted-ca-file", ca.clone()),
            ("peer-cert-file", certificate),
            ("peer-key-file", key),
            ("peer-trusted-ca-file", ca),
        ];
        let settings = settings.into_iter().map(|(name, value)| format!("--{name}={value}"));
        let checks = ["--client-cert-auth", "--peer-client-cert-auth"].map(str::to_owned);
        Ok(Daemon { program: "etcd".to_owned(), arguments: settings.chain(checks).collect(), says: SERVES })
    }
}

/// What a member says when it serves, which it does not alone.
const SERVES: &str = "ready to serve client requests";

/// The table that tells a node where the members are, and how copies are made.
pub(super) fn tables(node: &str, nodes: &[&str], members: &[&str]) -> String {
    let address = |node: &&str| {
        let number = node.trim_start_matches('n').parse().unwrap_or(0_u16);
        format!("{node} = \"{}\"", IpAddr::from(numbered(0xc, number)))
    };
    let addresses: Vec<String> = nodes.iter().map(address).collect();
    let endpoints: Vec<String> = members.iter().map(|member| format!("\"{}\"", endpoint_of(member))).collect();
    format!(
        "[cluster.replication]\naddresses = {{ {} }}\nca = \"{DIRECTORY}/ca.pem\"\ncertificate = \"{DIRECTORY}/{node}.pem\"\n\
         key = \"{DIRECTORY}/{node}.key\"\n\n[cluster.etcd]\nendpoints = [{}]\n",
        addresses.join(", "),
        endpoints.join(", ")
    )
}
