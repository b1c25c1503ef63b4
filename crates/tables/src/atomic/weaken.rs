//! Each ordering by its place in the source, and one of them weakened on request: so that a model
//! that passes is known to fail without it (`scripts/weaken.sh`).

use std::collections::BTreeSet;
use std::env;
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What an ordering is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An exchange or another read and write at once.
    Exchange,
    /// An exchange that fails.
    Failure,
    /// A fence.
    Fence,
}

/// An ordering in the source: `file:line:column kind ordering`.
pub type Site = String;

static MET: Mutex<BTreeSet<(&'static str, u32, u32, Kind, &'static str)>> = Mutex::new(BTreeSet::new());

/// The orderings that were met since the process began.
#[must_use]
pub fn sites() -> Vec<Site> {
    let met = MET.lock().unwrap_or_else(PoisonError::into_inner);
    let site = |(file, line, column, kind, order): &(&str, _, _, _, _)| {
        format!("{}:{line}:{column} {kind:?} {order}", file_name(file))
    };
    met.iter().map(site).collect()
}

struct Weaker {
    file: String,
    line: u32,
    column: u32,
    kind: String,
    order: Ordering,
}

impl Weaker {
    /// From `arena.rs:217:34 Exchange AcqRel>Acquire`.
    fn parse(wanted: &str) -> Option<Self> {
        let (site, order) = wanted.split_once('>')?;
        let (place, rest) = site.split_once(' ')?;
        let (kind, _) = rest.split_once(' ')?;
        let [file, line, column] = place.split(':').collect::<Vec<_>>().try_into().ok()?;
        let order = match order {
            "Relaxed" => Ordering::Relaxed,
            "Acquire" => Ordering::Acquire,
            "Release" => Ordering::Release,
            "AcqRel" => Ordering::AcqRel,
            _ => return None,
        };
        let (line, column) = (line.parse().ok()?, column.parse().ok()?);
        Some(Self { file: file.to_owned(), line, column, kind: kind.to_owned(), order })
    }

    fn is_at(&self, kind: Kind, place: &Location<'_>) -> bool {
        place.line() == self.line
            && place.column() == self.column
            && file_name(place.file()) == self.file
            && format!("{kind:?}") == self.kind
    }
}

fn requested() -> Option<&'static Weaker> {
    static REQUESTED: OnceLock<Option<Weaker>> = OnceLock::new();
    let parse = || {
        let wanted = env::var("TOMBOLO_WEAKEN").ok()?;
        let weaker = Weaker::parse(&wanted);
        assert!(weaker.is_some(), "TOMBOLO_WEAKEN={wanted}: not like `arena.rs:217:34 Exchange AcqRel>Acquire`");
        weaker
    };
    REQUESTED.get_or_init(parse).as_ref()
}

/// True if an ordering is weakened: some model has to fail.
#[must_use]
pub fn is_weakened() -> bool {
    requested().is_some()
}

pub(super) fn weakened(kind: Kind, order: Ordering, place: &'static Location<'static>) -> Ordering {
    if order == Ordering::Relaxed {
        return order;
    }
    match requested() {
        Some(weaker) if weaker.is_at(kind, place) => weaker.order,
        Some(_) => order,
        None => {
            let mut met = MET.lock().unwrap_or_else(PoisonError::into_inner);
            met.insert((place.file(), place.line(), place.column(), kind, name(order)));
            order
        }
    }
}

fn name(order: Ordering) -> &'static str {
    match order {
        Ordering::Relaxed => "Relaxed",
        Ordering::Acquire => "Acquire",
        Ordering::Release => "Release",
        Ordering::AcqRel => "AcqRel",
        _ => "SeqCst",
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
