//! Whose each outside endpoint is in the end, by the tables of all nodes joined.

use std::collections::HashMap;

use serde_json::Value;
use tombolo_lab::LabError;
use tombolo_lab::cluster::ClusterLab;

use super::fault::NODES;

/// Endpoints that are two hosts', in words, and how many endpoints there are.
pub(super) fn conflicts(cluster: &ClusterLab) -> Result<(usize, Vec<String>), LabError> {
    let mut tables = Vec::new();
    for node in NODES {
        tables.push((node, cluster.rows(node, &["show", "bindings"])?));
    }
    Ok(joined(&tables))
}

fn joined(tables: &[(&'static str, Vec<Value>)]) -> (usize, Vec<String>) {
    let mut holders: HashMap<String, (String, &str)> = HashMap::new();
    let mut found = Vec::new();
    for (node, row) in tables.iter().flat_map(|(node, rows)| rows.iter().map(move |row| (*node, row))) {
        let endpoint = format!("{} {}:{}", row["protocol"], row["outside"], row["outside_port"]);
        let host = format!("{} {} {}", row["inside"], row["inside_port"], row["softwire"]);
        let (holder, by) = holders.entry(endpoint.clone()).or_insert_with(|| (host.clone(), node));
        if *holder != host {
            found.push(format!("{endpoint} is {holder} by {by}, and {host} by {node}"));
        }
    }
    (holders.len(), found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_endpoint_of_two_hosts_is_found_and_a_copy_is_none() {
        let row = |inside: &str, port: u16| json!({ "protocol": "udp", "inside": inside, "inside_port": 4000, "outside": "203.0.113.80", "outside_port": port });
        let owner = ("n1", vec![row("10.0.0.7", 2048), row("10.0.0.8", 2049)]);
        let (count, found) = joined(&[owner.clone(), ("n2", vec![row("10.0.0.7", 2048)])]);
        assert_eq!((count, found.len()), (2, 0));
        let (_, found) = joined(&[owner, ("n2", vec![row("10.0.0.9", 2048)])]);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
