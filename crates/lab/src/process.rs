//! Commands inside a namespace: captured, limited in time, and killed when nobody wants them any
//! more.
//!
//! Every command leads a process group of its own and dies with this process (PR_SET_PDEATHSIG),
//! however that ends. That signal is tied to the *thread* that forked, so one thread that
//! lives as long as the process starts them all.

use std::{
    io::{self, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _, unix::process::ExitStatusExt as _},
    process::{Child, ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{LabError, Namespace, groups::ProcessGroups, log::Log, package_of, wait_until};

/// The limit of [`Command::run`] when none is set: for what hangs. A reload takes more than 30 seconds where much else runs on few
/// processors, for the kernel verifies programs meanwhile.
const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// How long a process may take from SIGTERM to its end before it gets SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// A command to be run inside a namespace.
#[derive(Debug)]
pub struct Command {
    namespace: Namespace,
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    stdin: Option<Vec<u8>>,
    limit: Duration,
}

/// What a command that ended left behind.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Its standard error, likewise.
    pub stderr: String,
    /// How long it ran.
    pub elapsed: Duration,
    command: String,
    namespace: String,
}

/// A running command. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: Pid,
    groups: Arc<ProcessGroups>,
    command: String,
    namespace: String,
    started: Instant,
    status: Option<ExitStatus>,
    stdout: Arc<Log>,
    stderr: Arc<Log>,
}

impl Namespace {
    /// A command to run inside the namespace.
    #[must_use]
    pub fn command(&self, program: impl Into<String>) -> Command {
        Command::new(self.clone(), program.into())
    }
}

impl Command {
    fn new(namespace: Namespace, program: String) -> Self {
        let (args, env) = (Vec::new(), Vec::new());
        Self { namespace, program, args, env, stdin: None, limit: DEFAULT_LIMIT }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Gives the command this standard input; otherwise it is empty.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Limits how long [`Command::run`] waits (two minutes when not set).
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs the command to its end. A failing exit status is not an error here: see
    /// [`Output::success`].
    ///
    /// # Errors
    /// [`LabError::MissingTool`], or [`LabError::TimedOut`] (the command is killed), or
    /// [`LabError::Interrupted`].
    pub fn run(self) -> Result<Output, LabError> {
        let limit = self.limit;
        self.spawn()?.wait(limit)
    }

    /// Starts the command.
    ///
    /// # Errors
    /// [`LabError::MissingTool`], [`LabError::NotPermitted`] or [`LabError::System`].
    pub fn spawn(self) -> Result<Process, LabError> {
        let line = command_line(&self.program, &self.args);
        let namespace = self.namespace.name().to_owned();
        let groups = Arc::clone(self.namespace.groups());
        let stdin = self.stdin.clone();
        let program = self.program.clone();
        let mut child = launch(self, &groups).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                LabError::MissingTool { package: package_of(&program).to_owned(), tool: program }
            }
            _ => LabError::system(format!("run `{line}` in {namespace}"), e),
        })?;
        feed(&mut child, stdin);
        let stdout = Log::reading(child.stdout.take());
        let stderr = Log::reading(child.stderr.take());
        // The child leads its own group, so its process id is the group's.
        let group = Pid::from_raw(child.id().cast_signed());
        let (started, status) = (Instant::now(), None);
        Ok(Process { child, group, groups, command: line, namespace, started, status, stdout, stderr })
    }

    fn build(self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.args).envs(self.env).process_group(0);
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let namespace = self.namespace;
        let parent = std::process::id().cast_signed();
        // SAFETY: between fork and exec the closure makes three async-signal-safe system calls and
        // allocates nothing: an `io::Error` from errno is two words. The descriptor stays open
        // because the closure owns the `Namespace`.
        unsafe {
            command.pre_exec(move || {
                let fd = namespace.as_fd().as_raw_fd();
                if libc::setns(fd, libc::CLONE_NEWNET) != 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have died before the line above: then no signal will come.
                if libc::getppid() != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
        command
    }
}

impl Output {
    /// The output, if the command succeeded.
    ///
    /// # Errors
    /// [`LabError::CommandFailed`] with the last lines of its output otherwise.
    pub fn success(self) -> Result<Self, LabError> {
        if self.status.success() {
            return Ok(self);
        }
        let words = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        Err(LabError::CommandFailed {
            outcome: outcome(self.status),
            output: indented_tail(words, 12),
            command: self.command,
            namespace: self.namespace,
        })
    }

    /// The last lines of standard output and standard error, each indented on a line of its own.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        indented_tail(&format!("{}{}", self.stdout, self.stderr), lines)
    }
}

