//! Who owns what, as etcd has it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;

use super::boxes::{ClusterLab, PATIENCE};
use crate::LabError;

/// A slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// Its owner; none if nobody has had it yet.
    pub owner: Option<String>,
    /// Its backup.
    pub backup: Option<String>,
    /// How many owners it has had.
    pub epoch: u64,
    /// `protected`, `single`, `acting` or `vacant`.
    pub status: String,
}

impl ClusterLab {
    /// How the cluster stands, as `tombolo cluster status --json` says it at a node that can ask etcd.
    ///
    /// # Errors
    /// [`LabError`] if the node cannot.
    pub fn status(&self, by: &str) -> Result<Value, LabError> {
        Ok(self.said(by, &["status"])?.into_iter().next().unwrap_or_default())
    }

    /// What an operator wants of the cluster, said at a node: `tombolo cluster` with these words.
    ///
    /// # Errors
    /// [`LabError`] with what it says.
    pub fn wish(&self, by: &str, words: &[&str]) -> Result<(), LabError> {
        self.said(by, words).map(drop)
    }

    /// What `tombolo cluster` says with these words, by a node's file.
    fn said(&self, by: &str, words: &[&str]) -> Result<Vec<Value>, LabError> {
        let file = self.lab.directory()?.join(format!("{by}.toml")).display().to_string();
        let words: Vec<&str> = ["cluster"].into_iter().chain(words.iter().copied()).chain(["-c", &file]).collect();
        self.rows(by, &words)
    }

    /// All slices by their numbers.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn slices(&self, by: &str) -> Result<BTreeMap<u16, Owned>, LabError> {
        let status = self.status(by)?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut slices = BTreeMap::new();
        for row in status["slices"].as_array().into_iter().flatten() {
            let owned = Owned {
                owner: text(&row["owner"]),
                backup: text(&row["backup"]),
                epoch: number(&row["epoch"]),
                status: text(&row["status"]).unwrap_or_default(),
            };
            let numbers = number(&row["first"])..=number(&row["last"]);
            slices.extend(numbers.filter_map(|slice| Some((u16::try_from(slice).ok()?, owned.clone()))));
        }
        Ok(slices)
    }

    /// Has slices stay where they are but for faults and wishes, as `tombolo cluster hold` at a node does: whoever compares owners before
    /// and after a fault needs that. Before that each node has its share: those that were there first have all, and one that came later gets
    /// its share only when all was calm for ten seconds.
    ///
    /// # Errors
    /// As [`wish`](Self::wish); [`LabError::TimedOut`] if slices are not shared out.
    pub fn hold_balanced(&self, by: &str) -> Result<(), LabError> {
        let is_balanced = |status: &Value| status["status"] == "protected" && status["moves"] == 0;
        self.wait_for("balance", 3 * PATIENCE, || self.status(by).ok().filter(is_balanced))?;
        self.wish(by, &["hold"])
    }

    /// When what etcd has of each slice was written, in the order of their numbers, by the writers' clocks.
    ///
    /// # Errors
    /// [`LabError`] if etcd does not answer, or says something else.
    pub fn written(&self) -> Result<Vec<SystemTime>, LabError> {
        let said = self.etcdctl("get --prefix --print-value-only /tombolo/gateways/slices/")?;
        let since = |line: &str| {
            let value: Value = serde_json::from_str(line).map_err(|e| LabError::system(format!("read `{line}`"), e))?;
            Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(value["since"].as_u64().unwrap_or_default()))
        };
        said.lines().filter(|line| !line.is_empty()).map(since).collect()
    }

    /// All that was written into etcd of nodes and slices since it has begun, a line for each key: its name, and its value, or that it was
    /// removed.
    ///
    /// # Errors
    /// [`LabError`] if etcd does not answer.
    pub fn history(&self) -> Result<Vec<String>, LabError> {
        // A watch has no end: whoever has all of the past is told nothing more.
        let said = self.etcdctl("watch --prefix --rev 1 /tombolo/gateways/ & sleep 2; kill $!")?;
        Ok(written_by(&said))
    }

    /// Waits until each slice has an owner and a whole copy, and says how long that took.
    ///
    /// # Errors
    /// [`LabError::TimedOut`], with what nodes know.
    pub fn wait_until_protected(&self, by: &str) -> Result<Duration, LabError> {
        let began = Instant::now();
        self.wait("protection", || (self.status(by).ok()?["status"] == "protected").then_some(()))?;
        Ok(began.elapsed())
    }

    /// The key of the hash that gives subscribers their slices, as `cluster init` has written it.
    ///
    /// # Errors
    /// [`LabError`] if etcd does not have it.
    pub fn secret(&self) -> Result<[u64; 4], LabError> {
        let said = self.etcdctl("get --print-value-only /tombolo/gateways/secret")?;
        let mut words = [0; 4];
        for (place, word) in words.iter_mut().enumerate() {
            let digits = said.get(place * 16..(place + 1) * 16).unwrap_or_default();
            let failed = |e| {
                LabError::system(
                    format!("read the secret `{said}`"),
                    std::io::Error::other::<std::num::ParseIntError>(e),
                )
            };
            *word = u64::from_str_radix(digits, 16).map_err(failed)?;
        }
        Ok(words)
    }

    /// The member of etcd that leads.
    ///
    /// # Errors
    /// [`LabError`] if they do not say.
    pub fn leader(&self) -> Result<&'static str, LabError> {
        let said = self.etcdctl("endpoint status -w json")?;
        let all: Value = serde_json::from_str(&said).map_err(|e| LabError::system("read what etcd says", e))?;
        let leads = |one: &&Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
        let leader = all.as_array().into_iter().flatten().find(leads);
        let endpoint = leader.and_then(|one| one["Endpoint"].as_str()).unwrap_or_default();
        let place = self.scenario.endpoints().iter().position(|one| one == endpoint);
        place
            .and_then(|place| self.scenario.members.get(place).copied())
            .ok_or_else(|| LabError::system("find the leader of etcd", std::io::Error::other(said.trim().to_owned())))
    }

    /// What etcd's own client says, at a node.
    fn etcdctl(&self, words: &str) -> Result<String, LabError> {
        let directory = self.lab.directory()?.display().to_string();
        let running: Vec<String> = (self.scenario.endpoints().into_iter().zip(&self.scenario.members))
            .filter(|(_, member)| self.members.contains_key(*member))
            .map(|(endpoint, _)| endpoint)
            .collect();
        let line = format!(
            "ETCDCTL_API=3 etcdctl --endpoints {} --cacert {directory}/ca.pem --cert {directory}/n1.pem --key \
             {directory}/n1.key {words}",
            running.join(",")
        );
        self.shell("n1", &line)
    }
}

/// What a watch of etcd's client has said: of each event its kind, a key, and its value, which is empty where the key was removed.
fn written_by(said: &str) -> Vec<String> {
    let lines: Vec<&str> = said.lines().collect();
    let one = |event: &[&str]| match event {
        ["PUT", key, value] => Some(format!("{key} {value}")),
        ["DELETE", key, ..] => Some(format!("{key} removed")),
        _ => None,
    };
    lines.chunks(3).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_watch_says_is_a_line_for_each_key() {
        let said =
            "PUT\n/c/nodes/n1\n{\"state\":\"serving\"}\nDELETE\n/c/nodes/n1\n\nPUT\n/c/slices/0001\n{}\nPUT\n/c/torn";
        let written = ["/c/nodes/n1 {\"state\":\"serving\"}", "/c/nodes/n1 removed", "/c/slices/0001 {}"];
        assert_eq!(written_by(said), written);
    }
}
