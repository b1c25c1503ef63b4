//! A thread that listens and a thread for each client, for the control socket and the metrics.
//!
//! Plain threads and blocking sockets, no asynchronous runtime: a handful of clients at a time,
//! each reading memory that is shared anyway; what remains of tokio and axum here is a dependency
//! and a pool of threads beside pinned workers. Each client has a deadline, and there are at most
//! [`MOST`] of them, so that none can exhaust the process.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Clients served at a time.
pub const MOST: usize = 32;
/// Priority of threads that serve clients: packets come first.
const NICE: i32 = 10;

/// A client's connection.
pub trait Stream: io::Read + io::Write + Send + 'static {
    /// Sets how long reading and writing may take without any progress.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_deadlines(&self, read: Duration, write: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn set_deadlines(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }
}

impl Stream for TcpStream {
    fn set_deadlines(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }
}

/// What is done with a client. `crowded` is true for one too many, which only gets to know that.
pub trait Service: Send + Sync + 'static {
    /// Serves a client until it has what it wants.
    fn serve(&self, stream: &mut dyn Stream, crowded: bool);
}

/// Somewhere to listen.
#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A thread that listens. Ends, and takes its socket away, when dropped.
#[derive(Debug)]
pub struct Listener {
    stopping: Arc<AtomicBool>,
    wake: Wake,
    thread: Option<JoinHandle<()>>,
    // Removed after the thread has ended.
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum Wake {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listener {
    /// Listens on a TCP port.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn tcp(name: &str, address: SocketAddr, service: Arc<dyn Service>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let wake = Wake::Tcp(listener.local_addr()?);
        Self::start(name, Socket::Tcp(listener), None, wake, service)
    }

    /// Listens on a Unix socket that only its owner may use. One that nobody listens on any more is
    /// replaced.
    ///
    /// # Errors
    /// `AddrInUse` if somebody listens there, or what the kernel says.
    pub fn unix(name: &str, path: &Path, service: Arc<dyn Service>) -> io::Result<Self> {
        let (listener, file) = SocketFile::bind(path)?;
        Self::start(name, Socket::Unix(listener), Some(file), Wake::Unix(path.to_owned()), service)
    }

    fn start(
        name: &str,
        socket: Socket,
        file: Option<SocketFile>,
        wake: Wake,
        service: Arc<dyn Service>,
    ) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let is_stopping = Arc::clone(&stopping);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || accept_all(&socket, &is_stopping, &service))?;
        Ok(Self { stopping, wake, thread: Some(thread), _file: file })
    }

    /// The port listened on, if it is a TCP port.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match &self.wake {
            Wake::Tcp(address) => Some(address.port()),
            Wake::Unix(_) => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // accept() has no other end than a client.
        let woken = match &self.wake {
            Wake::Tcp(address) => TcpStream::connect_timeout(&reachable(*address), Duration::from_secs(1)).is_ok(),
            Wake::Unix(path) => UnixStream::connect(path).is_ok(),
        };
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => ([127, 0, 0, 1], v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => ([0_u16, 0, 0, 0, 0, 0, 0, 1], v6.port()).into(),
        other => other,
    }
}

fn accept_all(socket: &Socket, stopping: &AtomicBool, service: &Arc<dyn Service>) {
    let clients = Arc::new(AtomicUsize::new(0));
    while !stopping.load(Ordering::Acquire) {
        let accepted: io::Result<Box<dyn Stream>> = match socket {
            Socket::Tcp(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
            Socket::Unix(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
        };
        match accepted {
            Ok(stream) if !stopping.load(Ordering::Acquire) => serve(stream, &clients, Arc::clone(service)),
            Ok(_) => {}
            // Out of descriptors, mostly: let some clients go.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn serve(mut stream: Box<dyn Stream>, clients: &Arc<AtomicUsize>, service: Arc<dyn Service>) {
    struct Leave(Arc<AtomicUsize>);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
    let crowded = clients.fetch_add(1, Ordering::AcqRel) >= MOST;
    let leave = Leave(Arc::clone(clients));
    if crowded {
        // On the listening thread, and so it must not wait for this client.
        if stream.set_deadlines(Duration::from_millis(10), Duration::from_millis(10)).is_ok() {
            service.serve(&mut *stream, true);
        }
        return;
    }
    let client = std::thread::Builder::new().name("client".into());
    let result = client.spawn(move || {
        let _leave = leave;
        tombolo_io::worker::lower_priority(NICE);
        service.serve(&mut *stream, false);
    });
    if let Err(error) = result {
        tracing::warn!("no thread for a client: {error}");
    }
}

/// The file of a Unix socket; it is removed when dropped, unless another has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    /// Binds to a name of its own, sets the permissions, and only then takes its place: there is no
    /// moment at which others could connect.
    fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let own = path.with_extension(std::process::id().to_string());
        let _ = std::fs::remove_file(&own);
        let listener = UnixListener::bind(&own)?;
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600))?;
        let inode = std::fs::metadata(&own)?.ino();
        std::fs::rename(&own, path)?;
        Ok((listener, Self { path: path.to_owned(), inode }))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// Says who it is and waits for the client to go.
    struct Greeter;

    impl Service for Greeter {
        fn serve(&self, stream: &mut dyn Stream, crowded: bool) {
            let _ = stream.write_all(if crowded { b"full" } else { b"here" });
            if !crowded {
                let _ = stream.read(&mut [0]);
            }
        }
    }

    fn greeting(mut stream: &UnixStream) -> [u8; 4] {
        let mut greeting = [0; 4];
        stream.read_exact(&mut greeting).unwrap();
        greeting
    }

    #[test]
    fn clients_are_served_at_once_and_one_too_many_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        let listener = Listener::unix("test", &path, Arc::new(Greeter)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let clients: Vec<_> = (0..MOST).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert!(clients.iter().all(|client| &greeting(client) == b"here"));
        assert_eq!(&greeting(&UnixStream::connect(&path).unwrap()), b"full");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let first = Listener::unix("test", &path, Arc::new(Greeter)).unwrap();
        let second = Listener::unix("test", &path, Arc::new(Greeter));
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        Listener::unix("test", &path, Arc::new(Greeter)).unwrap();
    }

    #[test]
    fn a_tcp_listener_ends_when_dropped() {
        let listener = Listener::tcp("test", ([127, 0, 0, 1], 0).into(), Arc::new(Greeter)).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], listener.port().unwrap()));
        let mut greeting = [0; 4];
        TcpStream::connect(address).unwrap().read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"here");
        drop(listener);
        assert!(TcpStream::connect(address).is_err());
    }
}
