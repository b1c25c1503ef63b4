//! The values of etcd's keys: JSON, for people as well, each with its version. A version that is not known is refused; a
//! field that is not known is left out.
//!
//! ```text
//! nodes/n2      {"version":1,"incarnation":8123,"locator":"2001:db8:c1:2::","software":"0.1.0","protocol":1,
//!                "weight":1,"state":"serving","bare":true,"configuration":0,"capacity":{"subscribers":4096,"bindings":65536}}
//! slices/0017   {"version":1,"owner":"n2","owner_rev":412,"epoch":3,"backup":"n3","phase":"protected",
//!                "since":1764000000000,"cause":"takeover"}
//! wishes/nodes/n2      {"version":1,"drain":true}
//! wishes/slices/0017   {"version":1,"node":"n3"}
//! wishes/assumed/0017  {"version":1,"epoch":3}
//! wishes/held          {"version":1,"hold":true}
//! ```

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::assignment::{Assignment, Cause, Epoch, Phase};
use super::node::{Names, Node};
use super::number::Revision;

/// The version of the values that this software writes, and the highest one that it reads.
pub const VALUE_VERSION: u32 = 1;

/// A value that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// It is not what it should be.
    #[error("not a value of this key: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Newer software has written it.
    #[error("its version is {0}; this software knows versions up to {VALUE_VERSION}")]
    Version(u32),
    /// There are more names of nodes than numbers.
    #[error("too many nodes")]
    Nodes,
}

/// What `nodes/<name>` says, under the node's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeValue {
    /// Of the value.
    pub version: u32,
    /// A random number: one life of the node.
    pub incarnation: u64,
    /// The first address of its locator.
    pub locator: Ipv6Addr,
    /// The version of its software.
    pub software: String,
    /// The version of the connections on which tables are copied.
    pub protocol: u32,
    /// Its share of the slices, in proportion to others'.
    pub weight: u32,
    /// Whether it takes slices.
    pub state: NodeState,
    /// [`Presence::began_bare`](super::Presence::began_bare).
    #[serde(default, rename = "bare", skip_serializing_if = "std::ops::Not::not")]
    pub began_bare: bool,
    /// The number of the configuration that it has loaded; 0 if that is a file's.
    pub configuration: u64,
    /// The room in its tables.
    pub capacity: Capacity,
}

/// Whether a node takes slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Not yet, or not any more: it has no way to the routers, or it ends.
    Joining,
    /// It does.
    Serving,
    /// No more, and it goes on with what it has until that is elsewhere.
    Draining,
}

/// The room in a node's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Of subscribers.
    pub subscribers: u64,
    /// Of bindings.
    pub bindings: u64,
}

/// What `slices/<nnnn>` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceValue {
    /// Of the value.
    pub version: u32,
    /// The name of the node that serves the slice.
    pub owner: String,
    /// [`Assignment::owner_revision`].
    pub owner_rev: u64,
    /// [`Assignment::epoch`].
    pub epoch: u32,
    /// The name of the node that has a copy, or gets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// Whether it has.
    #[serde(with = "PhaseName")]
    pub phase: Phase,
    /// When it was written, in milliseconds of Unix time by the writer's clock: for people.
    pub since: u64,
    /// Why.
    #[serde(with = "CauseName")]
    pub cause: Cause,
}

/// What a key below `wishes/` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishValue {
    /// Of the value.
    pub version: u32,
    /// Of a node: it is to be drained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
    /// Of a slice: the name of the node that is to own it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Of a slice: the epoch whose owner and backup are gone for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// Of the cluster: nothing is to move for the sake of balance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Phase", rename_all = "kebab-case")]
