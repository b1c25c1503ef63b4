//! What is put back on the machine when this process ends, however it ends.
//!
//! A shell waits until nobody holds its input any more, and then undoes what it was told, the last
//! first: at the end of a measurement, after Ctrl-C and after `kill -9` alike. It hears no signal of
//! the terminal. What is to be undone is told before it is done.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// While it lives, nothing is put back; when it is dropped, all is.
#[derive(Debug)]
pub struct Undo {
    shell: Child,
}

/// Each line is a step: what to do, a file, and one or two words, none of which has spaces.
const SCRIPT: &str = r#"trap "" INT QUIT TERM HUP
echo ready
steps=
while IFS= read -r step; do steps="$step
$steps"; done
printf %s "$steps" | while read -r what file first second; do
	case $what in
	write) echo "$first" >"$file" ;;
	unless-changed) [ "$(cat "$file")" = "$second" ] && echo "$first" >"$file" ;;
	empty)
		tries=0
		while [ -n "$(cat "$file/cgroup.procs")" ]; do
			while read -r process || [ -n "$process" ]; do echo "$process" >"$first/cgroup.procs"; done <"$file/cgroup.procs"
			tries=$((tries + 1))
			[ $tries -lt 100 ] || break
		done
		rmdir "$file"
		;;
	esac
done
:"#;

impl Undo {
    /// A shell that knows of nothing to undo yet. `name` is what a list of processes shows.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin(name: &str) -> io::Result<Undo> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut ready = [0; 6];
        let said = shell.stdout.take().map_or(Ok(()), |mut out| out.read_exact(&mut ready));
        let undo = Undo { shell };
        said.map(|()| undo)
    }

    /// Writes this to the file at the end.
    ///
    /// # Errors
    /// If the shell is gone, or the words have spaces; then it is not to be done.
    pub fn write(&mut self, file: &Path, before: &str) -> io::Result<()> {
        self.tell("write", file, &[before])
    }

    /// The same, unless somebody has written something else than `now` meanwhile.
    ///
    /// # Errors
    /// As [`write`](Undo::write).
    pub fn write_unless_changed(&mut self, file: &Path, before: &str, now: &str) -> io::Result<()> {
        self.tell("unless-changed", file, &[before, now])
    }

    /// Moves the processes of a control group to another one at the end, those too that have started
    /// in it meanwhile, and removes it.
    ///
    /// # Errors
    /// As [`write`](Undo::write).
    pub fn empty(&mut self, group: &Path, to: &Path) -> io::Result<()> {
        self.tell("empty", group, &[&to.display().to_string()])
    }

    fn tell(&mut self, what: &str, file: &Path, words: &[&str]) -> io::Result<()> {
        let file = file.display().to_string();
        if words.iter().chain(&[file.as_str()]).any(|word| word.contains(char::is_whitespace)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{file}: cannot be put back: spaces")));
        }
        let Some(input) = &mut self.shell.stdin else { return Err(io::ErrorKind::BrokenPipe.into()) };
        writeln!(input, "{what} {file} {}", words.join(" "))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
