//! The colours of drawings. The library writes numbers; these become names of style variables, so
//! that a drawing follows the reader's light or dark page.
//!
//! Colours are from the palette of Okabe and Ito, which are told apart with any kind of colour
//! blindness, darkened for white paper and lightened for black; each gateway has a shape of its own
//! as well.

use plotters::style::RGBColor;

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(1, 0, 0);
/// Labels.
pub(super) const SOFT: RGBColor = RGBColor(2, 0, 0);
/// Lines behind the data.
pub(super) const GRID: RGBColor = RGBColor(3, 0, 0);
/// The page.
pub(super) const PAPER: RGBColor = RGBColor(4, 0, 0);
/// Colours of gateways; the last is what has none of its own.
pub(super) const SLOTS: usize = 8;

/// That of a slot, counted from 0.
pub(super) fn of_slot(slot: usize) -> RGBColor {
    RGBColor(10, u8::try_from(slot % SLOTS).unwrap_or(0), 0)
}

/// The drawing with style variables for colours.
pub(super) fn named(svg: &str) -> String {
    let mut svg = svg.to_owned();
    for (colour, name) in [(INK, "ink"), (SOFT, "soft"), (GRID, "grid"), (PAPER, "paper")] {
        svg = svg.replace(&written(colour), &format!("\"var(--{name})\""));
    }
    for slot in 0..SLOTS {
        svg = svg.replace(&written(of_slot(slot)), &format!("\"var(--s{})\"", slot + 1));
    }
    svg
}

fn written(RGBColor(red, green, blue): RGBColor) -> String {
    format!("\"#{red:02X}{green:02X}{blue:02X}\"")
}
