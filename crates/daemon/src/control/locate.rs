//! Which gateway of this host is meant, and a connection to it.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::directories::{ROOT, SOCKET, STATE, name, namespace};

/// There is no one gateway to speak with.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// None runs.
    #[error(
        "no gateway runs here: no control socket under {ROOT} or {STATE} answers; start one with \"tombolo run -c FILE\", or name its \
         run directory with --gateway DIRECTORY"
    )]
    None,
    /// The one asked for does not run.
    #[error("no gateway runs at {socket}: {reason}")]
    NotThere {
        /// Where it was looked for.
        socket: PathBuf,
        /// What came of it.
        reason: String,
    },
    /// Several run.
    #[error("several gateways run on this host: choose one with --gateway, out of {0}")]
    Several(String),
    /// Not allowed.
    #[error(
        "the control socket {0} may only be used by its owner: run as root, or as the user that the gateway runs as"
    )]
    Denied(PathBuf),
}

/// Connects to the gateway called `wanted`: its name (that of its device), its run directory, or
/// its socket. Without a name, to the only one that runs in this network namespace, or else on this
/// host.
///
/// # Errors
/// [`LocateError`].
pub fn connect(wanted: Option<&str>) -> Result<UnixStream, LocateError> {
    match wanted {
        Some(path) if path.contains('/') => connect_to(&socket_of(Path::new(path))),
        Some(device) => connect_to(&Path::new(ROOT).join(name(device)).join(SOCKET)).or_else(|error| {
            // It may be in another namespace.
            let named = |socket: &PathBuf| directory_name(socket).split('@').next() == Some(device);
            only(living().into_iter().filter(|(socket, _)| named(socket)).collect()).ok_or(error)?
        }),
        None => {
            let own = namespace("self").map(|own| format!("@{own}"));
            let (here, elsewhere): (Vec<_>, Vec<_>) = living().into_iter().partition(|(socket, _)| {
                let name = directory_name(socket);
                own.as_ref().is_some_and(|own| name.ends_with(own))
                    || namespace("self") == namespace("1") && !name.contains('@')
            });
            only(here).or_else(|| only(elsewhere)).unwrap_or(Err(LocateError::None))
        }
    }
}

/// The only one of these; `None` if there is none.
fn only(mut found: Vec<(PathBuf, Result<UnixStream, LocateError>)>) -> Option<Result<UnixStream, LocateError>> {
    if found.len() > 1 {
        let names: Vec<_> =
            found.iter().filter_map(|(socket, _)| socket.parent()).map(|p| p.display().to_string()).collect();
        return Some(Err(LocateError::Several(names.join(", "))));
    }
    found.pop().map(|(_, stream)| stream)
}

/// Sockets in the usual places at which somebody listens.
fn living() -> Vec<(PathBuf, Result<UnixStream, LocateError>)> {
    let inside = |root| std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let directories =
        [ROOT, STATE].into_iter().flat_map(|root| std::iter::once(PathBuf::from(root)).chain(inside(root)));
    let tried = directories.map(|directory| {
        let socket = directory.join(SOCKET);
        let stream = connect_to(&socket);
        (socket, stream)
    });
    tried.filter(|(_, stream)| !matches!(stream, Err(LocateError::NotThere { .. }))).collect()
}

fn socket_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(SOCKET) } else { path.to_owned() }
}

fn directory_name(socket: &Path) -> String {
    socket.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn connect_to(socket: &Path) -> Result<UnixStream, LocateError> {
    UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => LocateError::Denied(socket.to_owned()),
        io::ErrorKind::ConnectionRefused => not_there(socket, "its socket is there, but nobody listens any more"),
        _ => not_there(socket, &error.to_string()),
    })
}

fn not_there(socket: &Path, reason: &str) -> LocateError {
    LocateError::NotThere { socket: socket.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_gateway_is_found_by_its_run_directory_or_socket() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().to_str().unwrap();
        let error = connect(Some(directory)).unwrap_err().to_string();
        assert!(error.starts_with("no gateway runs at "), "{error}");
        let socket = home.path().join(SOCKET);
        let listener = UnixListener::bind(&socket).unwrap();
        connect(Some(directory)).unwrap();
        connect(Some(socket.to_str().unwrap())).unwrap();
        drop(listener);
        let error = connect(Some(directory)).unwrap_err().to_string();
        assert!(error.contains("nobody listens any more"), "{error}");
    }
}
