//! `tombolo lab`: network-namespace playgrounds.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use tombolo_lab::{Lab, LabRecord, Scenario, Topology};

use super::{lab_compare, lab_demo, lab_demo_cluster, lab_soak, lab_soak_cluster, print};

/// Arguments of `tombolo lab`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show everything in about a minute: a gateway, both ends of the five technologies, real
    /// clients, and plain forwarding beside
    ///
    /// `lab demo cluster`: three nodes that agree by etcd, one of which loses its power under load.
    Demo {
        /// What to show instead
        #[arg(value_enum, conflicts_with_all = ["gateway", "seconds", "settings"])]
        what: Option<Subject>,
        #[command(flatten)]
        arguments: lab_demo::Arguments,
    },
    /// A gateway under attacks and mishaps, one after another, and then every invariant of its tables
    ///
    /// `lab soak cluster`: three nodes that agree by etcd, to whose boxes and links one fault after another happens.
    Soak {
        /// What to soak instead
        #[arg(value_enum)]
        what: Option<Subject>,
        /// What the faults of a cluster follow from
        #[arg(long, default_value_t = 1, requires = "what")]
        seed: u64,
        /// Seconds of traffic
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..))]
        seconds: u64,
    },
    /// Random packets through a live gateway of each kind, byte by byte beside what `translate`
    /// makes of them, and its counters beside the packets
    Compare(lab_compare::Arguments),
    /// Build a lab that stays until `lab down`
    ///
    /// With the name of a scenario (nat64, nat44, 464xlat, ds-lite, lw4o6, map-e, map-t, cluster) the lab has that name,
    /// and running gateways in it.
    Up {
        /// Its name, letters, digits and hyphens; or a scenario
        #[arg(default_value = "lab")]
        name: String,
        /// Which hosts and links
        #[arg(long, value_enum, default_value = "gateway")]
        topology: Shape,
        /// Another name for the lab of a scenario
        #[arg(long = "as", value_name = "NAME", conflicts_with = "topology")]
        alias: Option<String>,
    },
    /// Remove a lab, and every process in it
    Down {
        /// The lab's name
        #[arg(default_value = "lab", conflicts_with = "all")]
        name: String,
        /// Remove all named labs and what dead processes left behind
        #[arg(long)]
        all: bool,
    },
    /// List the labs of this machine
    List,
}

/// What is not one gateway.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    /// Three nodes, BIRD and etcd
    Cluster,
}

/// The standard topologies.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shape {
    /// client - gateway - server (NAT64, NAT44, SIIT)
    Gateway,
    /// client - cpe - gateway - server, with an IPv6-only core (464XLAT, DS-Lite, lw4o6, MAP)
    Cpe,
}

