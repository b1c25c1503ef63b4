//! Into the background, as daemon(3), but for two things: whoever started the process waits until it
//! serves or has failed, and sees why it failed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe, setsid};

/// A process that is on its way: its standard streams are still those of the one that waits for it.
#[derive(Debug)]
pub struct Background {
    waiting: File,
    nowhere: OwnedFd,
}

impl Background {
    /// Goes on in a child of this process, in a session of its own. This process waits for
    /// [`complete`](Self::complete) and ends, with status 1 if the child ends before.
    ///
    /// To be called before the first thread is started: a child has only the one that made it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn enter() -> io::Result<Self> {
        let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?.into();
        let (told, waiting) = pipe()?;
        // SAFETY: no other thread holds a lock that the child would miss the release of.
        match unsafe { fork() }? {
            ForkResult::Parent { .. } => {
                drop(waiting);
                let serves = File::from(told).read_exact(&mut [0]).is_ok();
                // SAFETY: the call does not return. What would be undone at an exit is the child's now.
                unsafe { libc::_exit(i32::from(!serves)) }
            }
            ForkResult::Child => {
                setsid()?;
                Ok(Self { waiting: waiting.into(), nowhere })
            }
        }
    }

    /// It serves: who waited goes on, and the standard streams lead nowhere.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn complete(mut self) -> io::Result<()> {
        dup2_stdin(&self.nowhere)?;
        dup2_stdout(&self.nowhere)?;
        dup2_stderr(&self.nowhere)?;
        // Nobody may be left who waits.
        let _ = self.waiting.write(&[1]);
        Ok(())
    }
}
