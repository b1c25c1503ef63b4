//! Tayga's configuration files: whatever the text, an answer and no panic; mistakes name the file,
//! and what is accepted becomes a plan.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_config::tayga::{MapFile, parse};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse("tayga.conf", text, None) {
        Err(error) => assert!(error.to_string().starts_with("tayga.conf:"), "{error}"),
        Ok(tayga) => {
            // Pools are memory; what the largest may have is for tests.
            if tayga.dynamic_pool.is_none_or(|pool| pool.prefix_len() >= 24) {
                let _ = tayga.configuration(&MapFile::default(), tayga.make_dynamic_pool(), 1500);
            }
        }
    }
});
