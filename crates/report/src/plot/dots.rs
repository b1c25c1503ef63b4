//! Values beside names: one row each gateway, from zero.

use plotters::prelude::*;

use super::scale::Scale;
use super::{Drawn, Dress, FONT, draw, ink, shape, text, whiskers, width_of};
use crate::number;
use crate::results::{Bound, ReportError};

/// A drawing of dots.
#[derive(Clone, Debug)]
pub struct Dots {
    /// What it shows.
    pub title: String,
    /// What was measured, with its unit.
    pub x: String,
    /// The unit alone.
    pub unit: String,
    /// From top to bottom.
    pub rows: Vec<Dot>,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Dot {
    /// Whose.
    pub name: String,
    /// Its colour and shape.
    pub dress: Dress,
    /// How much; a row without a value says so.
    pub value: Option<f64>,
    /// Smallest and largest value, where there are several.
    pub range: Option<(f64, f64)>,
    /// The value is a bound.
    pub bound: Option<Bound>,
}

const ROW: u32 = 32;
const BELOW: u32 = 58;

impl Dots {
    /// The drawing.
    ///
    /// # Errors
    /// If the library cannot.
    pub fn svg(&self) -> Result<String, ReportError> {
        let count = u32::try_from(self.rows.len()).unwrap_or(u32::MAX / ROW);
        draw(&self.title, count * ROW + BELOW + 12, |area| {
            let values = self.rows.iter().flat_map(|row| {
                let (low, high) = row.range.unzip();
                [row.value, low, high].into_iter().flatten()
            });
            let x = Scale::of_values(values);
            let start = x.start();
            let names = self.rows.iter().map(|row| width_of(&row.name, FONT)).max().unwrap_or(0);
            let y = Scale::of_values([0.0, f64::from(count)].into_iter());
            let mut chart = ChartBuilder::on(area)
                .margin_top(6)
                .margin_right(150)
                .x_label_area_size(BELOW - 8)
                .y_label_area_size(names + 24)
                .build_cartesian_2d(x, y)?;
            chart
                .configure_mesh()
                .disable_y_mesh()
                .disable_y_axis()
                .light_line_style(TRANSPARENT)
                .bold_line_style(ink::GRID)
                .axis_style(ink::SOFT)
                .x_desc(&self.x)
                .y_labels(0)
                .axis_desc_style(text(FONT, &ink::INK))
                .label_style(text(FONT - 1, &ink::SOFT))
                .x_label_formatter(&|value| number::count(*value))
                .draw()?;
            for (index, row) in (0..).zip(&self.rows) {
                let middle = 6 + i32::try_from(ROW).unwrap_or(0) * index + i32::try_from(ROW / 2).unwrap_or(0);
                let at = |value: f64| (chart.backend_coord(&(value, 0.0)).0, middle);
                area.draw(&Text::new(row.name.clone(), (8, middle - FONT / 2), text(FONT, &ink::INK)))?;
                row.draw(area, &self.unit, start, &at)?;
            }
            Ok(())
        })
    }
}

impl Dot {
    fn draw(&self, area: &super::Area<'_>, unit: &str, start: f64, at: &dyn Fn(f64) -> (i32, i32)) -> Drawn {
        let Some(value) = self.value else {
            let (x, y) = at(start);
            area.draw(&Text::new("no value", (x + 8, y - FONT / 2), text(FONT, &ink::SOFT)))?;
            return Ok(());
        };
        if let Some((low, high)) = self.range.filter(|(low, high)| low < high) {
            whiskers(area, at(low), at(high), self.dress.slot)?;
        }
        shape(area, at(value), self.dress)?;
        let right = self.range.map_or(value, |(_, high)| high.max(value));
        let sign = self.bound.map_or("", Bound::sign);
        let label = format!("{sign}{}", number::with_unit(value, unit));
        area.draw(&Text::new(label, (at(right).0 + 12, at(value).1 - FONT / 2), text(FONT - 1, &ink::SOFT)))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_two_and_five_gateways_are_drawn_and_one_without_a_value_says_so() {
        for count in [1, 2, 5] {
            let row = |slot| Dot {
                name: format!("gateway {slot}"),
                dress: Dress { slot, is_published: false },
                value: (slot != 1).then_some(1000.0 * (slot + 1) as f64),
                range: Some((900.0, 5000.0)),
                bound: (slot == 0).then_some(Bound::AtMost),
            };
            let dots = Dots {
                title: "throughput".to_owned(),
                x: "throughput, frames/s".to_owned(),
                unit: "frames/s".to_owned(),
                rows: (0..count).map(row).collect(),
            };
            let svg = dots.svg().unwrap();
            assert_eq!((svg.matches("gateway ").count(), svg.contains("no value")), (count, count > 1));
            assert!(svg.contains("\u{2264} 1000 frames/s") && !svg.contains("\"#"), "{svg}");
        }
    }
}
