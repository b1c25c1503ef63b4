//! Values over an axis: one line each gateway.

use plotters::prelude::*;

use super::scale::Scale;
use super::{Area, Drawn, Dress, FONT, WIDTH, draw, ink, shape, sign, text, whiskers, width_of};
use crate::number;
use crate::results::{Bound, ReportError};

/// A drawing of lines.
#[derive(Clone, Debug)]
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// What varies, with its unit.
    pub x: String,
    /// What was measured, with its unit.
    pub y: String,
    /// The lines.
    pub lines: Vec<Line>,
    /// Marked at the measured points; else at round numbers.
    pub is_marked_at_points: bool,
    /// Too many points for a shape each.
    pub is_dense: bool,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Whose.
    pub name: String,
    /// Its colour and shape.
    pub dress: Dress,
    /// From left to right.
    pub samples: Vec<Sample>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
    /// Smallest and largest value, where there are several.
    pub range: Option<(f64, f64)>,
    /// The value is a bound.
    pub bound: Option<Bound>,
    /// Something between it and the one before has no value: no line leads here.
    pub is_after_gap: bool,
}

const HEIGHT: u32 = 390;
const ROW: i32 = 24;

impl Lines {
    /// The drawing.
    ///
    /// # Errors
    /// If the library cannot.
    pub fn svg(&self) -> Result<String, ReportError> {
        let legend = self.legend();
        let rows = legend.iter().map(|(_, (_, y))| y / ROW + 1).max().unwrap_or(0);
        let top = rows * ROW + 8;
        draw(&self.title, HEIGHT + u32::try_from(top).unwrap_or(0), |area| {
            let (above, below) = area.split_vertically(top);
            for (line, place) in legend {
                entry(&above, line, place)?;
            }
            self.plot(&below, top)
        })
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.lines.iter().flat_map(|line| &line.samples)
    }

    /// The lines' names with their places, left to right and row by row.
    fn legend(&self) -> Vec<(&Line, (i32, i32))> {
        let (mut x, mut y) = (70, 0);
        let most = i32::try_from(WIDTH).unwrap_or(i32::MAX) - 20;
        let mut places = Vec::new();
        for line in &self.lines {
            let width = 52 + width_of(&line.name, FONT);
            if x + width > most && x > 70 {
                (x, y) = (70, y + ROW);
            }
            places.push((line, (x, y)));
            x += width;
        }
        places
    }

    fn plot(&self, area: &Area<'_>, top: i32) -> Drawn {
        let xs = self.samples().map(|sample| sample.x);
        let x = if self.is_marked_at_points { Scale::of_points(xs) } else { Scale::of_values(xs) };
        let heights = self.samples().flat_map(|sample| {
            let (low, high) = sample.range.unwrap_or((sample.y, sample.y));
            [sample.y, low, high]
        });
        let y = Scale::of_values(heights);
        let floor = y.start();
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(46)
            .y_label_area_size(78)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(ink::GRID)
            .axis_style(ink::SOFT)
            .x_desc(&self.x)
            .y_desc(&self.y)
            .axis_desc_style(text(FONT, &ink::INK))
            .label_style(text(FONT - 1, &ink::SOFT))
            .x_label_formatter(&|value| number::count(*value))
            .y_label_formatter(&|value| number::count(*value))
            .draw()?;
        let place = |sample: &Sample, value: f64| {
            let (x, y) = chart.backend_coord(&(sample.x, value.max(floor)));
            (x, y - top)
        };
        for line in &self.lines {
            let colour = ink::of_slot(line.dress.slot);
            for part in line.samples.chunk_by(|_, next| !next.is_after_gap) {
                let path: Vec<(i32, i32)> = part.iter().map(|sample| place(sample, sample.y)).collect();
                match line.dress.is_published {
                    true => dashed(area, &path, colour)?,
                    false => area.draw(&PathElement::new(path, colour.stroke_width(2)))?,
                }
            }
            for sample in &line.samples {
                if let Some((low, high)) = sample.range.filter(|(low, high)| low < high) {
                    whiskers(area, place(sample, low), place(sample, high), line.dress.slot)?;
                }
            }
            for sample in line.samples.iter().filter(|_| !self.is_dense) {
                shape(area, place(sample, sample.y), line.dress)?;
                sample.bound.map_or(Ok(()), |bound| sign(area, place(sample, sample.y), bound))?;
            }
        }
        Ok(())
    }
}

