//! `tombolo tayga`: Tayga's command line and configuration file, served by this gateway.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use nix::unistd::{Gid, Group, Uid, User};
use tombolo_config::tayga::{DEFAULT_FILE, Tayga};
use tombolo_daemon::DaemonError;
use tombolo_io::background::Background;
use tombolo_io::tun::Persistence;

use super::syslog::Syslog;
use crate::log::Journal;

/// Tayga's options, and what they mean there.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("device").args(["mktun", "rmtun"])))]
pub(crate) struct Arguments {
    /// Configuration file, in Tayga's language
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
    /// Log everything to the terminal, and stay there
    #[arg(short, long)]
    debug: bool,
    /// Stay in the foreground
    #[arg(short, long)]
    nodetach: bool,
    /// User to become once everything is set up
    #[arg(short, long, value_name = "NAME", conflicts_with = "device")]
    user: Option<String>,
    /// Group to become once everything is set up
    #[arg(short, long, value_name = "NAME", conflicts_with = "device")]
    group: Option<String>,
    /// Make the data directory the root directory; needs --user
    #[arg(short = 'r', long, conflicts_with = "device")]
    chroot: bool,
    /// File to write the process number to
    #[arg(short, long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Make the TUN device, and leave it there
    #[arg(long)]
    mktun: bool,
    /// Remove the TUN device
    #[arg(long)]
    rmtun: bool,
    /// Log to the system's log, as without --debug
    #[arg(long, conflicts_with_all = ["stdout", "journal"])]
    syslog: bool,
    /// Log to the terminal
    #[arg(long)]
    stdout: bool,
    /// Log to the journal, which takes what goes to the standard error
    #[arg(long, conflicts_with = "stdout")]
    journal: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let state_directory = std::env::var("STATE_DIRECTORY").ok();
    let mut tayga = tombolo_config::tayga::load(&arguments.config, state_directory.as_deref())?;
    if arguments.mktun || arguments.rmtun {
        let (persistence, done) = match arguments.mktun {
            true => (Persistence::OutlivesProcess, "Created persistent tun device"),
            false => (Persistence::EndsWithProcess, "Removed persistent tun device"),
        };
        tombolo_daemon::tayga::set_persistent(&tayga, persistence)?;
        return super::print::line(&format!("{done} {}", tayga.device));
    }
    let identity = Identity::of(arguments, &tayga)?;
    enter_data_directory(&mut tayga, arguments.user.is_some())?;
    let pidfile = arguments.pidfile.as_deref().map(create).transpose()?;
    // Before the first thread.
    let stays = arguments.nodetach || arguments.debug;
    let background = (!stays).then(Background::enter).transpose();
    let background = background.context("detaching from the terminal failed; run it with --nodetach")?;
    if let Some(mut file) = pidfile {
        writeln!(file, "{}", std::process::id()).context("writing the process number failed")?;
    }
    log(arguments);
    if identity.root.is_some() {
        // The working directory, before it becomes the root and afterwards.
        tayga.data_directory = Some(PathBuf::from("."));
    }
    let complete = || {
        identity.assume()?;
        let completed = background.map_or(Ok(()), Background::complete);
        completed.map_err(|source| DaemonError::System { action: "detaching from the terminal", source })
    };
    Ok(tombolo_daemon::tayga::run(&tayga, complete)?)
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("{} cannot be written; name another --pidfile", path.display()))
}

/// The data directory is the working directory, and made if it is missing, as long as nobody else
/// has to write there.
fn enter_data_directory(tayga: &mut Tayga, is_for_user: bool) -> anyhow::Result<()> {
    let Some(directory) = &tayga.data_directory else {
        return std::env::set_current_dir("/").context("entering / failed");
    };
    if !directory.exists() && !is_for_user {
        std::fs::create_dir(directory).with_context(|| format!("making data-dir {} failed", directory.display()))?;
    }
    std::env::set_current_dir(directory)
        .with_context(|| format!("data-dir {} cannot be entered; make it, for the user of --user", directory.display()))
}

/// Whom the process becomes, and what it then sees.
#[derive(Debug)]
struct Identity {
    user: Option<User>,
    group: Option<Gid>,
    root: Option<PathBuf>,
}

impl Identity {
    fn of(arguments: &Arguments, tayga: &Tayga) -> anyhow::Result<Self> {
        let user = arguments.user.as_deref().map(find_user).transpose()?;
        let group = arguments.group.as_deref().map(find_group).transpose()?;
        let root = match (arguments.chroot, &tayga.data_directory) {
            (false, _) => None,
            (true, None) => bail!("--chroot needs a data-dir; add one to {}", arguments.config.display()),
            (true, Some(directory)) => {
                let is_root = user.as_ref().is_none_or(|user| user.uid.is_root());
                ensure!(!is_root, "--chroot is no protection against root; add --user with an unprivileged user");
                Some(directory.clone())
            }
        };
        Ok(Self { user, group, root })
    }

    /// Takes the identity. All threads have it from then on.
    fn assume(self) -> Result<(), DaemonError> {
        let failed = |action| move |errno: nix::Error| DaemonError::System { action, source: errno.into() };
        let group = self.group.or(self.user.as_ref().map(|user| user.gid));
        if let Some(user) = &self.user {
            let name = CString::new(user.name.as_str()).unwrap_or_default();
            let group = group.unwrap_or_else(Gid::current);
            nix::unistd::initgroups(&name, group).map_err(failed("taking the user's groups"))?;
        }
        if let Some(root) = &self.root {
            nix::unistd::chroot(root).map_err(failed("making data-dir the root directory"))?;
            std::env::set_current_dir("/")
                .map_err(|source| DaemonError::System { action: "entering the new root directory", source })?;
        }
        if let Some(group) = group {
            nix::unistd::setgid(group).map_err(failed("becoming the group of --group or --user"))?;
        }
        if let Some(user) = &self.user {
            nix::unistd::setuid(user.uid).map_err(failed("becoming the user of --user"))?;
        }
        Ok(())
    }
}

fn find_user(name: &str) -> anyhow::Result<User> {
    let by_name = User::from_name(name)?;
    let by_number = || name.parse().ok().and_then(|number| User::from_uid(Uid::from_raw(number)).ok().flatten());
    by_name
        .or_else(by_number)
        .with_context(|| format!("there is no user {name}; make one, or name another with --user"))
}

fn find_group(name: &str) -> anyhow::Result<Gid> {
    let by_name = Group::from_name(name)?.map(|group| group.gid);
    let by_number = || name.parse().ok().map(Gid::from_raw);
    by_name
        .or_else(by_number)
        .with_context(|| format!("there is no group {name}; make one, or name another with --group"))
}

/// Where Tayga logs to: the terminal with --debug or --stdout, else the system's log, if there is
/// one.
fn log(arguments: &Arguments) {
    let level = if arguments.debug { "debug" } else { "info" };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let system =
        (!arguments.debug && !arguments.stdout && !arguments.journal).then(|| Syslog::open("tayga").ok()).flatten();
    match system {
        Some(system) => builder.without_time().with_writer(move || system.clone()).init(),
        None if arguments.debug || arguments.stdout => builder.with_writer(io::stdout).init(),
        None if arguments.journal => builder.event_format(Journal::default()).with_writer(io::stderr).init(),
        None => builder.with_writer(io::stderr).init(),
    }
}
