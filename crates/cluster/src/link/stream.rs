//! A connection in TLS that nobody waits for: what is there is taken, and what there is room for is sent.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustls::Connection;

use super::frame::{Frame, FrameError};
use super::{ALIVE, PERIOD, SILENCE};

/// A connection is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// The network, or TLS.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What the other end says.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Nothing came.
    #[error("it has said nothing for {} seconds", SILENCE.as_secs())]
    Silent,
}

/// How long is waited for the other end to hear why a connection is over.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Bytes that wait here to be taken, and a piece more: the next ones wait at the other end, which TCP tells so.
const INBOX: usize = 256 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) tls: Connection,
    socket: TcpStream,
    /// What came and is no whole frame yet.
    inbox: Vec<u8>,
    /// So much of it was taken.
    taken: usize,
    heard: Instant,
    said: Instant,
    /// The other end has closed, which is said when what it has said before was heard.
    is_closed: bool,
}

impl Stream {
    /// A connection that is there, whose handshake has not begun.
    pub(super) fn new(socket: TcpStream, mut tls: Connection) -> io::Result<Self> {
        // Who says something asks first whether there is room.
        tls.set_buffer_limit(None);
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let now = Instant::now();
        Ok(Self { tls, socket, inbox: Vec::new(), taken: 0, heard: now, said: now, is_closed: false })
    }

    /// Shakes hands.
    pub(super) fn shake_hands(&mut self, limit: Duration, is_over: &dyn Fn() -> bool) -> Result<(), StreamError> {
        let began = Instant::now();
        while self.tls.is_handshaking() {
            self.pump()?;
            if began.elapsed() > limit || is_over() {
                return Err(StreamError::Silent);
            }
            std::thread::sleep(PERIOD);
        }
        Ok(())
    }

    /// Whether everything that was said has left.
    pub(super) fn has_room(&self) -> bool {
        !self.tls.wants_write()
    }

    /// Says something; it leaves with the next [`pump`](Self::pump).
    pub(super) fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.said = Instant::now();
        self.tls.writer().write_all(bytes)
    }

    /// Sends and receives what can be; true if something was received.
    pub(super) fn pump(&mut self) -> Result<bool, StreamError> {
        if self.said.elapsed() >= ALIVE && !self.tls.is_handshaking() {
            let mut alive = Vec::new();
            Frame::Alive.emit(&mut alive);
            self.say(&alive)?;
        }
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(_) => {}
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if self.is_closed {
            return Err(io::Error::new(ErrorKind::ConnectionReset, "it has closed the connection").into());
        }
        let heard = self.listen()?;
        if heard {
            self.heard = Instant::now();
        } else if self.heard.elapsed() > SILENCE {
            return Err(StreamError::Silent);
        }
        Ok(heard)
    }

    fn listen(&mut self) -> Result<bool, StreamError> {
        let mut has_heard = false;
        for _ in 0..16 {
            if self.inbox.len() - self.taken > INBOX {
                return Ok(true);
            }
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => {
                    self.is_closed = true;
                    return Ok(true);
                }
                Ok(_) => {
                    has_heard = true;
                    let state = self.tls.process_new_packets();
                    if let Err(error) = state {
                        // Why is to be said to the other end as well.
                        let _ = self.tls.write_tls(&mut self.socket);
                        return Err(io::Error::new(ErrorKind::InvalidData, error).into());
                    }
                    self.take_plain()?;
                }
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(has_heard)
    }

    fn take_plain(&mut self) -> io::Result<()> {
        self.inbox.drain(..self.taken);
        self.taken = 0;
        loop {
            let before = self.inbox.len();
            self.inbox.resize(before + PIECE, 0);
            let read = self.tls.reader().read(&mut self.inbox[before..]);
            self.inbox.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The next frame that came.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let Some((frame, bytes)) = Frame::parse(&self.inbox[self.taken..])? else { return Ok(None) };
        self.taken += bytes;
        Ok(Some(frame))
    }

    /// Waits for the next frame.
    pub(super) fn wait(&mut self, limit: Duration, is_over: &dyn Fn() -> bool) -> Result<Frame<'static>, StreamError> {
        let began = Instant::now();
        loop {
            self.pump()?;
            let frame = match self.next()? {
                Some(Frame::Hello(hello)) => Some(Frame::Hello(hello)),
                Some(Frame::Welcome { version, held }) => Some(Frame::Welcome { version, held }),
                Some(Frame::Refusal(words)) => Some(Frame::Refusal(words)),
                Some(
                    Frame::Batch(_)
                    | Frame::Applied(_)
                    | Frame::Alive
                    | Frame::Vouch
                    | Frame::Took(_)
                    | Frame::Ask(_)
                    | Frame::Promise(_)
                    | Frame::Unseen,
                )
                | None => None,
            };
            if let Some(frame) = frame {
                return Ok(frame);
            }
            if began.elapsed() > limit || is_over() {
                return Err(StreamError::Silent);
            }
            std::thread::sleep(PERIOD);
        }
    }

    /// Says something last, and closes.
    pub(super) fn leave(mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        let _ = self.say(&bytes);
        self.tls.send_close_notify();
        // Who closes while something is still to be read takes back what was said last.
        let began = Instant::now();
        while !self.is_closed && began.elapsed() < PATIENCE && self.pump().is_ok() {
            self.taken = self.inbox.len();
            if self.has_room() {
                let _ = self.socket.shutdown(Shutdown::Write);
            }
            std::thread::sleep(PERIOD);
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::super::terms::Terms;
    use super::*;

    fn certificate(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/certificates/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// Both ends of a connection on this host.
    fn pair() -> (Stream, Stream) {
        let of = |node: &str| {
            let [certificate, key] = ["pem", "key"].map(|kind| certificate(&format!("{node}.{kind}")));
            Terms::new(&self::certificate("ca.pem"), &certificate, &key).unwrap()
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut client = Stream::new(client, of("n1").client("n2").unwrap()).unwrap();
        let mut server = Stream::new(server, of("n2").server().unwrap()).unwrap();
        while client.tls.is_handshaking() || server.tls.is_handshaking() {
            client.pump().unwrap();
            server.pump().unwrap();
        }
        (client, server)
    }

    #[test]
    fn what_is_not_taken_waits_at_the_other_end() {
        const FRAMES: usize = 2000;
        let (mut client, mut server) = pair();
        let mut frame = Vec::new();
        Frame::Batch(&[7; 16_000]).emit(&mut frame);
        (0..FRAMES).for_each(|_| client.say(&frame).unwrap());
        for _ in 0..2000 {
            client.pump().unwrap();
            server.pump().unwrap();
        }
        assert!((INBOX..INBOX + 2 * PIECE).contains(&server.inbox.len()), "{} bytes", server.inbox.len());
        let mut taken = 0;
        while taken < FRAMES {
            while let Some(frame) = server.next().unwrap() {
                // On a slow machine the other end says in between that it lives.
                if frame == Frame::Alive {
                    continue;
                }
                assert_eq!(frame, Frame::Batch(&[7; 16_000]));
                taken += 1;
            }
            client.pump().unwrap();
            server.pump().unwrap();
        }
    }
}
