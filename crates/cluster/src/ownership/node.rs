//! The nodes by numbers, and their names, which etcd has.

use super::number::Revision;

/// A node, by its number: its place in the file's `nodes`; those that the file does not have come after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u8);

/// What other nodes need to know of one, besides that its key is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Presence {
    /// When its key was made: another life of the node has another one.
    pub created: Revision,
    /// It takes slices and copies.
    pub is_serving: bool,
    /// It drains: its slices are to go, and it says so itself.
    pub is_draining: bool,
    /// Its share of the slices, in proportion to others'.
    pub weight: u32,
    /// This life began without any copy of another node's slices: what it had copies of before its key was made, it has not any more.
    pub began_bare: bool,
}

/// The names of the nodes.
#[derive(Debug, Clone, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Those in the file.
    #[must_use]
    pub const fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// The node of this name, which gets a number if it has none. None if there are no more numbers.
    pub fn number(&mut self, name: &str) -> Option<Node> {
        let place = self.0.iter().position(|known| known == name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        });
        u8::try_from(place).ok().map(Node)
    }

    /// The name of a node.
    #[must_use]
    pub fn name(&self, node: Node) -> Option<&str> {
        self.0.get(usize::from(node.0)).map(String::as_str)
    }
}
