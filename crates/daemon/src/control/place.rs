//! Where the control socket is, and which gateways run on this host.
//!
//! With a run directory it is there. Otherwise it is under `/run/tombolo`, in a directory named for
//! the gateway's device, and for its network namespace unless that is the host's own: names of
//! devices are unique in one only.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tombolo_config::Host;

/// Directory of gateways that have no run directory of their own.
pub const ROOT: &str = "/run/tombolo";
/// Name of the socket in its directory.
pub const SOCKET: &str = "control.sock";

/// The directory of the socket of a gateway with these settings.
#[must_use]
pub fn directory(settings: &Host) -> PathBuf {
    match &settings.run_directory {
        Some(directory) => directory.clone(),
        None => Path::new(ROOT).join(name(&settings.device)),
    }
}

/// Makes the directory, readable by its owner only, if it is not there.
///
/// # Errors
/// What the kernel says.
pub fn make(directory: &Path) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// What tells a gateway from others on this host: its device, and its network namespace if that is
/// not the host's.
#[must_use]
pub fn name(device: &str) -> String {
    match (namespace("self"), namespace("1")) {
        (Some(own), host) if host != Some(own) => format!("{device}@{own}"),
        _ => device.to_owned(),
    }
}

/// The number of a process's network namespace.
fn namespace(process: &str) -> Option<u64> {
    std::fs::metadata(format!("/proc/{process}/ns/net")).ok().map(|file| file.ino())
}

/// There is no one gateway to speak with.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// None runs.
    #[error(
        "no gateway runs here: no control socket under {ROOT} answers; start one with \"tombolo run -c FILE\", or name its \
         run directory with --gateway DIRECTORY"
    )]
    None,
    /// The one asked for does not run.
    #[error("no gateway runs at {place}: {reason}")]
    NotThere {
        /// Where it was looked for.
        place: PathBuf,
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
/// [`PlaceError`].
pub fn connect(wanted: Option<&str>) -> Result<UnixStream, PlaceError> {
    match wanted {
        Some(path) if path.contains('/') => connect_to(&socket_of(Path::new(path))),
        Some(device) => connect_to(&Path::new(ROOT).join(name(device)).join(SOCKET)).or_else(|error| {
            // It may be in another namespace.
            let named = |place: &PathBuf| directory_name(place).split('@').next() == Some(device);
            only(living().into_iter().filter(|(place, _)| named(place)).collect()).ok_or(error)?
        }),
        None => {
            let own = namespace("self").map(|own| format!("@{own}"));
            let (here, elsewhere): (Vec<_>, Vec<_>) = living().into_iter().partition(|(place, _)| {
                let name = directory_name(place);
                own.as_ref().is_some_and(|own| name.ends_with(own))
                    || namespace("self") == namespace("1") && !name.contains('@')
            });
            only(here).or_else(|| only(elsewhere)).unwrap_or(Err(PlaceError::None))
        }
    }
}

/// The only one of these; `None` if there is none.
fn only(mut found: Vec<(PathBuf, Result<UnixStream, PlaceError>)>) -> Option<Result<UnixStream, PlaceError>> {
    if found.len() > 1 {
        let names: Vec<_> =
            found.iter().filter_map(|(place, _)| place.parent()).map(|p| p.display().to_string()).collect();
        return Some(Err(PlaceError::Several(names.join(", "))));
    }
    found.pop().map(|(_, stream)| stream)
}

/// Sockets under the root at which somebody listens.
fn living() -> Vec<(PathBuf, Result<UnixStream, PlaceError>)> {
    let inside = std::fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path().join(SOCKET));
    let places = std::iter::once(Path::new(ROOT).join(SOCKET)).chain(inside);
    let tried = places.map(|place| {
        let stream = connect_to(&place);
        (place, stream)
    });
    tried.filter(|(_, stream)| !matches!(stream, Err(PlaceError::NotThere { .. }))).collect()
}

fn socket_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(SOCKET) } else { path.to_owned() }
}

fn directory_name(place: &Path) -> String {
    place.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn connect_to(place: &Path) -> Result<UnixStream, PlaceError> {
    UnixStream::connect(place).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => PlaceError::Denied(place.to_owned()),
        io::ErrorKind::ConnectionRefused => not_there(place, "its socket is there, but nobody listens any more"),
        _ => not_there(place, &error.to_string()),
    })
}

fn not_there(place: &Path, reason: &str) -> PlaceError {
    PlaceError::NotThere { place: place.to_owned(), reason: reason.to_owned() }
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

    #[test]
    fn the_run_directory_is_the_place_if_there_is_one() {
        let own = Host { run_directory: Some("/srv/gateway".into()), ..Host::default() };
        assert_eq!(directory(&own), Path::new("/srv/gateway"));
        let default = directory(&Host { device: "tun7".into(), ..Host::default() });
        assert!(default.starts_with(ROOT) && directory_name(&default.join(SOCKET)).starts_with("tun7"), "{default:?}");
    }
}
