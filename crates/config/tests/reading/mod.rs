//! What tests of files share: a text that is taken, and one that is not.

#![allow(dead_code, reason = "each test uses a part of it")]

use tombolo_config::{Configuration, parse};

#[track_caller]
pub(crate) fn accepted(text: &str) -> Configuration {
    match parse("gateway.toml", text) {
        Ok(configuration) => configuration,
        Err(error) => panic!("refused: {error}"),
    }
}

/// The whole error for a text, line by line.
#[track_caller]
pub(crate) fn refused_with_name(text: &str) -> Vec<String> {
    match parse("gateway.toml", text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string().lines().map(str::to_owned).collect(),
    }
}

/// The same without the name of the file.
#[track_caller]
pub(crate) fn refused(text: &str) -> Vec<String> {
    refused_with_name(text).iter().map(|line| line.replace("gateway.toml:", "")).collect()
}
