//! The command line. One file a subcommand.

use clap::{CommandFactory as _, Parser, Subcommand};

#[cfg(feature = "tester")]
mod bench;
#[cfg(feature = "tester")]
mod bench_dns64;
#[cfg(feature = "tester")]
mod bench_external;
#[cfg(feature = "tester")]
mod bench_matrix;
#[cfg(feature = "tester")]
mod bench_matrix_page;
#[cfg(feature = "tester")]
mod bench_packets;
#[cfg(feature = "tester")]
mod bench_preset;
#[cfg(feature = "tester")]
mod bench_progress;
#[cfg(feature = "tester")]
mod bench_route_lookup;
#[cfg(feature = "tester")]
mod bench_summary;
mod binding_who;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod cluster_file;
#[cfg(feature = "cluster")]
mod cluster_wishes;
mod completions;
mod control;
mod doctor;
mod doctor_check;
mod doctor_machine;
mod down;
mod events;
mod explain;
mod format;
mod import;
mod init;
#[cfg(feature = "tester")]
mod lab;
#[cfg(feature = "tester")]
mod lab_compare;
#[cfg(feature = "tester")]
mod lab_demo;
#[cfg(feature = "tester")]
mod lab_demo_cluster;
#[cfg(feature = "tester")]
mod lab_soak;
#[cfg(feature = "tester")]
mod lab_soak_cluster;
mod log;
mod man;
mod map;
mod named;
mod output;
pub(crate) mod print;
mod provision;
mod reload;
#[cfg(feature = "tester")]
mod report;
mod rows;
mod run;
mod show;
mod show_routes;
mod syslog;
mod tayga;
mod trace;
mod translate;

use format::Format;
use output::Output;

/// IPv4 as a Service over IPv6 on stock Linux, and the instrument that measures it.
#[derive(Debug, Parser)]
#[command(name = "tombolo", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Network-namespace playground: client - gateway - server on this machine
    #[cfg(feature = "tester")]
    Lab(lab::Arguments),
    /// The gateway, in the foreground
    Run(run::Arguments),
    /// The gateway in place of Tayga: its command line, its configuration file
    Tayga(tayga::Arguments),
    /// Ask three questions and write what a gateway needs on this host: its configuration, unit, rules of nftables, files
    /// of unbound and radvd
    Init(init::Arguments),
    /// Print another gateway's configuration as a file for `run`
    Import(import::Arguments),
    /// Validate a configuration and print the plan that it becomes
    Check(check::Arguments),
    /// Run captures through the gateway, offline: what leaves, and a verdict for each packet
    Translate(translate::Arguments),
    /// What would happen to one packet, and why
    Explain(explain::Arguments),
    /// The arithmetic of MAP: rules, addresses, ports
    Map(map::Arguments),
    /// What a DHCPv6 client or a router advertisement says, as a configuration
    Provision(provision::Arguments),
    /// What a running gateway has: services, bindings, sessions, pools, counters, subscribers; and
    /// the kernel's routes
    Show(show::Arguments),
    /// Packets as they pass a running gateway, with what becomes of each, and by which path
    Trace(trace::Arguments),
    /// What has happened in a running gateway, and what happens: reloads, health, the fast path, limits
    Events(events::Arguments),
    /// Have a running gateway read its configuration again; what a change does not concern is not
    /// disturbed
    Reload(reload::Reload),
    /// What a reload would change in a running gateway, and what would end with it
    Plan(reload::Plan),
    /// Keep the configuration of a "reload --confirm", which goes back by itself otherwise
    Confirm(reload::Confirm),
    /// Have a running gateway forget its sessions and dynamic bindings
    Flush(control::Flush),
    /// Let nothing new begin in a running gateway, while what is open goes on
    Drain(control::Drain),
    /// Remove what a gateway that has ended leaves on this host, so that private addresses do not leave
    /// it untranslated
    Down(down::Arguments),
    /// Static bindings of a running gateway, and who has an outside endpoint
    Binding(control::Binding),
    /// The log of bindings, as it lies there
    Log(log::Arguments),
    /// What the nodes of a cluster agree on in etcd: begin it, see how it stands, drain nodes, move slices
    #[cfg(feature = "cluster")]
    Cluster(cluster::Arguments),
    /// What this machine lacks for the gateway; and why packets do not pass, with the line that mends it
    Doctor(doctor::Arguments),
    /// The manual pages of this command and of its configuration file
    Man(man::Arguments),
    /// What a shell needs to complete this command line
    Completions(completions::Arguments),
    /// Measure gateways, this one and others
    #[cfg(feature = "tester")]
    Bench(bench::Arguments),
    /// Result files of `bench` as one page, or two of them compared
    #[cfg(feature = "tester")]
    Report(report::Arguments),
}

