//! TCP connections of which both ends say something all the time, and how long either of them heard nothing.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};

use crate::{LabError, Namespace, release::Release};

/// From one word to the next.
const PACE: Duration = Duration::from_millis(20);
/// Whoever is alive is heard within that, segments that were lost several times included.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection from a host to the server.
#[derive(Debug)]
pub struct Talk {
    name: String,
    /// The end of the host, and that of the server.
    ends: [TcpStream; 2],
}

/// What a connection has heard.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The connection.
    pub name: String,
    /// The longest time for which the host heard nothing, and the server.
    pub silence: [Duration; 2],
    /// Both ends have heard something after it was over.
    pub is_alive: bool,
}

/// When one end was heard, and the longest pause until now.
#[derive(Clone, Copy)]
struct Ear {
    last: Instant,
    longest: Duration,
}

impl Talk {
    /// Connects a host to a listener of the server's, from an address of the host's to `to`, the server as the host sees it.
    ///
    /// # Errors
    /// [`LabError::System`] when it is not answered.
    pub fn open(
        host: &Namespace,
        name: String,
        from: SocketAddr,
        to: SocketAddr,
        listener: &TcpListener,
    ) -> Result<Self, LabError> {
        let failed = |e| LabError::system(format!("connect {name} from {from} to {to}"), e);
        let near = host.run(|| connected(from, to))?.map_err(failed)?;
        let (far, _) = listener.accept().map_err(failed)?;
        for end in [&near, &far] {
            end.set_nonblocking(true).and_then(|()| end.set_nodelay(true)).map_err(failed)?;
        }
        Ok(Self { name, ends: [near, far] })
    }

    fn say(&self) {
        for mut end in &self.ends {
            // What finds no room is said later, and who is gone hears nothing.
            let _ = end.write(b"well?");
        }
    }

    fn listen(&self, ears: &mut [Ear; 2]) {
        for (mut end, ear) in self.ends.iter().zip(ears) {
            let mut bytes = [0; 4096];
            while let Ok(1..) = end.read(&mut bytes) {
                ear.longest = ear.longest.max(ear.last.elapsed());
                ear.last = Instant::now();
            }
        }
    }
}

/// A connection from an address that the host chooses.
///
/// # Errors
/// What the kernel says.
pub fn connected(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(from))?;
    loop {
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) => return Ok(TcpStream::from(socket)),
            Err(errno) if std::io::Error::from(errno).kind() == ErrorKind::Interrupted => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// What these connections hear while something is done. It ends when all have been heard again at both ends, or ten seconds later.
pub fn talking<T>(talks: &[Talk], during: impl FnOnce() -> T) -> (T, Vec<Heard>) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Release(&over);
        let over = &over;
        let thread = scope.spawn(move || talk(talks, over));
        let done = during();
        drop(ends);
        let heard = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (done, heard)
    })
}

fn talk(talks: &[Talk], over: &AtomicBool) -> Vec<Heard> {
    let begin = Ear { last: Instant::now(), longest: Duration::ZERO };
    let mut ears = vec![[begin; 2]; talks.len()];
    let mut ended = None;
    loop {
        let began = Instant::now();
        talks.iter().for_each(Talk::say);
        for (talk, ears) in talks.iter().zip(&mut ears) {
            talk.listen(ears);
        }
        if over.load(Ordering::Acquire) {
            let at = *ended.get_or_insert(began);
            let is_heard = |ear: &Ear| ear.last > at;
            if ears.iter().flatten().all(is_heard) || at.elapsed() >= PATIENCE {
                let of = |(talk, ears): (&Talk, &[Ear; 2])| Heard {
                    name: talk.name.clone(),
                    silence: ears.map(|ear| if is_heard(&ear) { ear.longest } else { ear.last.elapsed() }),
                    is_alive: ears.iter().all(is_heard),
                };
                return talks.iter().zip(&ears).map(of).collect();
            }
        }
        std::thread::sleep(PACE.saturating_sub(began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk() -> Talk {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        [&near, &far].iter().for_each(|end| end.set_nonblocking(true).unwrap());
        Talk { name: "one".to_owned(), ends: [near, far] }
    }

    #[test]
    fn both_ends_of_a_connection_hear_each_other() {
        let talks = [talk(), talk()];
        let ((), heard) = talking(&talks, || std::thread::sleep(Duration::from_millis(100)));
        assert!(heard.len() == 2 && heard.iter().all(|heard| heard.is_alive), "{heard:?}");
        // Each has heard something, more than once.
        assert!(heard.iter().flat_map(|heard| heard.silence).all(|silence| silence > Duration::ZERO), "{heard:?}");
    }
}
