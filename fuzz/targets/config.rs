//! Configuration files: whatever the text, an answer and no panic; and mistakes name a line of the
//! file.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = tombolo_config::parse("fuzz.toml", text) {
        let words = error.to_string();
        assert!(words.starts_with("fuzz.toml:"), "{words}");
    }
});
