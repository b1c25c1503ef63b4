//! The system's log: one datagram a line to `/dev/log` (RFC 3164 section 4.1, as syslog(3) has it).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

/// Facility "daemon" (3), severity "informational" (6); severities of their own are in the text.
const PRIORITY: u8 = 3 << 3 | 6;

/// An open connection to the system's log.
#[derive(Debug, Clone)]
pub(crate) struct Syslog {
    socket: Arc<UnixDatagram>,
    tag: &'static str,
}

impl Syslog {
    /// Opens it, for lines that begin with `tag` and the number of the process.
    pub(crate) fn open(tag: &'static str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect("/dev/log")?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Arc::new(socket), tag })
    }
}

impl io::Write for Syslog {
    /// Takes one line. A log that is gone or full is no reason to stop.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut message = format!("<{PRIORITY}>{}[{}]: ", self.tag, std::process::id()).into_bytes();
        message.extend_from_slice(line.trim_ascii());
        let _ = self.socket.send(&message);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
