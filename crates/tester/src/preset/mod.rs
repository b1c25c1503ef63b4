//! Presets: the tables and figures that the field has published, each measured again with one command.
//!
//! A preset is a description ([`list`]): what was asked, which procedures with which gateways and
//! parameters answer it, what was published ([`crate::published`]), and where our method differs.
//! The list of presets, the forecast, the run and the report read this one description; everything
//! that measures is a procedure that exists without presets.
//!
//! The quick form is scaled to a machine of two cores and a few minutes: fewer connections, short
//! trials. It is not comparable with what was published, and says so.

mod description;
mod earlier;
mod here;
pub mod list;
mod needs;
mod run;

pub use description::{ByForm, Form, Frames, Lookup, Over, Preset, Step, Streams};
pub use earlier::Rates;
pub use needs::Needs;
pub use run::{Outcome, Setup};

/// The preset of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Preset> {
    list::ALL.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Spec;
    use crate::published::Published;

    #[test]
    fn every_preset_has_figures_beside_it_and_gateways_that_there_are() {
        for preset in list::ALL {
            assert!(Published::named(preset.published).is_some(), "{}", preset.name);
            assert!(!preset.steps.is_empty() && named(preset.name).is_some());
            for step in preset.steps {
                if let Step::Frames(frames) = step {
                    assert!(frames.gateways.iter().all(|name| name.parse::<Spec>().is_ok()), "{}", preset.name);
                    for ports in [frames.ports.quick, frames.ports.full] {
                        assert!(
                            !ports.is_empty() && ports.is_sorted(),
                            "{}: the last point is the largest",
                            preset.name
                        );
                    }
                }
            }
        }
        let mut names: Vec<&str> = list::ALL.iter().map(|preset| preset.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), list::ALL.len());
    }

    #[test]
    fn full_points_are_those_of_the_published_table() {
        for name in ["draft-figure-4", "draft-figure-5", "draft-figure-8", "draft-figure-9"] {
            let preset = named(name).unwrap();
            let at = Published::named(preset.published).unwrap().tables[0].at.clone();
            let Step::Frames(frames) = preset.steps[0] else { panic!("{name}") };
            let points: Vec<u64> = frames.ports.full.iter().map(|(a, b)| u64::from(*a) * u64::from(*b)).collect();
            assert_eq!(points, at, "{name}");
        }
    }

    #[test]
    fn a_quick_form_says_how_it_differs() {
        let said = named("draft-figure-2").unwrap().deviations_of(Form::Quick, 2);
        assert!(
            said.iter().any(|said| said.contains("2 processors"))
                && said.iter().any(|said| said.contains("trials of 0.3 s"))
        );
        assert!(said.iter().any(|said| said.contains("at most 40000 connections; there are 4000000")), "{said:?}");
    }
}
