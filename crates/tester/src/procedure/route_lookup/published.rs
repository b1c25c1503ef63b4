//! What was first published of this procedure, to print beside our own.

use std::sync::LazyLock;

use super::summaries::{quantity, quantity_of_threads};
use crate::published::Published;

static SLIDES: LazyLock<Option<Published>> = LazyLock::new(|| Published::named("route-lookup"));

/// What was published for this family, these routes and threads; of the two figures for one thread,
/// that of the table's size.
#[must_use]
pub fn published(family: u8, routes: usize, threads: usize) -> Option<f64> {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let of = |quantity: &str, axis, at| SLIDES.as_ref()?.value("linux-4.4", quantity, axis, at);
    match threads {
        1 => of(&quantity(family), "routes", count(routes)),
        _ => of(&quantity_of_threads(family, routes), "threads", count(threads)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_the_size_of_the_table_or_by_the_threads() {
        assert_eq!(published(4, 100_000, 1), Some(190.0));
        assert_eq!(published(6, 1, 24), Some(23030.9));
        assert_eq!((published(6, 1, 3), published(4, 7, 1)), (None, None));
    }
}
