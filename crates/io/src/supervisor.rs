//! The service manager that has started this process, and what it is told: sd_notify(3) of systemd.
//!
//! The socket is opened once, at the start: a process that has given up its privileges opens no other. Nobody
//! waits for a manager that does not read.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::clock::monotonic_nanos;

/// What the process was started by. Without one nothing is told.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that the process lives.
    pulse: Option<Duration>,
}

impl Supervisor {
    /// The one that the environment names (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).
    ///
    /// # Errors
    /// The socket cannot be reached.
    pub fn of_environment() -> io::Result<Self> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let word = |name| std::env::var(name).ok();
        let pulse = pulse_of(word("WATCHDOG_USEC").as_deref(), word("WATCHDOG_PID").as_deref(), std::process::id());
        Self::at(&name, pulse)
    }

    /// The one that listens at `name`, which begins with `@` if it is abstract.
    fn at(name: &OsStr, pulse: Option<Duration>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        match name.as_bytes() {
            [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            _ => socket.connect(name)?,
        }
        Ok(Self { socket: Some(socket), pulse })
    }

    /// How often [`alive`](Self::alive) is due: twice as often as the manager loses patience.
    #[must_use]
    pub const fn pulse(&self) -> Option<Duration> {
        self.pulse
    }

    /// The start, or a reload, is complete.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// The configuration is being read again.
    pub fn reloading(&self) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_nanos() / 1000));
    }

    /// The process ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// The process lives.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    /// How it does, for people.
    pub fn status(&self, text: &str) {
        self.tell(&format!("STATUS={}", text.replace('\n', " ")));
    }

    fn tell(&self, what: &str) {
        // One that has gone away, or does not read, is no reason to stop.
        let _ = self.socket.as_ref().map(|socket| socket.send(what.as_bytes()));
    }
}

/// Half of the manager's patience, if it is this process that it means.
fn pulse_of(patience: Option<&str>, whom: Option<&str>, own: u32) -> Option<Duration> {
    let is_meant = whom.is_none_or(|whom| whom.parse() == Ok(own));
    let micros: u64 = patience?.parse().ok().filter(|micros| *micros > 0)?;
    is_meant.then(|| Duration::from_micros(micros) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 200];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn a_manager_is_told_by_a_path_or_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("tombolo-supervisor-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, name) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())] {
            let supervisor = Supervisor::at(&name, None).unwrap();
            supervisor.ready();
            assert_eq!(heard(&socket), "READY=1");
            supervisor.status("one\ntwo");
            assert_eq!(heard(&socket), "STATUS=one two");
            supervisor.reloading();
            assert!(heard(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        }
    }

    #[test]
    fn a_manager_that_does_not_read_keeps_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::at(path.as_os_str(), None).unwrap();
        (0..10_000).for_each(|_| supervisor.alive());
        assert_eq!(heard(&socket), "WATCHDOG=1");
        drop(socket);
        supervisor.alive();
    }

    #[test]
    fn a_pulse_is_due_in_half_of_the_managers_patience() {
        let pulse = |patience, whom| pulse_of(patience, whom, 7);
        assert_eq!(pulse(Some("30000000"), None), Some(Duration::from_secs(15)));
        assert_eq!(pulse(Some("30000000"), Some("7")), Some(Duration::from_secs(15)));
        assert_eq!(pulse(Some("30000000"), Some("8")), None);
        assert_eq!(pulse(Some("0"), None), None);
        assert_eq!(pulse(None, Some("7")), None);
        assert_eq!(pulse(Some("soon"), None), None);
    }
}
