//! `tombolo show`: what a running gateway has and has counted.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tombolo_daemon::control::client::ask;
use tombolo_daemon::control::filter::Filter;
use tombolo_daemon::control::request::Request;

use super::control::Gateway;
use super::format::Format;
use super::named::Named;
use super::output::Output;
use super::print;
use super::rows::{Cell, print_rows};
use super::{show_routes, trace};

/// Arguments of `tombolo show`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    gateway: Gateway,
    #[command(flatten)]
    pub(super) output: Output,
    /// Show it again and again, every second or so many seconds, until interrupted
    #[arg(long, global = true, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What the gateway is, and how it does
    Status,
    /// Services, with how much state they have
    Services,
    /// Bindings: inside endpoints and the outside endpoints that they have
    Bindings(Wanted),
    /// Sessions: bindings and the remote endpoints that they speak with
    Sessions(Wanted),
    /// Outside addresses and ports, and how many are in use
    Pools {
        #[command(flatten)]
        wanted: Wanted,
        /// A row for each address instead of each range
        #[arg(long)]
        each_address: bool,
    },
    /// Packets received, forwarded and dropped since the start, with reasons and remedies
    Counters {
        /// Also what never happened
        #[arg(long)]
        all: bool,
    },
    /// Packets dropped or refused since the start, by service and reason, with remedies; or one by one as
    /// they are dropped
    Drops {
        /// Also reasons that never occurred
        #[arg(long, conflicts_with = "follow")]
        all: bool,
        /// Show each packet as it is dropped, until interrupted
        #[arg(short, long, conflicts_with = "watch")]
        follow: bool,
        /// Write the packets into this capture file
        #[arg(long, value_name = "FILE", requires = "follow")]
        pcap: Option<PathBuf>,
        #[command(flatten)]
        which: trace::Which,
    },
    /// Subscribers: who has state, and which outside address each was granted
    Subscribers(Wanted),
    /// One subscriber: ports, blocks of ports, limits, and which of them it has reached
    Subscriber {
        /// Its inside address or prefix, or its softwire's
        #[arg(value_name = "ADDRESS[/LENGTH]")]
        inside: String,
    },
    /// The subscribers with most bindings
    Top {
        /// So many
        #[arg(long, value_name = "ROWS", default_value_t = 10)]
        limit: u64,
    },
    /// Where the kernel's fast path is attached, how much it takes, and why it leaves what it
    /// leaves
    Fastpath,
    /// The nodes of the cluster: which of them serve, what was redirected to them and by them, and how copies stand
    Peers,
    /// The slices of the cluster: who has which, and where their packets go from here
    Slices,
    /// The kernel's routes as the gateway mirrors them, or the route to one address
    Routes(show_routes::Arguments),
}

/// Which rows are shown: those for which all that is named holds.
#[derive(Debug, Args)]
struct Wanted {
    #[command(flatten)]
    named: Named,
    /// In this state, for example established; permissions of filters are shown only if asked for
    #[arg(long)]
    state: Option<String>,
    /// Bindings of this origin: dynamic, configured, operator or pcp
    #[arg(long)]
    origin: Option<String>,
    /// Silent for so many seconds or longer
    #[arg(long, value_name = "SECONDS")]
    idle_over: Option<u64>,
    /// Silent for less than so many seconds
    #[arg(long, value_name = "SECONDS")]
    idle_under: Option<u64>,
    /// At most so many rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,
}

impl Wanted {
    fn filter(&self) -> Filter {
        let Named { service, protocol, address, inside, outside, remote, port } = self.named.clone();
        Filter {
            service,
            protocol,
            address,
            inside,
            outside,
            remote,
            port,
            state: self.state.clone(),
            origin: self.origin.clone(),
            idle_over: self.idle_over,
            idle_under: self.idle_under,
            limit: self.limit,
        }
    }
}

const PEERS: &[Cell] = &[
    Cell::Text("node"),
    Cell::Text("locator"),
    Cell::Text("state"),
    Cell::Number("owns"),
    Cell::Number("backs_up"),
    Cell::Number("epoch"),
    Cell::Number("redirected_to"),
    Cell::Number("redirected_by"),
    Cell::Text("copy_there"),
    Cell::Number("pending"),
    Cell::Number("lag"),
    Cell::Text("copy_here"),
];

const SLICES: &[Cell] = &[
    Cell::Number("first"),
    Cell::Number("last"),
    Cell::Text("owner"),
    Cell::Text("backup"),
    Cell::Number("epoch"),
    Cell::Text("phase"),
    Cell::Text("state"),
    Cell::Text("served_by"),
];

