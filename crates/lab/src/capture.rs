//! Capturing an interface to a pcap file.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::{LabError, Namespace, Process};

/// A running tcpdump. Dropping it ends the capture; [`Capture::finish`] waits until the file is
/// whole.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Process,
    file: PathBuf,
}

impl Namespace {
    /// Starts capturing an interface to a pcap file with tcpdump, and returns once it captures.
    /// `filter` is a tcpdump expression; the empty one takes everything.
    ///
    /// # Errors
    /// [`LabError::MissingTool`] without tcpdump; [`LabError::TimedOut`] with its words when it
    /// does not start.
    pub fn capture(&self, interface: &str, file: &Path, filter: &str) -> Result<Capture, LabError> {
        Capture::start(self, interface, file, filter)
    }
}

impl Capture {
    fn start(namespace: &Namespace, interface: &str, file: &Path, filter: &str) -> Result<Self, LabError> {
        // -U and --immediate-mode: each packet is in the file as soon as it was seen. -Z root:
        // tcpdump would otherwise give up the right to write where the caller wants the file.
        let command = namespace
            .command("tcpdump")
            .args(["-i", interface, "-n", "-U", "--immediate-mode", "-Z", "root", "-s", "0", "-w"])
            .arg(file.display().to_string())
            .args(filter.split_whitespace());
        let mut tcpdump = command.spawn()?;
        tcpdump.wait_for_text("listening on", Duration::from_secs(10))?;
        Ok(Self { tcpdump, file: file.to_owned() })
    }

    /// The file being written.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Ends the capture and returns the file.
    ///
    /// # Errors
    /// [`LabError`] with tcpdump's words when it had ended by itself or does not end.
    pub fn finish(mut self) -> Result<PathBuf, LabError> {
        self.tcpdump.signal(Signal::SIGINT)?;
        self.tcpdump.wait(Duration::from_secs(10))?.success()?;
        Ok(self.file)
    }
}