/// A name with its line and shape.
fn entry(area: &Area<'_>, line: &Line, (x, y): (i32, i32)) -> Drawn {
    let middle = y + ROW / 2;
    let path = [(x, middle), (x + 30, middle)];
    let colour = ink::of_slot(line.dress.slot);
    match line.dress.is_published {
        true => dashed(area, &path, colour)?,
        false => area.draw(&PathElement::new(path.to_vec(), colour.stroke_width(2)))?,
    }
    shape(area, (x + 15, middle), line.dress)?;
    area.draw(&Text::new(line.name.clone(), (x + 37, middle - FONT / 2), text(FONT, &ink::INK)))?;
    Ok(())
}

/// Dashes of 6 pixels, 4 between them.
fn dashed(area: &Area<'_>, path: &[(i32, i32)], colour: RGBColor) -> Drawn {
    for leg in path.windows(2) {
        let [(x0, y0), (x1, y1)] = [leg[0], leg[1]].map(|(x, y)| (f64::from(x), f64::from(y)));
        let length = (x1 - x0).hypot(y1 - y0);
        let mut from = 0.0;
        while from < length {
            let at = |along: f64| {
                let part = along.min(length) / length;
                #[expect(clippy::cast_possible_truncation, reason = "pixels")]
                let place = ((x0 + part * (x1 - x0)).round() as i32, (y0 + part * (y1 - y0)).round() as i32);
                place
            };
            area.draw(&PathElement::new(vec![at(from), at(from + 6.0)], colour.stroke_width(2)))?;
            from += 10.0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(slot: usize, is_published: bool, ys: &[f64]) -> Line {
        let sample = |(x, y): (u32, &f64)| {
            let range = Some((y * 0.9, y * 1.1));
            Sample { x: f64::from(x), y: *y, range, bound: None, is_after_gap: false }
        };
        Line {
            name: format!("gateway {slot}"),
            dress: Dress { slot, is_published },
            samples: (1..).zip(ys).map(sample).collect(),
        }
    }

    fn lines(lines: Vec<Line>) -> Lines {
        let (title, x, y) = ("a".to_owned(), "cores".to_owned(), "frames/s".to_owned());
        Lines { title, x, y, lines, is_marked_at_points: true, is_dense: false }
    }

    #[test]
    fn any_number_of_gateways_and_points_is_drawn() {
        for count in [0, 1, 2, 5, 12] {
            let all = (0..count).map(|slot| line(slot, slot % 2 == 1, &[3.0, 5.0, 7.0][..slot % 4])).collect();
            let svg = lines(all).svg().unwrap();
            assert!(svg.contains("frames/s") && svg.contains("cores") && !svg.contains("NaN"), "{svg}");
            assert_eq!(svg.matches("gateway ").count(), count);
        }
    }

    #[test]
    fn colours_are_the_pages_and_published_values_are_hollow() {
        let svg = lines(vec![line(0, false, &[1.0]), line(0, true, &[2.0])]).svg().unwrap();
        assert!(svg.contains("var(--s1)") && svg.contains("var(--ink)"));
        assert!(!svg.contains("\"#"), "a colour has no name: {svg}");
        assert!(svg.contains("fill=\"var(--paper)\""));
    }

    #[test]
    fn no_line_leads_over_a_point_without_a_value() {
        let mut broken = line(0, false, &[4.0, 5.0, 6.0]);
        let whole = lines(vec![broken.clone()]).svg().unwrap();
        broken.samples[2].is_after_gap = true;
        assert_ne!(lines(vec![broken]).svg().unwrap(), whole);
    }

    #[test]
    fn a_bound_has_its_sign() {
        let mut limited = line(0, false, &[4.0, 5.0]);
        limited.samples[1].bound = Some(Bound::AtLeast);
        assert!(lines(vec![limited]).svg().unwrap().contains('\u{2265}'));
    }
}
