//! Drawings: lines over an axis, and dots beside names. Units at every axis, a bar from the smallest
//! to the largest value at every point, nothing else.

mod dots;
mod ink;
mod lines;
mod scale;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::results::{Bound, ReportError};

pub use dots::{Dot, Dots};
pub use lines::{Line, Lines, Sample};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const WIDTH: u32 = 860;
const FONT: i32 = 16;

/// What a line or dot is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dress {
    /// Colour and shape, counted from 0.
    pub slot: usize,
    /// Somebody else's figures: hollow and dashed.
    pub is_published: bool,
}

impl Dress {
    /// Its colour, counted from 0.
    #[must_use]
    pub fn colour(self) -> usize {
        self.slot % ink::SLOTS
    }

    /// Its shape: colours come again after some gateways, with another one.
    #[must_use]
    pub fn shape(self) -> usize {
        (self.slot + self.slot / ink::SLOTS) % 4
    }
}

/// A drawing that stands alone, with the colours that a page would give it.
#[must_use]
pub fn standalone(svg: &str) -> String {
    let style = include_str!("../report.css");
    // The variables, and what they are on dark paper; the rest is the page's.
    let end = style.find("\n* {").unwrap_or(style.len());
    let background = "<rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>";
    svg.find('>').map_or_else(String::new, |open| {
        format!("{}\n<style>{}</style>{background}{}", &svg[..=open], &style[..end], &svg[open + 1..])
    })
}

fn draw(title: &str, height: u32, with: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, ReportError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let drawn = with(&area).and_then(|()| Ok(area.present()?));
        drawn.map_err(|error| ReportError::Plot { title: title.to_owned(), why: error.to_string() })?;
    }
    Ok(ink::named(&svg))
}

fn text(size: i32, colour: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(colour)
}

/// So many pixels a text takes, about.
fn width_of(text: &str, size: i32) -> i32 {
    let characters = i32::try_from(text.chars().count()).unwrap_or(i32::MAX / 100);
    characters * size / 2
}

/// The shape of a slot around a place.
fn shape(area: &Area<'_>, (x, y): (i32, i32), dress: Dress) -> Drawn {
    const R: i32 = 5;
    let colour = ink::of_slot(dress.slot);
    let outline: Option<Vec<(i32, i32)>> = match dress.shape() {
        0 => None,
        1 => Some(vec![(x, y - R - 1), (x + R + 1, y + R - 1), (x - R - 1, y + R - 1)]),
        2 => Some(vec![(x - R + 1, y - R + 1), (x + R - 1, y - R + 1), (x + R - 1, y + R - 1), (x - R + 1, y + R - 1)]),
        _ => Some(vec![(x, y - R - 1), (x + R + 1, y), (x, y + R + 1), (x - R - 1, y)]),
    };
    let fill = if dress.is_published { ink::PAPER } else { colour };
    match outline {
        None => {
            area.draw(&Circle::new((x, y), R - 1, fill.filled()))?;
            area.draw(&Circle::new((x, y), R - 1, colour.stroke_width(2)))?;
        }
        Some(mut points) => {
            area.draw(&Polygon::new(points.clone(), fill.filled()))?;
            points.push(points[0]);
            area.draw(&PathElement::new(points, colour.stroke_width(2)))?;
        }
    }
    Ok(())
}

/// A bar between two places of the same x or y, with ends.
fn whiskers(area: &Area<'_>, from: (i32, i32), to: (i32, i32), slot: usize) -> Drawn {
    let colour = ink::of_slot(slot).stroke_width(1);
    let (dx, dy) = if from.0 == to.0 { (4, 0) } else { (0, 4) };
    area.draw(&PathElement::new(vec![from, to], colour))?;
    for (x, y) in [from, to] {
        area.draw(&PathElement::new(vec![(x - dx, y - dy), (x + dx, y + dy)], colour))?;
    }
    Ok(())
}

/// The sign of a bound, beside its point.
fn sign(area: &Area<'_>, (x, y): (i32, i32), bound: Bound) -> Drawn {
    area.draw(&Text::new(bound.sign().trim(), (x + 7, y - 16), text(FONT + 1, &ink::INK)))?;
    Ok(())
}
