//! A file that is to be written, and what is to be done with it.

/// The device that a gateway makes.
pub(crate) const DEVICE: &str = "tombolo";

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name; all lie in one directory.
    pub name: &'static str,
    /// What stands in it.
    pub text: String,
    /// What it is, in a few words.
    pub about: &'static str,
    /// The commands that put it to use, with its path for `{}`.
    pub next: &'static [&'static str],
}
