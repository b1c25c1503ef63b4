//! A thread that listens and a thread for each client, for the control socket and the metrics.
//!
//! Plain threads and blocking sockets, no asynchronous runtime: a handful of clients at a time,
//! each reading memory that is shared anyway; what remains of tokio and axum here is a dependency
//! and a pool of threads beside pinned workers. Each client has a deadline, and there are at most
//! [`MOST`] of them, so that none can exhaust the process. Of those that have not said yet what they
//! want, or what they want next, the oldest makes room for one more: whoever connects and says nothing, or
//! says it byte by byte, keeps nobody out.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Clients served at a time.
pub const MOST: usize = 32;
/// How long a client has to say what it wants before it may have to make room.
const GRACE: Duration = Duration::from_millis(200);
/// Priority of threads that serve clients: packets come first.
const NICE: i32 = 10;

/// A client's connection.
pub trait Stream: io::Read + io::Write + Send + Sync + 'static {
    /// Sets how long reading and writing may take without any progress.
    ///
    /// # Errors
    /// What the kernel says.
    fn set_deadlines(&self, read: Duration, write: Duration) -> io::Result<()>;

    /// The same connection once more.
    ///
    /// # Errors
    /// What the kernel says.
    fn again(&self) -> io::Result<Box<dyn Stream>>;

    /// Ends the connection, for whoever reads or writes as well.
    fn sever(&self);

    /// The client has all that it wanted. Until it wants something else, it makes room for others.
    fn rest(&self) {}

    /// Nobody reads any more. Whoever only says nothing more is there.
    fn is_gone(&self) -> bool;
}

impl Stream for UnixStream {
    fn set_deadlines(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }

    fn again(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn sever(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    fn is_gone(&self) -> bool {
        has_hung_up(self.as_fd())
    }
}

impl Stream for TcpStream {
    fn set_deadlines(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(read))?;
        self.set_write_timeout(Some(write))
    }

    fn again(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn sever(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    fn is_gone(&self) -> bool {
        has_hung_up(self.as_fd())
    }
}

fn has_hung_up(connection: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::new(connection, PollFlags::empty())];
    let ended = PollFlags::POLLHUP | PollFlags::POLLERR;
    matches!(poll(&mut asked, PollTimeout::ZERO), Ok(1..))
        && asked[0].revents().is_some_and(|found| found.intersects(ended))
}

/// A connection that is read for so long in all, however little comes at a time.
pub struct Within<'s> {
    stream: &'s mut dyn Stream,
    deadline: Instant,
}

impl<'s> Within<'s> {
    /// From now on.
    pub fn new(stream: &'s mut dyn Stream, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }
}

impl io::Read for Within<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_deadlines(left, left)?;
        self.stream.read(buffer)
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

impl Socket {
    /// Whoever waits for a client waits no more: accept() fails from now on.
    fn shut(&self) {
        let socket = match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener) => listener.as_raw_fd(),
        };
        let _ = nix::sys::socket::shutdown(socket, nix::sys::socket::Shutdown::Both);
    }
}

/// A thread that listens. Ends, and takes its socket away, when dropped.
#[derive(Debug)]
pub struct Listener {
    stopping: Arc<AtomicBool>,
    socket: Arc<Socket>,
    thread: Option<JoinHandle<()>>,
    // Removed after the thread has ended.
    _file: Option<SocketFile>,
}

impl Listener {
    /// Listens on a TCP port.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn tcp(name: &str, address: SocketAddr, service: Arc<dyn Service>) -> io::Result<Self> {
        Self::start(name, Socket::Tcp(TcpListener::bind(address)?), None, service)
    }

    /// Listens on a Unix socket that only its owner may use. One that nobody listens on any more is
    /// replaced.
    ///
    /// # Errors
    /// `AddrInUse` if somebody listens there, or what the kernel says.
    pub fn unix(name: &str, path: &Path, service: Arc<dyn Service>) -> io::Result<Self> {
        let (listener, file) = SocketFile::bind(path)?;
        Self::start(name, Socket::Unix(listener), Some(file), service)
    }

    fn start(name: &str, socket: Socket, file: Option<SocketFile>, service: Arc<dyn Service>) -> io::Result<Self> {
        let (stopping, socket) = (Arc::new(AtomicBool::new(false)), Arc::new(socket));
        let (is_stopping, listening) = (Arc::clone(&stopping), Arc::clone(&socket));
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || accept_all(&listening, &is_stopping, &service))?;
        Ok(Self { stopping, socket, thread: Some(thread), _file: file })
    }
}

