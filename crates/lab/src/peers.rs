//! Something to talk to: a tiny HTTP server and a UDP echo server, on threads inside a namespace.
//!
//! They are no products: one request a connection, one datagram an answer. They exist because what
//! a machine has installed (a Python? which netcat?) must not decide whether a lab can show that a
//! gateway works.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

use crate::{LabError, Namespace};

/// A peer's patience with a silent client.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server on a thread of its own; it ends when dropped.
#[derive(Debug)]
pub struct Peer {
    address: SocketAddr,
    last: Arc<Mutex<Option<SocketAddr>>>,
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<(), LabError>>>,
}

impl Peer {
    /// An HTTP server at `address` that answers every request with `body` as text/plain. It accepts
    /// connections when this returns.
    ///
    /// # Errors
    /// [`LabError::System`] when the address cannot be bound.
    pub fn http(namespace: &Namespace, address: SocketAddr, body: Vec<u8>) -> Result<Self, LabError> {
        let listener = bound(namespace, address, TcpListener::bind)?;
        Self::start(namespace, address, listener, move |listener, note| {
            let (stream, peer) = listener.accept()?;
            note(peer);
            answer(stream, &body)
        })
    }

    /// A UDP server at `address` that sends every datagram back. It answers when this returns. What
    /// comes while the machine has no time for it waits, some ten thousand datagrams.
    ///
    /// # Errors
    /// [`LabError::System`] when the address cannot be bound.
    pub fn udp_echo(namespace: &Namespace, address: SocketAddr) -> Result<Self, LabError> {
        let socket = bound(namespace, address, UdpSocket::bind)?;
        setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20))
            .map_err(|e| LabError::system("give a socket a buffer", e))?;
        let mut buffer = vec![0; 65_536];
        Self::start(namespace, address, socket, move |socket, note| {
            let (length, peer) = socket.recv_from(&mut buffer)?;
            note(peer);
            socket.send_to(&buffer[..length], peer).map(drop)
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From where it was last spoken to: what a translator has made of the client.
    #[must_use]
    pub fn last_client(&self) -> Option<SocketAddr> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves on a thread: `serve` is called whenever `socket` is readable. It notes who is served
    /// before it answers: whoever has the answer may ask for that at once.
    fn start<S: AsFd + Send + 'static>(
        namespace: &Namespace,
        address: SocketAddr,
        socket: S,
        mut serve: impl FnMut(&S, &dyn Fn(SocketAddr)) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, LabError> {
        let (stop, stopped) = UnixStream::pair().map_err(|e| LabError::system("make a socket pair", e))?;
        let last = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&last);
        let body = move || {
            let note = |peer| *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(peer);
            while wait(socket.as_fd(), stopped.as_fd()) {
                // A client that misbehaves is no reason to stop serving others.
                let _ = serve(&socket, &note);
            }
        };
        let thread = namespace.spawn(body)?;
        Ok(Self { address, last, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn bound<S: Send>(
    namespace: &Namespace,
    address: SocketAddr,
    bind: impl FnOnce(SocketAddr) -> io::Result<S> + Send,
) -> Result<S, LabError> {
    let action = || format!("listen on {address} in {}", namespace.name());
    namespace.run(|| bind(address))?.map_err(|e| LabError::system(action(), e))
}

/// Waits for something to read; false once the peer is to end.
fn wait(socket: BorrowedFd<'_>, stopped: BorrowedFd<'_>) -> bool {
    loop {
        let mut watched = [PollFd::new(stopped, PollFlags::POLLIN), PollFd::new(socket, PollFlags::POLLIN)];
        // Interrupted by a signal: neither is ready.
        let _ = poll(&mut watched, PollTimeout::NONE);
        if watched[0].any().unwrap_or(true) {
            return false;
        }
        if watched[1].any().unwrap_or(true) {
            return true;
        }
    }
}

/// Reads a request to the end of its head, whatever it asks for, and answers it.
fn answer(mut stream: TcpStream, body: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut buffer)?;
        if length == 0 || head.len() > 16_384 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&buffer[..length]);
    }
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(body)
}
