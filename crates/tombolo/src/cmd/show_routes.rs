//! `tombolo show routes`: the kernel's routes, as the gateway mirrors them.

use std::net::IpAddr;

use clap::Args;
use serde_json::{Value, json};
use tombolo_io::netlink::{Mirror, MirroredRoute, RouteKind};
use tombolo_tables::memory::Heap;

use super::format::Format;
use super::output::Output;
use super::print;

/// Arguments of `tombolo show routes`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Show only the route that packets to this address take
    address: Option<IpAddr>,
    /// Routes of each family that the mirror has room for
    #[arg(long, default_value_t = 2_000_000)]
    room: usize,
}

pub(crate) fn run(&Arguments { address, room }: &Arguments, output: Output) -> anyhow::Result<()> {
    let mirror = Mirror::open(&mut Heap, room)?;
    let shown: Vec<MirroredRoute> = match address {
        Some(address) => mirror.lookup(address).into_iter().collect(),
        None => mirror.routes().collect(),
    };
    if let Some(address) = address
        && shown.is_empty()
    {
        anyhow::bail!("no route leads to {address}");
    }
    let rows = || shown.iter().map(|route| as_json(&mirror, route)).collect::<Vec<Value>>();
    match output.format() {
        Format::Table => {}
        Format::Json => return print::json(&rows()),
        Format::Csv => return output.rows(&rows(), |_| Ok(())),
    }
    let mut table = print::table(&["prefix", "what", "via", "interface", "metric"]);
    for route in &shown {
        let each =
            |text: &dyn Fn(usize) -> String| (0..route.target.hops.len()).map(text).collect::<Vec<String>>().join("\n");
        table.add_row([
            route.prefix.to_string(),
            kind(route.target.kind).to_owned(),
            each(&|hop| route.target.hops[hop].gateway.map_or_else(|| "on link".to_owned(), |via| via.to_string())),
            each(&|hop| interface(&mirror, route.target.hops[hop].interface)),
            route.metric.to_string(),
        ]);
    }
    print::line(&table.to_string())?;
    print::line(&format!(
        "{} prefixes, {} different targets, {} neighbours",
        shown.len(),
        mirror.target_count(),
        mirror.neighbour_count()
    ))
}

fn as_json(mirror: &Mirror, route: &MirroredRoute) -> Value {
    let hop = |hop: &tombolo_io::netlink::Hop| {
        let link_address = hop.gateway.and_then(|via| mirror.neighbour(hop.interface, via)).map(|neighbour| {
            neighbour.link_address.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<String>>().join(":")
        });
        json!({
            "via": hop.gateway,
            "interface": interface(mirror, hop.interface),
            "weight": hop.weight,
            "link_address": link_address,
        })
    };
    json!({
        "prefix": route.prefix.to_string(),
        "kind": kind(route.target.kind),
        "metric": route.metric,
        "hops": route.target.hops.iter().map(hop).collect::<Vec<Value>>(),
    })
}

fn interface(mirror: &Mirror, index: u32) -> String {
    mirror.interface_name(index).map_or_else(|| format!("#{index}"), str::to_owned)
}

fn kind(kind: RouteKind) -> &'static str {
    match kind {
        RouteKind::Unicast => "unicast",
        RouteKind::Local => "local",
        RouteKind::Multicast => "multicast",
        RouteKind::Blackhole => "blackhole",
        RouteKind::Unreachable => "unreachable",
        RouteKind::Prohibit => "prohibit",
        RouteKind::Throw => "throw",
    }
}