#[cfg(test)]
impl Listener {
    fn port(&self) -> u16 {
        match &*self.socket {
            Socket::Tcp(listener) => listener.local_addr().unwrap().port(),
            Socket::Unix(_) => 0,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.socket.shut();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept_all(socket: &Socket, stopping: &AtomicBool, service: &Arc<dyn Service>) {
    let clients = Arc::<Clients>::default();
    while !stopping.load(Ordering::Acquire) {
        let accepted: io::Result<Box<dyn Stream>> = match socket {
            Socket::Tcp(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
            Socket::Unix(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
        };
        match accepted {
            Ok(stream) if !stopping.load(Ordering::Acquire) => serve(stream, &clients, Arc::clone(service)),
            Ok(_) => {}
            Err(_) if stopping.load(Ordering::Acquire) => {}
            // Out of descriptors, mostly: let some clients go.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// A client that is served.
struct Client {
    /// Since when it has nothing: since it came, or has had its answer.
    since: Mutex<Instant>,
    /// It has not had all of what it wants.
    is_answered: AtomicBool,
    stream: Box<dyn Stream>,
}

impl Client {
    fn silence(&self) -> Duration {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn rest(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.is_answered.store(false, Ordering::Release);
    }
}

#[derive(Default)]
struct Clients(Mutex<Vec<Arc<Client>>>);

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, if there is room or one makes room.
    fn admit(&self, stream: &dyn Stream) -> Option<Arc<Client>> {
        let stream = stream.again().ok()?;
        let mut clients = self.lock();
        if clients.len() >= MOST {
            // They stand in the order in which they came.
            let is_silent =
                |client: &Arc<Client>| !client.is_answered.load(Ordering::Acquire) && client.silence() > GRACE;
            let place = clients.iter().position(is_silent)?;
            clients.remove(place).stream.sever();
        }
        let client =
            Arc::new(Client { since: Mutex::new(Instant::now()), is_answered: AtomicBool::new(false), stream });
        clients.push(Arc::clone(&client));
        Some(client)
    }

    fn leave(&self, client: &Arc<Client>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, client));
    }
}

/// The connection of a client, of which is noted whether it was answered.
struct Noted {
    stream: Box<dyn Stream>,
    client: Arc<Client>,
}

impl io::Read for Noted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl io::Write for Noted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.client.is_answered.store(true, Ordering::Release);
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Stream for Noted {
    fn set_deadlines(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.stream.set_deadlines(read, write)
    }

    fn again(&self) -> io::Result<Box<dyn Stream>> {
        self.stream.again()
    }

    fn sever(&self) {
        self.stream.sever();
    }

    fn rest(&self) {
        self.client.rest();
    }

    fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }
}

fn serve(mut stream: Box<dyn Stream>, clients: &Arc<Clients>, service: Arc<dyn Service>) {
    struct Leave(Arc<Clients>, Arc<Client>);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.leave(&self.1);
        }
    }
    let Some(admitted) = clients.admit(&*stream) else {
        // On the listening thread, and so it must not wait for this client.
        if stream.set_deadlines(Duration::from_millis(10), Duration::from_millis(10)).is_ok() {
            service.serve(&mut *stream, true);
        }
        return;
    };
    let leave = Leave(Arc::clone(clients), Arc::clone(&admitted));
    let client = std::thread::Builder::new().name("client".into());
    let result = client.spawn(move || {
        let _leave = leave;
        tombolo_io::worker::lower_priority(NICE);
        service.serve(&mut Noted { stream, client: admitted }, false);
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
    use std::io::{Read as _, Write as _};

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

    /// Waits a second for a line, and greets.
    struct Patient;

    impl Service for Patient {
        fn serve(&self, stream: &mut dyn Stream, crowded: bool) {
            let mut byte = [0];
            let mut reader = Within::new(stream, Duration::from_secs(1));
            while !crowded && byte != *b"\n" {
                if !matches!(reader.read(&mut byte), Ok(1)) {
                    return;
                }
            }
            let _ = stream.write_all(if crowded { b"full" } else { b"here" });
        }
    }

    #[test]
    fn clients_that_say_nothing_keep_nobody_out() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        let _listener = Listener::unix("test", &path, Arc::new(Patient)).unwrap();
        let mut silent: Vec<_> = (0..MOST).map(|_| UnixStream::connect(&path).unwrap()).collect();
        std::thread::sleep(2 * GRACE);
        for _ in 0..3 {
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(b"\n").unwrap();
            assert_eq!(&greeting(&client), b"here");
        }
        let mut end = Vec::new();
        silent[0].read_to_end(&mut end).unwrap();
        assert!(end.is_empty(), "the oldest had to go");
        // Nor does one that says something now and then stay longer than it may.
        let began = Instant::now();
        while silent[MOST - 1].write_all(b"x").is_ok() && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
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
        let address = SocketAddr::from(([127, 0, 0, 1], listener.port()));
        let mut greeting = [0; 4];
        TcpStream::connect(address).unwrap().read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"here");
        drop(listener);
        assert!(TcpStream::connect(address).is_err());
    }
}
