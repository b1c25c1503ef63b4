//! An error and its causes as one line of the log.

/// An error and what is behind it, in one line.
#[must_use]
pub fn in_one_line(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        source = error.source();
    }
    words
}
