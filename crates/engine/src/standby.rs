//! Whether a service leaves IPv4 to the host's own connection.

/// How a service does with native IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standby {
    /// It takes the packets of its hosts, whatever else there is.
    #[default]
    Never,
    /// It would stand by, but there is no native IPv4.
    Active,
    /// Native IPv4 works: packets of its hosts go there, past the gateway. What comes to it from the IPv6 side is
    /// served as ever, and its state stays.
    StandingBy,
}
