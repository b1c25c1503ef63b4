//! The report: what result files say, as one page to read.
//!
//! Reading order: [`results`] reads the lines that `tombolo bench` has written; [`document()`] says in
//! which order they are shown and beside which published figures; [`mod@document`] is the page before it
//! is HTML or Markdown, [`html`] and [`markdown`] are the two; [`plot`] draws. [`compare`] sets two
//! runs side by side, [`bars`] judges by the speeds that the design asks for.
//!
//! # Invariants
//! - Only result files are read: nothing is measured, looked up or computed anew that is not in
//!   them, and none of the crates that wrote them is imported.
//! - A value is never shown without its mark: a bound has its sign, a doubtful value its footnote, a
//!   missing value its reason.
//! - The page needs no script, no style sheet and no picture from elsewhere.

#![forbid(unsafe_code)]

pub mod bars;
pub mod compare;
pub mod document;
pub mod drawings;
pub mod html;
pub mod markdown;
mod number;
pub mod plot;
pub mod results;
mod sections;

pub use compare::Comparison;
pub use results::{ReportError, Results};
pub use sections::document;
