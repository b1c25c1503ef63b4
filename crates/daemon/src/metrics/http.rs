//! HTTP/1.1 as far as metrics and pages need it: a request is read within a time, answered, and the
//! connection closed. Heads are parsed by httparse, as hyper does; the threads and their limits are the
//! listener's.

use std::io::{self, Read};
use std::time::Duration;

use crate::listener::{Stream, Within};

/// How long a client may take for its whole request, and for nothing of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest head of a request in bytes, and most fields in it.
const LONGEST: usize = 8192;
const FIELDS: usize = 64;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The path, without what is behind a question mark.
    pub(super) path: String,
    /// Only the head of the answer is wanted.
    pub(super) is_head: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: &'static str,
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Answer {
    /// Words.
    pub(super) fn text(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }
}

/// Reads a request and answers it. `crowded` is true for one client too many.
pub(super) fn serve(stream: &mut dyn Stream, crowded: bool, answer: impl FnOnce(&str) -> Answer) -> io::Result<()> {
    if crowded {
        return respond(stream, &Answer::text("503 Service Unavailable", "too many clients\n"), false);
    }
    let head = read_head(&mut Within::new(stream, PATIENCE))?;
    stream.set_deadlines(PATIENCE, PATIENCE)?;
    match parse(&head) {
        Ok(Request { path, is_head }) => respond(stream, &answer(&path), is_head),
        Err(status) => respond(stream, &Answer::text(status, format!("{status}\n")), false),
    }
}

/// The head of a request, up to the empty line.
fn read_head(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST {
        match stream.read(&mut piece)? {
            0 => break,
            length => head.extend_from_slice(&piece[..length]),
        }
    }
    Ok(head)
}

/// The request, or the status with which it is refused.
fn parse(head: &[u8]) -> Result<Request, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err("431 Request Header Fields Too Large"),
        Ok(httparse::Status::Partial) if head.len() >= LONGEST => return Err("431 Request Header Fields Too Large"),
        Ok(httparse::Status::Partial) | Err(_) => return Err("400 Bad Request"),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err("405 Method Not Allowed"),
    };
    let path = request.path.and_then(|path| path.split('?').next()).unwrap_or_default().to_owned();
    Ok(Request { path, is_head })
}

fn respond(stream: &mut dyn Stream, Answer { status, kind, body }: &Answer, is_head: bool) -> io::Result<()> {
    let length = body.len();
    // Nothing from elsewhere is loaded, and nothing is kept.
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    let body = if is_head { "" } else { body.as_str() };
    stream.write_all(format!("{head}{body}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_others_refused() {
        let asked = |head: &[u8]| parse(head).map(|request| (request.path, request.is_head));
        assert_eq!(asked(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), Ok(("/metrics".to_owned(), false)));
        assert_eq!(asked(b"HEAD /?x=1 HTTP/1.0\r\n\r\n"), Ok(("/".to_owned(), true)));
        assert_eq!(asked(b"POST /metrics HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        for wrong in [b"".as_slice(), b"GET", b"\xff\xfe", b"GET /metrics", b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a"] {
            assert_eq!(asked(wrong), Err("400 Bad Request"), "{wrong:?}");
        }
        let long = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'a'; LONGEST]].concat();
        assert_eq!(asked(&long), Err("431 Request Header Fields Too Large"));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(FIELDS + 1));
        assert_eq!(asked(many.as_bytes()), Err("431 Request Header Fields Too Large"));
    }
}