impl Arguments {
    /// How it is printed, where there is a choice; what went wrong as well.
    pub(crate) fn format(&self) -> Format {
        let output = match &self.command {
            Command::Check(arguments) => arguments.output,
            Command::Translate(arguments) => arguments.output,
            Command::Explain(arguments) => arguments.output,
            Command::Map(arguments) => arguments.output,
            Command::Provision(arguments) => arguments.output,
            Command::Show(arguments) => arguments.output,
            Command::Trace(arguments) => arguments.output,
            Command::Events(arguments) => arguments.output,
            Command::Reload(arguments) => arguments.output,
            Command::Plan(arguments) => arguments.output,
            Command::Confirm(arguments) => arguments.output,
            Command::Flush(arguments) => arguments.output,
            Command::Drain(arguments) => arguments.output,
            Command::Down(arguments) => arguments.output,
            Command::Binding(arguments) => arguments.output,
            Command::Log(arguments) => arguments.output,
            #[cfg(feature = "cluster")]
            Command::Cluster(arguments) => arguments.output,
            Command::Doctor(arguments) => arguments.output,
            _ => Output::default(),
        };
        output.format()
    }

    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            #[cfg(feature = "tester")]
            Command::Lab(arguments) => lab::run(arguments),
            Command::Run(arguments) => run::run(&arguments),
            Command::Tayga(arguments) => tayga::run(&arguments),
            Command::Init(arguments) => init::run(&arguments),
            Command::Import(arguments) => import::run(&arguments),
            Command::Check(arguments) => check::run(&arguments),
            Command::Translate(arguments) => translate::run(&arguments),
            Command::Explain(arguments) => explain::run(&arguments),
            Command::Map(arguments) => map::run(&arguments),
            Command::Provision(arguments) => provision::run(&arguments),
            Command::Show(arguments) => show::run(&arguments),
            Command::Trace(arguments) => trace::run(&arguments),
            Command::Events(arguments) => events::run(&arguments),
            Command::Reload(arguments) => reload::reload(&arguments),
            Command::Plan(arguments) => reload::plan(&arguments),
            Command::Confirm(arguments) => reload::confirm(&arguments),
            Command::Flush(arguments) => control::flush(&arguments),
            Command::Drain(arguments) => control::drain(&arguments),
            Command::Down(arguments) => down::run(&arguments),
            Command::Binding(arguments) => control::binding(&arguments),
            Command::Log(arguments) => log::run(&arguments),
            #[cfg(feature = "cluster")]
            Command::Cluster(arguments) => cluster::run(&arguments),
            Command::Doctor(arguments) => doctor::run(&arguments),
            Command::Man(arguments) => man::run(&arguments, Self::command()),
            Command::Completions(arguments) => completions::run(&arguments, Self::command()),
            #[cfg(feature = "tester")]
            Command::Bench(arguments) => bench::run(arguments),
            #[cfg(feature = "tester")]
            Command::Report(arguments) => report::run(&arguments),
        }
    }
}