enum PhaseName {
    Single,
    Syncing,
    Protected,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Cause", rename_all = "kebab-case")]
enum CauseName {
    First,
    Takeover,
    Return,
    Vacant,
    Handover,
    Backup,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl NodeValue {
    /// The value as it is written.
    ///
    /// # Errors
    /// [`ValueError::Malformed`].
    pub fn emit(&self) -> Result<Vec<u8>, ValueError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// A value that was read.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ValueError> {
        check_version(bytes)?;
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl WishValue {
    /// Nothing is wanted.
    pub const NONE: Self = Self { version: VALUE_VERSION, drain: false, node: None, epoch: None, hold: false };

    /// The value as it is written.
    ///
    /// # Errors
    /// [`ValueError::Malformed`].
    pub fn emit(&self) -> Result<Vec<u8>, ValueError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// A value that was read.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ValueError> {
        check_version(bytes)?;
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl SliceValue {
    /// The value for an assignment that is written at `since`, in milliseconds of Unix time.
    ///
    /// # Errors
    /// [`ValueError::Nodes`]: a node without a name.
    pub fn of(assignment: &Assignment, names: &Names, since: u64) -> Result<Self, ValueError> {
        let name = |node: Node| names.name(node).map(str::to_owned).ok_or(ValueError::Nodes);
        Ok(Self {
            version: VALUE_VERSION,
            owner: name(assignment.owner)?,
            owner_rev: assignment.owner_revision.0,
            epoch: assignment.epoch.0,
            backup: assignment.backup.map(name).transpose()?,
            phase: assignment.phase,
            since,
            cause: assignment.cause,
        })
    }

    /// The assignment that it says.
    ///
    /// # Errors
    /// [`ValueError::Nodes`].
    pub fn assignment(&self, names: &mut Names) -> Result<Assignment, ValueError> {
        let mut number = |name: &str| names.number(name).ok_or(ValueError::Nodes);
        Ok(Assignment {
            owner: number(&self.owner)?,
            owner_revision: Revision(self.owner_rev),
            epoch: Epoch(self.epoch),
            backup: self.backup.as_deref().map(number).transpose()?,
            phase: self.phase,
            cause: self.cause,
        })
    }

    /// The value as it is written.
    ///
    /// # Errors
    /// [`ValueError::Malformed`].
    pub fn emit(&self) -> Result<Vec<u8>, ValueError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// A value that was read.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ValueError> {
        check_version(bytes)?;
        Ok(serde_json::from_slice(bytes)?)
    }
}

fn check_version(bytes: &[u8]) -> Result<(), ValueError> {
    let Version { version } = serde_json::from_slice(bytes)?;
    if version > VALUE_VERSION { Err(ValueError::Version(version)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: &str = r#"{"version":1,"owner":"n2","owner_rev":412,"epoch":3,"backup":"n9","phase":"protected","since":1764000000000,"cause":"takeover"}"#;

    #[test]
    fn a_slice_is_written_as_it_is_read() {
        let mut names = Names::new(vec!["n1".to_owned(), "n2".to_owned()]);
        let value = SliceValue::parse(SLICE.as_bytes()).unwrap();
        let assignment = value.assignment(&mut names).unwrap();
        assert_eq!(assignment.owner, Node(1));
        assert_eq!(assignment.backup, Some(Node(2)), "a stranger gets the next number");
        assert_eq!((assignment.epoch, assignment.owner_revision), (Epoch(3), Revision(412)));
        let written = SliceValue::of(&assignment, &names, value.since).unwrap().emit().unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), SLICE);
        let alone = SliceValue::of(&assignment.with_backup(None, Phase::Single), &names, 1).unwrap().emit().unwrap();
        let alone = String::from_utf8(alone).unwrap();
        assert!(!alone.contains("\"backup\":\"n") && alone.contains(r#""phase":"single""#), "{alone}");
    }

    #[test]
    fn a_node_is_written_as_it_is_read() {
        let value = NodeValue {
            version: VALUE_VERSION,
            incarnation: u64::MAX,
            locator: "2001:db8:c1:2::".parse().unwrap(),
            software: "0.1.0".to_owned(),
            protocol: 1,
            weight: 1,
            state: NodeState::Serving,
            began_bare: true,
            configuration: 0,
            capacity: Capacity { subscribers: 4096, bindings: 65536 },
        };
        assert_eq!(NodeValue::parse(&value.emit().unwrap()).unwrap(), value);
        let other = NodeValue { began_bare: false, ..value }.emit().unwrap();
        // Software that does not know of it says nothing either.
        assert!(!String::from_utf8_lossy(&other).contains("bare"));
        assert!(!NodeValue::parse(&other).unwrap().began_bare);
    }

    #[test]
    fn wishes_are_written_as_they_are_read() {
        for text in [
            r#"{"version":1,"drain":true}"#,
            r#"{"version":1,"node":"n3"}"#,
            r#"{"version":1,"epoch":3}"#,
            r#"{"version":1,"hold":true}"#,
            r#"{"version":1}"#,
        ] {
            assert_eq!(WishValue::parse(text.as_bytes()).unwrap().emit().unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn newer_values_are_refused_and_newer_fields_are_not() {
        let newer = SLICE.replace(r#""version":1"#, r#""version":2"#);
        assert!(matches!(SliceValue::parse(newer.as_bytes()), Err(ValueError::Version(2))));
        let more = SLICE.replace(r#""epoch":3"#, r#""epoch":3,"mood":"good""#);
        assert_eq!(SliceValue::parse(more.as_bytes()).unwrap().epoch, 3);
        assert!(matches!(SliceValue::parse(b"n2"), Err(ValueError::Malformed(_))));
    }
}
