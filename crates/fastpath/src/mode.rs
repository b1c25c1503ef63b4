//! Where packets of an interface are taken, as it is asked for and as it came out.

/// Where packets of an interface are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// XDP, with TC behind it.
    Xdp,
    /// TC only.
    #[default]
    Tc,
    /// Nowhere: everything goes to the engine.
    Off,
}

impl Mode {
    /// The word of the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
            Self::Off => "off",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = [Self::Xdp, Self::Tc, Self::Off];
        known
            .into_iter()
            .find(|mode| mode.name() == word)
            .ok_or_else(|| format!("\"{word}\" is no mode of the fast path; there are xdp, tc and off"))
    }
}

/// What is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// The XDP program.
    pub xdp: bool,
    /// The TC program, and how: as a link (tcx) or as a filter (clsact).
    pub tc: Option<TcKind>,
}

/// How the TC program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcKind {
    /// A link (tcx, Linux 6.6): replaced in one instant, and pinned.
    Link,
    /// A filter of the clsact queueing discipline. Between the end of a gateway and the start of
    /// the next it stays.
    Filter,
}
