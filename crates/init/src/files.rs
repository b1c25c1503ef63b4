//! All files for a host.

use std::path::Path;

use crate::answers::{Answers, Purpose};
use crate::file::File;
use crate::survey::Survey;
use crate::{advertisements, firewall, gateway, resolver, unit};

/// All that the gateway of these answers needs on this host. They will lie in `directory`.
#[must_use]
pub fn files(survey: &Survey, answers: &Answers, directory: &Path) -> Vec<File> {
    let mut files = vec![
        gateway::file(survey, answers),
        unit::sysctl(survey),
        unit::service(survey, directory),
        firewall::file(survey, answers),
    ];
    if answers.purpose == Purpose::Nat64 {
        files.push(resolver::file(survey, answers));
        files.extend(advertisements::file(survey, answers));
    }
    files
}
