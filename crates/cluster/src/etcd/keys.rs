//! Names of keys.

/// The keys of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

/// What a key is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key<'a> {
    /// The node with this name.
    Node(&'a str),
    /// The slice with this number.
    Slice(u16),
    /// What is wanted of the node with this name.
    WishOfNode(&'a str),
    /// Where the slice with this number is wanted.
    WishOfSlice(u16),
    /// That the slice with this number is given up.
    WishOfState(u16),
    /// Whether slices are to stay where they are.
    WishToHold,
    /// Something else.
    Other,
}

impl Keys {
    pub(super) fn of(cluster: &str) -> Self {
        Self { prefix: format!("/tombolo/{cluster}/") }
    }

    /// What all of them begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn schema(&self) -> String {
        format!("{}schema", self.prefix)
    }

    pub(super) fn shape(&self) -> String {
        format!("{}shape", self.prefix)
    }

    pub(super) fn secret(&self) -> String {
        format!("{}secret", self.prefix)
    }

    pub(super) fn node(&self, name: &str) -> String {
        format!("{}nodes/{name}", self.prefix)
    }

    pub(super) fn slice(&self, slice: u16) -> String {
        format!("{}slices/{slice:04}", self.prefix)
    }

    pub(super) fn wish_of_node(&self, name: &str) -> String {
        format!("{}wishes/nodes/{name}", self.prefix)
    }

    pub(super) fn wish_of_slice(&self, slice: u16) -> String {
        format!("{}wishes/slices/{slice:04}", self.prefix)
    }

    pub(super) fn wish_of_state(&self, slice: u16) -> String {
        format!("{}wishes/assumed/{slice:04}", self.prefix)
    }

    pub(super) fn wish_to_hold(&self) -> String {
        format!("{}wishes/held", self.prefix)
    }

    /// What a key is of.
    pub(super) fn parse<'a>(&self, key: &'a [u8]) -> Key<'a> {
        let Some(rest) = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(self.prefix.as_str())) else {
            return Key::Other;
        };
        let slice = |number: &str, key: fn(u16) -> Key<'a>| match number.parse() {
            Ok(slice) if number.len() == 4 => key(slice),
            _ => Key::Other,
        };
        match rest.split_once('/') {
            Some(("nodes", name)) => Key::Node(name),
            Some(("slices", number)) => slice(number, Key::Slice),
            Some(("wishes", "held")) => Key::WishToHold,
            Some(("wishes", wish)) => match wish.split_once('/') {
                Some(("nodes", name)) => Key::WishOfNode(name),
                Some(("slices", number)) => slice(number, Key::WishOfSlice),
                Some(("assumed", number)) => slice(number, Key::WishOfState),
                _ => Key::Other,
            },
            _ => Key::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let keys = Keys::of("c1");
        assert_eq!(keys.slice(17), "/tombolo/c1/slices/0017");
        assert_eq!(keys.parse(keys.slice(255).as_bytes()), Key::Slice(255));
        assert_eq!(keys.parse(keys.node("n2.example").as_bytes()), Key::Node("n2.example"));
        assert_eq!(keys.parse(keys.wish_of_node("n2").as_bytes()), Key::WishOfNode("n2"));
        assert_eq!(keys.wish_of_slice(17), "/tombolo/c1/wishes/slices/0017");
        assert_eq!(keys.parse(keys.wish_of_slice(17).as_bytes()), Key::WishOfSlice(17));
        assert_eq!(keys.parse(keys.wish_of_state(17).as_bytes()), Key::WishOfState(17));
        assert_eq!(keys.wish_to_hold(), "/tombolo/c1/wishes/held");
        assert_eq!(keys.parse(keys.wish_to_hold().as_bytes()), Key::WishToHold);
        for other in [
            "/tombolo/c1/schema",
            "/tombolo/c2/slices/0001",
            "/tombolo/c1/slices/1",
            "/tombolo/c1/slices/00x1",
            "/tombolo/c1/wishes/held/n1",
        ] {
            assert_eq!(keys.parse(other.as_bytes()), Key::Other, "{other}");
        }
    }
}