impl Process {
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.poll().is_none()
    }

    /// Everything it has written so far to standard output.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Everything it has written so far to standard error.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// The last lines of standard output and standard error, each indented on a line of its own.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        indented_tail(&format!("{}{}", self.stdout(), self.stderr()), lines)
    }

    /// Waits until a line that it writes (to either output) contains `text`.
    ///
    /// # Errors
    /// [`LabError::TimedOut`], or [`LabError::CommandFailed`] if it ends first; both with its last
    /// words.
    pub fn wait_for_text(&mut self, text: &str, limit: Duration) -> Result<(), LabError> {
        let found = wait_until(&format!("`{text}` from `{}`", self.command), limit, || {
            if self.stdout().contains(text) || self.stderr().contains(text) {
                return Some(Ok(()));
            }
            let status = self.poll()?;
            // What it wrote last may still be in the pipes.
            self.drain();
            let said = self.stdout().contains(text) || self.stderr().contains(text);
            Some(if said { Ok(()) } else { Err(status) })
        });
        match found {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => Err(self.failed(status)),
            Err(LabError::TimedOut { what, limit, .. }) => {
                Err(LabError::TimedOut { what, limit, output: self.log_tail(12) })
            }
            Err(other) => Err(other),
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with its last words; it is killed then.
    pub fn wait(mut self, limit: Duration) -> Result<Output, LabError> {
        let status = match wait_until(&format!("the end of `{}`", self.command), limit, || self.poll()) {
            Ok(status) => status,
            Err(LabError::TimedOut { what, limit, .. }) => {
                self.kill();
                return Err(LabError::TimedOut { what, limit, output: self.log_tail(12) });
            }
            Err(other) => return Err(other),
        };
        Ok(self.output(status))
    }

    /// Sends a signal to its process group.
    ///
    /// # Errors
    /// [`LabError::System`] when it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<(), LabError> {
        if self.poll().is_some() {
            return Err(LabError::system(
                format!("send {signal} to `{}`, which has ended", self.command),
                io::Error::from_raw_os_error(libc::ESRCH),
            ));
        }
        killpg(self.group, signal).map_err(|e| LabError::system(format!("send {signal} to `{}`", self.command), e))
    }

    /// Asks it to end (SIGTERM), waits three seconds, then kills it.
    pub fn stop(mut self) -> Output {
        if self.poll().is_none() {
            drop(self.signal(Signal::SIGTERM));
            drop(wait_until("the end of a process", GRACE, || self.poll()));
        }
        self.kill();
        let status = self.status.unwrap_or_default();
        self.output(status)
    }

    /// Reaps it if it has ended.
    fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.groups.forget(self.group);
            // Whatever it left behind in its group goes with it.
            let _ = killpg(self.group, Signal::SIGKILL);
            self.status = Some(status);
        }
        self.status
    }

    fn kill(&mut self) {
        if self.poll().is_none() {
            let _ = killpg(self.group, Signal::SIGKILL);
            self.status = self.child.wait().ok();
            self.groups.forget(self.group);
        }
    }

    /// Waits for the end of both outputs, which a grandchild that left the group might hold open:
    /// so not for ever.
    fn drain(&self) {
        self.stdout.wait_for_end(Duration::from_millis(500));
        self.stderr.wait_for_end(Duration::from_millis(500));
    }

    fn output(&mut self, status: ExitStatus) -> Output {
        let elapsed = self.started.elapsed();
        self.drain();
        Output {
            status,
            stdout: self.stdout(),
            stderr: self.stderr(),
            elapsed,
            command: self.command.clone(),
            namespace: self.namespace.clone(),
        }
    }

    fn failed(&mut self, status: ExitStatus) -> LabError {
        LabError::CommandFailed {
            command: self.command.clone(),
            namespace: self.namespace.clone(),
            outcome: format!("ended too early: it {}", outcome(status)),
            output: self.log_tail(12),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

type Launch = (std::process::Command, Arc<ProcessGroups>, mpsc::Sender<io::Result<Child>>);

/// Forks and executes on the one thread that lives as long as the process.
fn launch(command: Command, groups: &Arc<ProcessGroups>) -> io::Result<Child> {
    static LAUNCHER: OnceLock<Mutex<mpsc::Sender<Launch>>> = OnceLock::new();
    let launcher = LAUNCHER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Launch>();
        let body = move || {
            for (mut command, groups, reply) in receiver {
                drop(reply.send(groups.start(&mut command)));
            }
        };
        // Without the thread, the receiver is gone and sending below reports it.
        drop(thread::Builder::new().name("lab-launcher".to_owned()).spawn(body));
        Mutex::new(sender)
    });
    let (reply, answer) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    let launch = (command.build(), Arc::clone(groups), reply);
    let launcher = launcher.lock().unwrap_or_else(PoisonError::into_inner);
    launcher.send(launch).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Writes the standard input on a thread of its own, since a pipe holds 64 KiB only.
fn feed(child: &mut Child, bytes: Option<Vec<u8>>) {
    if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), bytes) {
        // A command that does not read its input is its own business.
        let body = move || drop(pipe.write_all(&bytes));
        drop(thread::Builder::new().name("lab-input".to_owned()).spawn(body));
    }
}

fn command_line(program: &str, args: &[String]) -> String {
    let mut line = program.to_owned();
    for arg in args {
        line.push(' ');
        line.push_str(arg);
    }
    line
}

fn outcome(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The last lines of a text, each on a new line and indented.
fn indented_tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = &all[all.len().saturating_sub(lines)..];
    tail.iter().map(|line| format!("\n    {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines_that_say_something() {
        assert_eq!(indented_tail("a\n\nb\nc\n", 2), "\n    b\n    c");
        assert_eq!(indented_tail("", 2), "");
    }
}
