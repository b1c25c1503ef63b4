//! Ports that the host does not use for connections of its own: `net.ipv4.ip_local_reserved_ports`.
//!
//! The setting is everybody's: what others have reserved stays, and what was reserved here is given back.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;

const PATH: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
/// Longer than the list of all ports can be.
const LONGEST: usize = 1 << 19;

/// What was reserved here. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct ReservedPorts {
    /// Open from the start, since a restricted process cannot open it. None where it cannot be written, as in
    /// some containers.
    file: io::Result<File>,
    own: Ports,
}

/// A set of ports.
#[derive(Clone, PartialEq, Eq)]
struct Ports(Vec<bool>);

impl ReservedPorts {
    /// Those of the calling thread's network namespace.
    pub(super) fn open() -> Self {
        let file = File::options().read(true).write(true).open(PATH);
        Self { file, own: Ports::none() }
    }

    /// Ports that an earlier gateway has reserved and not given back are given back in its place.
    pub(super) fn inherit(&mut self, ports: RangeInclusive<u16>) {
        self.own.add(&ports);
    }

    /// Reserves `wanted`, and gives back what was reserved beside.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn follow(&mut self, wanted: &[RangeInclusive<u16>]) -> io::Result<()> {
        let mut wish = Ports::none();
        wanted.iter().for_each(|ports| wish.add(ports));
        if wish == self.own {
            return Ok(());
        }
        let file = self.file.as_ref().map_err(|error| io::Error::new(error.kind(), format!("{PATH}: {error}")))?;
        let mut text = vec![0; LONGEST];
        let length = file.read_at(&mut text, 0)?;
        let found = Ports::parse(&String::from_utf8_lossy(&text[..length]));
        let others = found.without(&self.own);
        file.write_all_at(others.with(&wish).text().as_bytes(), 0)?;
        self.own = wish.without(&others);
        Ok(())
    }
}

impl Drop for ReservedPorts {
    fn drop(&mut self) {
        // The namespace may be gone.
        let _ = self.follow(&[]);
    }
}

impl Ports {
    fn none() -> Self {
        Self(vec![false; 1 << 16])
    }

    fn add(&mut self, ports: &RangeInclusive<u16>) {
        ports.clone().for_each(|port| self.0[usize::from(port)] = true);
    }

    fn parse(text: &str) -> Self {
        let mut ports = Self::none();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
                ports.add(&(first..=last));
            }
        }
        ports
    }

    fn without(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(own, other)| *own && !other).collect())
    }

    fn with(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(own, other)| *own || *other).collect())
    }

    /// As the kernel reads it: a line, which ends the list.
    fn text(&self) -> String {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for port in self.0.iter().enumerate().filter(|(_, is_in)| **is_in).map(|(port, _)| port) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == port => *last = port,
                _ => ranges.push((port, port)),
            }
        }
        let words = ranges.iter().map(|(first, last)| format!("{first}-{last}"));
        words.collect::<Vec<_>>().join(",") + "\n"
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text().trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_and_written_as_the_kernel_does() {
        let ports = Ports::parse("80,8080-8082,8083\n");
        assert_eq!(ports.text(), "80-80,8080-8083\n");
        assert_eq!(Ports::parse("\n").text(), "\n");
        assert_eq!(ports.without(&Ports::parse("8081")).text(), "80-80,8080-8080,8082-8083\n");
        assert_eq!(Ports::parse("1").with(&Ports::parse("65535")).text(), "1-1,65535-65535\n");
    }
}
