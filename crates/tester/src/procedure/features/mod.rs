//! Which features a gateway has: each is tried by an exchange of a few real packets, written and read
//! by hand (`packets`) at both ends of the laboratory (`cable`). Nothing is known beforehand: a
//! feature works where the `exchanges` show it.

mod cable;
mod exchanges;
mod packets;

use std::io;
use std::path::PathBuf;

use serde_json::json;
use tombolo_lab::topology::SERVER_V4;

use crate::bench::BenchError;
use crate::gateway::between_ports::laboratory::{Laboratory, Setup};
use crate::gateway::{Flows, Gateway as _, GatewayError, Kind, Spec, Technology};
use crate::machine::Machine;
use crate::results::ResultFile;
use cable::Cable;
use exchanges::{Bed, Seen, hosts};

/// What a feature is tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    /// The gateway's NAT64, stateful if it has one.
    Nat64,
    /// Its explicit address mappings.
    Mappings,
}

/// A feature, and how it is tried.
struct Feature {
    name: &'static str,
    with: With,
    exchange: fn(&Bed) -> Seen,
}

/// In the order of the thesis' list, then what it says in its text, then what else a NAT64 has to do.
const FEATURES: &[Feature] = &[
    Feature { name: "NDP", with: With::Nat64, exchange: Bed::neighbour_solicitation },
    Feature { name: "ARP", with: With::Nat64, exchange: Bed::arp },
    Feature { name: "ICMP6", with: With::Nat64, exchange: Bed::own_echo_v6 },
    Feature { name: "ICMP", with: With::Nat64, exchange: Bed::own_echo_v4 },
    Feature { name: "NAT64: TCP", with: With::Nat64, exchange: Bed::tcp },
    Feature { name: "NAT64: UDP", with: With::Nat64, exchange: Bed::udp },
    Feature { name: "NAT64: ICMP/ICMP6", with: With::Nat64, exchange: Bed::icmp },
    Feature { name: "NAT64: Sessions", with: With::Nat64, exchange: Bed::sessions },
    Feature { name: "Delta Checksum", with: With::Nat64, exchange: Bed::delta_checksum },
    Feature { name: "Payload Checksum", with: With::Nat64, exchange: Bed::payload_checksum },
    Feature { name: "EAMT", with: With::Mappings, exchange: Bed::explicit_mapping },
    Feature { name: "ICMP errors", with: With::Nat64, exchange: Bed::icmp_errors },
    Feature { name: "Connections from outside", with: With::Nat64, exchange: Bed::connection_from_outside },
    Feature { name: "Hop limit exceeded", with: With::Nat64, exchange: Bed::hop_limit },
    Feature { name: "Packet too big", with: With::Nat64, exchange: Bed::packet_too_big },
    Feature { name: "Fragments", with: With::Nat64, exchange: Bed::fragments },
];

/// What to try.
pub struct FeaturePlan {
    /// The gateways.
    pub gateways: Vec<Spec>,
    /// The `tombolo` executable.
    pub tombolo: PathBuf,
}

impl FeaturePlan {
    /// Tries every feature of every gateway, each with as many new laboratories as it needs. A gateway
    /// that cannot be started is a failure, and the next one is tried.
    ///
    /// # Errors
    /// If the results cannot be written.
    pub fn run(&self, results: &mut ResultFile) -> Result<Vec<(String, String)>, BenchError> {
        let names: Vec<String> = self.gateways.iter().map(Spec::to_string).collect();
        results.write(&json!({
            "record": "run", "procedure": "features", "tester": env!("CARGO_PKG_VERSION"), "gateways": names,
            "machine": Machine::describe(&[]), "comparable": "each feature by an exchange of real packets",
        }))?;
        let mut failures = Vec::new();
        for spec in &self.gateways {
            if let Err(error) = self.try_all(spec, results) {
                if let BenchError::Results(error) = error {
                    return Err(error.into());
                }
                results
                    .write(&json!({ "record": "failure", "gateway": spec.to_string(), "error": error.to_string() }))?;
                failures.push((spec.to_string(), error.to_string()));
            }
        }
        results.write(&json!({ "record": "end", "complete": failures.is_empty() }))?;
        Ok(failures)
    }

    fn try_all(&self, spec: &Spec, results: &mut ResultFile) -> Result<(), BenchError> {
        for with in [With::Nat64, With::Mappings] {
            let (spec_there, technology) = with.of(spec);
            let laboratory = Laboratory::start(Setup {
                spec: spec_there,
                technology,
                flows: Flows::sessions(1, 1),
                tombolo: self.tombolo.clone(),
                settings: String::new(),
                queues: 1,
                mtu: None,
            })?;
            if with == With::Nat64 {
                record_gateway(spec, technology, &laboratory, results)?;
            }
            let bed = bed(spec, &laboratory)?;
            for feature in FEATURES.iter().filter(|feature| feature.with == with) {
                let seen = (feature.exchange)(&bed);
                let (works, how) = (seen.is_ok(), seen.unwrap_or_else(|missing| missing));
                results.write(&json!({
                    "record": "feature", "gateway": spec.to_string(), "feature": feature.name, "works": works, "how": how,
                }))?;
            }
        }
        Ok(())
    }
}

impl With {
    /// The gateway that is tried, and as what.
    fn of(self, spec: &Spec) -> (Spec, Technology) {
        match (self, spec.kind()) {
            (With::Nat64, Some(Kind::Tayga)) | (With::Mappings, _) if spec.kind() != Some(Kind::Jool) => {
                (spec.clone(), Technology::Siit)
            }
            (With::Mappings, _) => (Spec::Lab(Kind::JoolSiit, None), Technology::Siit),
            (With::Nat64, _) => (spec.clone(), Technology::Nat64),
        }
    }
}

fn record_gateway(
    spec: &Spec,
    technology: Technology,
    laboratory: &Laboratory,
    results: &mut ResultFile,
) -> io::Result<()> {
    results.write(&json!({
        "record": "gateway", "gateway": spec.to_string(), "technology": technology, "description": laboratory.description(),
    }))
}

fn bed(spec: &Spec, laboratory: &Laboratory) -> Result<Bed, BenchError> {
    let (left, right) = laboratory.ends()?;
    let named = |source| GatewayError::Lab { gateway: spec.to_string(), source };
    let seen = laboratory.running().ok_or_else(|| BenchError::Unsuitable(format!("{spec} does not run")))?;
    let (server, client) = (seen.server_seen_by_client, seen.client_seen_by_server);
    let lab = laboratory.lab();
    let inside = Cable::take(lab, ("client", "inside0"), left, &hosts()).map_err(named)?;
    let outside = Cable::take(lab, ("server", "outside0"), right, &[SERVER_V4.into()]).map_err(named)?;
    Ok(Bed { inside, outside, server, client: client.map(Into::into) })
}