const STATUS: &[Cell] = &[
    Cell::Text("device"),
    Cell::Text("health"),
    Cell::Text("version"),
    Cell::Number("pid"),
    Cell::Seconds("uptime"),
    Cell::Text("standing_by"),
    Cell::Text("draining"),
    Cell::Number("workers"),
    Cell::Number("subscribers"),
    Cell::Number("bindings"),
    Cell::Number("sessions"),
    Cell::Text("configuration"),
    Cell::Text("faults"),
];
const SERVICES: &[Cell] = &[
    Cell::Text("service"),
    Cell::Text("kind"),
    Cell::Text("inside"),
    Cell::Text("outside"),
    Cell::Number("subscribers"),
    Cell::Number("bindings"),
    Cell::Number("sessions"),
];
const INSIDE: Cell = Cell::Host { name: "inside", address: "inside", port: Some("inside_port"), softwire: "softwire" };
const OUTSIDE: Cell = Cell::Endpoint { name: "outside", address: "outside", port: "outside_port" };
const BINDINGS: &[Cell] = &[
    Cell::Text("service"),
    Cell::Text("protocol"),
    INSIDE,
    OUTSIDE,
    Cell::Text("origin"),
    Cell::Seconds("age"),
    Cell::Seconds("idle"),
    Cell::Seconds("expires"),
];
const SESSIONS: &[Cell] = &[
    Cell::Text("service"),
    Cell::Text("protocol"),
    INSIDE,
    OUTSIDE,
    Cell::Endpoint { name: "remote", address: "remote", port: "remote_port" },
    Cell::Text("state"),
    Cell::Seconds("idle"),
    Cell::Seconds("expires"),
];
const POOLS: &[Cell] = &[
    Cell::Text("service"),
    Cell::Text("addresses"),
    Cell::Text("protocol"),
    Cell::Number("ports"),
    Cell::Number("taken"),
    Cell::Number("kept_back"),
    Cell::Number("free"),
];
const COUNTERS: &[Cell] = &[
    Cell::Text("counter"),
    Cell::Text("side"),
    Cell::Text("path"),
    Cell::Text("reason"),
    Cell::Number("value"),
    Cell::Text("remedy"),
];
const DROPS: &[Cell] = &[Cell::Text("service"), Cell::Text("reason"), Cell::Number("packets"), Cell::Text("remedy")];
const FASTPATH: &[Cell] = &[Cell::Text("what"), Cell::Text("name"), Cell::Text("value"), Cell::Text("why")];
const SUBSCRIBERS: &[Cell] = &[
    Cell::Text("service"),
    Cell::Host { name: "inside", address: "inside", port: None, softwire: "softwire" },
    Cell::Text("outside"),
    Cell::Number("bindings"),
    Cell::Seconds("idle"),
];
const SUBSCRIBER: &[Cell] = &[
    Cell::Text("service"),
    Cell::Host { name: "inside", address: "inside", port: None, softwire: "softwire" },
    Cell::Text("outside"),
    Cell::Number("bindings"),
    Cell::Number("most_bindings"),
    Cell::Number("tcp"),
    Cell::Number("udp"),
    Cell::Number("icmp"),
    Cell::Number("others"),
    Cell::Number("sessions"),
    Cell::Number("most_sessions"),
    Cell::Number("most_new_bindings_per_second"),
    Cell::Number("mappings"),
    Cell::Number("most_mappings"),
    Cell::Text("blocks"),
    Cell::Number("most_blocks"),
    Cell::Text("reached"),
    Cell::Seconds("idle"),
];

/// Clears a terminal, and goes to its first place.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows it, once or again and again.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Some(seconds) = arguments.watch else { return show(arguments) };
    // A reader who has seen enough ends it.
    while print::is_read() {
        // Rows for machines follow one another.
        if arguments.output.format() == Format::Table && std::io::stdout().is_terminal() {
            print::line(CLEAR)?;
        }
        show(arguments)?;
        std::thread::sleep(Duration::from_secs(seconds));
    }
    Ok(())
}

fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let format = arguments.output.format();
    let (request, cells) = match &arguments.what {
        What::Routes(routes) => return show_routes::run(routes, arguments.output),
        What::Drops { follow: true, pcap, which, .. } => {
            return trace::drops(&arguments.gateway, which, pcap.as_deref(), format);
        }
        What::Drops { which, .. } if !which.is_any() => {
            anyhow::bail!("which packets are shown is for those to come: show drops --follow")
        }
        What::Drops { all, .. } => (Request::Drops { all: *all }, DROPS),
        What::Status => (Request::Status {}, STATUS),
        What::Services => (Request::Services {}, SERVICES),
        What::Bindings(wanted) => (Request::Bindings { filter: wanted.filter() }, BINDINGS),
        What::Sessions(wanted) => (Request::Sessions { filter: wanted.filter() }, SESSIONS),
        What::Pools { wanted, each_address } => {
            (Request::Pools { filter: wanted.filter(), each_address: *each_address }, POOLS)
        }
        What::Counters { all } => (Request::Counters { all: *all }, COUNTERS),
        What::Fastpath => (Request::Fastpath {}, FASTPATH),
        What::Peers => (Request::Peers {}, PEERS),
        What::Slices => (Request::Slices {}, SLICES),
        What::Subscriber { inside } => {
            let filter = Filter { inside: Some(inside.clone()), ..Filter::default() };
            (Request::Subscriber { filter }, SUBSCRIBER)
        }
        What::Top { limit } => (Request::Top { limit: Some(*limit) }, SUBSCRIBERS),
        What::Subscribers(wanted) => (Request::Subscribers { filter: wanted.filter() }, SUBSCRIBERS),
    };
    print_rows(ask(arguments.gateway.name(), &request)?, cells, format).map(drop)
}