impl Shape {
    fn topology(self) -> Topology {
        match self {
            Self::Gateway => Topology::client_gateway_server(),
            Self::Cpe => Topology::client_cpe_gateway_server(),
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let json = arguments.json;
    match arguments.action {
        Action::Demo { what: Some(Subject::Cluster), .. } | Action::Soak { what: Some(Subject::Cluster), .. }
            if !cfg!(feature = "cluster") =>
        {
            bail!("this build does without etcd (feature \"cluster\"), by which the nodes agree")
        }
        Action::Demo { what: Some(Subject::Cluster), .. } => lab_demo_cluster::run(json),
        Action::Demo { what: None, arguments } => lab_demo::run(arguments, json),
        Action::Compare(arguments) => lab_compare::run(&arguments, json),
        Action::Soak { what: Some(Subject::Cluster), seconds, seed } => lab_soak_cluster::run(seconds, seed, json),
        Action::Soak { what: None, seconds, .. } => lab_soak::run(seconds, json),
        Action::Up { name, topology, alias } => match (Scenario::named(&name), alias) {
            (Some(scenario), alias) => up_scenario(&agreed_if_possible(scenario), alias.as_deref(), json),
            (None, None) => up(&name, topology, json),
            (None, Some(_)) => bail!("--as is for scenarios: {}", Scenario::NAMES.join(", ")),
        },
        Action::Down { name, all: false } => down(&name, json),
        Action::Down { all: true, .. } => down_all(json),
        Action::List => list(json),
    }
}

fn up(name: &str, shape: Shape, json: bool) -> anyhow::Result<()> {
    let record = Lab::create_named(name, &shape.topology())?;
    if json {
        return print::json(&record);
    }
    let mut table = print::table(&["node", "namespace"]);
    for node in &record.nodes {
        table.add_row([&node.node, &node.namespace]);
    }
    print::line(&format!(
        "{table}\n\
         ip netns exec {id}-client ping -c 3 2001:db8:2::2     # the server, over plain IPv6\n\
         ip netns exec {id}-client ping -c 3 198.51.100.2      # {v4}\n\
         tombolo lab down {name}",
        id = record.id,
        v4 = match shape {
            Shape::Gateway => "the same, over plain IPv4",
            Shape::Cpe => "fails until the cpe and the gateway carry IPv4 over IPv6",
        },
    ))
}

/// The nodes of a cluster agree by etcd where that is possible.
fn agreed_if_possible(scenario: Scenario) -> Scenario {
    let lack = match () {
        () if scenario.name != "cluster" => return scenario,
        () if !cfg!(feature = "cluster") => "this build does without etcd (feature \"cluster\")".to_owned(),
        () => match ["etcd", "openssl"].into_iter().find(|program| !tombolo_lab::is_installed(program)) {
            Some(program) => {
                format!("`{program}` is not installed; fix: apt-get install {}", tombolo_lab::package_of(program))
            }
            None => return Scenario::agreed_cluster(),
        },
    };
    tombolo_lab::skip("owners by etcd", &format!("{lack}; a file says who owns what instead"));
    scenario
}

/// Builds the lab of a scenario, with this program as its gateways. Names begin with a letter, so
/// 464xlat has one before.
fn up_scenario(scenario: &Scenario, alias: Option<&str>, json: bool) -> anyhow::Result<()> {
    let own = if scenario.name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("x{}", scenario.name)
    } else {
        scenario.name.to_owned()
    };
    let name = alias.unwrap_or(&own);
    let program = std::env::current_exe()?;
    let record = Lab::create_scenario(name, scenario, &program.display().to_string())?;
    if json {
        return print::json(&record);
    }
    let mut table = print::table(&["node", "namespace", "gateway"]);
    for node in &record.nodes {
        let runs = scenario.gateways.iter().any(|(gateway, _)| *gateway == node.node);
        table.add_row([node.node.as_str(), &node.namespace, if runs { "runs" } else { "" }]);
    }
    print::line(&format!("{}\n{table}", scenario.about))?;
    for (node, command) in &scenario.hints {
        print::line(&format!("ip netns exec {}-{node} {command}", record.id))?;
    }
    if let Some(node) = scenario.agreeing().next() {
        let file = record.directory().join(format!("{node}.toml"));
        print::line(&format!("ip netns exec {}-{node} tombolo cluster status -c {}", record.id, file.display()))?;
    }
    print::line(&format!("tombolo lab down {name}"))
}

fn down(name: &str, json: bool) -> anyhow::Result<()> {
    if !tombolo_lab::remove_named(name)? {
        bail!("there is no lab `{name}`; `tombolo lab list` shows what there is");
    }
    removed(&[format!("tombolo-{name}")], json)
}

fn down_all(json: bool) -> anyhow::Result<()> {
    removed(&tombolo_lab::remove_stale(true)?, json)
}

fn removed(ids: &[String], json: bool) -> anyhow::Result<()> {
    if json {
        print::json(&json!({ "removed": ids }))
    } else if ids.is_empty() {
        print::line("nothing to remove")
    } else {
        print::line(&format!("removed {}", ids.join(", ")))
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    let records = tombolo_lab::list()?;
    if json {
        return print::json(&records);
    }
    let mut table = print::table(&["lab", "owner", "topology", "namespaces"]);
    for record in &records {
        let namespaces: Vec<&str> = record.nodes.iter().map(|node| node.namespace.as_str()).collect();
        let name = record.name.as_ref().unwrap_or(&record.id);
        table.add_row([name, &owner(record), &record.topology, &namespaces.join("\n")]);
    }
    print::line(&if records.is_empty() { "no labs".to_owned() } else { table.to_string() })
}

/// Whom a lab belongs to, and with that whether `down --all` takes it.
fn owner(record: &LabRecord) -> String {
    match (&record.name, record.is_orphan()) {
        (Some(_), _) => "nobody (named)".to_owned(),
        (None, false) => format!("process {}", record.pid),
        (None, true) => format!("process {} (dead: stale)", record.pid),
    }
}
