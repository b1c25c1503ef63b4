//! Whether the host forwards packets at all.

/// Whether the host forwards packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// `net.ipv4.ip_forward`.
    pub ipv4: Switch,
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6: Switch,
}

/// A sysctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// Not 0.
    On,
    /// 0.
    Off,
    /// It cannot be read.
    Unknown,
}

impl Forwarding {
    /// Reads both settings, for the network namespace of the calling thread.
    #[must_use]
    pub fn read() -> Self {
        Self {
            ipv4: read_switch("/proc/sys/net/ipv4/ip_forward"),
            ipv6: read_switch("/proc/sys/net/ipv6/conf/all/forwarding"),
        }
    }

    /// The commands that switch on what is off.
    #[must_use]
    pub fn remedies(self) -> Vec<&'static str> {
        let commands =
            [(self.ipv4, "sysctl -w net.ipv4.ip_forward=1"), (self.ipv6, "sysctl -w net.ipv6.conf.all.forwarding=1")];
        commands.into_iter().filter(|(switch, _)| *switch == Switch::Off).map(|(_, command)| command).collect()
    }
}

fn read_switch(path: &str) -> Switch {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim() == "0" => Switch::Off,
        Ok(_) => Switch::On,
        Err(_) => Switch::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_that_is_off_comes_with_its_command() {
        let forwarding = Forwarding { ipv4: Switch::Off, ipv6: Switch::On };
        assert_eq!(forwarding.remedies(), ["sysctl -w net.ipv4.ip_forward=1"]);
        let unknown = Forwarding { ipv4: Switch::Unknown, ipv6: Switch::Off };
        assert_eq!(unknown.remedies(), ["sysctl -w net.ipv6.conf.all.forwarding=1"]);
    }
}
