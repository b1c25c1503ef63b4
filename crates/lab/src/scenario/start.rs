//! Gateways and routing daemons of a scenario, started in its lab.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use super::description::{SLICES, Scenario};
use crate::{Lab, LabError, LabRecord, Process, package_of, wait_until};

/// Stands for the lab's directory in the configuration files of a scenario.
pub(super) const DIRECTORY: &str = "@LAB@";
/// How long a program may take to be ready.
pub(super) const READY: Duration = Duration::from_secs(20);

/// A program that goes on until the lab ends.
pub(super) struct Daemon {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    /// What it says when it is ready.
    pub(super) says: &'static str,
}

impl Lab {
    /// Starts a gateway, `program` with the configuration `text`, in node `node`, and waits until
    /// it is ready. It ends with the process or this one.
    ///
    /// # Errors
    /// [`LabError`] if it does not become ready; its own words are in it.
    pub fn start_gateway(&self, node: &str, program: &str, text: &str) -> Result<Process, LabError> {
        self.start_daemon(node, self.gateway(node, program, text)?)
    }

    /// The same of several gateways at once, as after a power failure: each node with its configuration.
    ///
    /// # Errors
    /// As [`start_gateway`](Self::start_gateway), for the first one that does not become ready.
    pub fn start_gateways<'n>(
        &self,
        program: &str,
        gateways: &[(&'n str, String)],
    ) -> Result<Vec<(&'n str, Process)>, LabError> {
        let start = |(node, text): &(&'n str, String)| {
            let daemon = self.gateway(node, program, text)?;
            let says = daemon.says;
            Ok((*node, says, self.spawn_daemon(node, daemon)?))
        };
        let mut started = gateways.iter().map(start).collect::<Result<Vec<_>, LabError>>()?;
        for (_, says, process) in &mut started {
            process.wait_for_text(says, READY)?;
        }
        Ok(started.into_iter().map(|(node, _, process)| (node, process)).collect())
    }

    /// As [`start_gateway`](Self::start_gateway), for BIRD, or for FRR where the text is of FRR.
    ///
    /// # Errors
    /// As [`start_gateway`](Self::start_gateway); [`LabError::MissingTool`].
    pub fn start_router(&self, node: &str, text: &str) -> Result<Process, LabError> {
        self.start_daemon(node, self.router(node, text)?)
    }

    /// Builds a named lab of `scenario` with its routing daemons and gateways, `program run`, all of which
    /// stay when this process ends, until [`crate::remove_named`].
    ///
    /// # Errors
    /// As [`Lab::create_named`]; [`LabError`] with the last words of a gateway that does not become
    /// ready.
    pub fn create_scenario(name: &str, scenario: &Scenario, program: &str) -> Result<LabRecord, LabError> {
        Self::create_named_with(name, &scenario.topology, |lab| {
            if !scenario.members.is_empty() {
                lab.certify(scenario)?;
                for member in &scenario.members {
                    let daemon = lab.member(member, &scenario.members, "new")?;
                    // None serves before most are there.
                    let is_last = scenario.members.last() == Some(member);
                    lab.leave_daemon(member, &Daemon { says: if is_last { daemon.says } else { "" }, ..daemon })?;
                }
                lab.begin_cluster(scenario, program)?;
            }
            for (node, text) in &scenario.routers {
                lab.leave_daemon(node, &lab.router(node, text)?)?;
            }
            for (node, text) in &scenario.gateways {
                lab.leave_daemon(node, &lab.gateway(node, program, text)?)?;
            }
            Ok(())
        })
    }

    /// The certificates of a scenario whose nodes agree by etcd.
    ///
    /// # Errors
    /// As [`make_certificates`](Self::make_certificates).
    pub fn certify(&self, scenario: &Scenario) -> Result<(), LabError> {
        let nodes: Vec<&str> = scenario.agreeing().collect();
        self.make_certificates(&nodes, &scenario.members)
    }

    /// Has `program` say in etcd how the cluster of a scenario is divided.
    ///
    /// # Errors
    /// [`LabError`] if it fails; its own words are in it.
    pub fn begin_cluster(&self, scenario: &Scenario, program: &str) -> Result<(), LabError> {
        let Some((node, text)) = scenario.gateways.iter().find(|(node, _)| scenario.agreeing().any(|one| one == *node))
        else {
            return Ok(());
        };
        let Daemon { program, arguments, .. } = self.gateway(node, program, text)?;
        let file = arguments.last().cloned().unwrap_or_default();
        let slices = SLICES.to_string();
        let words = ["cluster", "init", "--slices", &slices, "--config", &file].map(str::to_owned);
        self.node(node)?.command(program).args(words).run()?.success().map(drop)
    }

    fn gateway(&self, node: &str, program: &str, text: &str) -> Result<Daemon, LabError> {
        let text = text.replace(DIRECTORY, &self.directory()?.display().to_string());
        let arguments = ["run".to_owned(), "-c".to_owned(), self.file(&format!("{node}.toml"), &text)?];
        Ok(Daemon { program: program.to_owned(), arguments: arguments.into(), says: "ready" })
    }

    fn router(&self, node: &str, text: &str) -> Result<Daemon, LabError> {
        if let Some(daemon) = self.frr(node, text)? {
            return Ok(daemon);
        }
        let file = self.file(&format!("{node}.bird.conf"), text)?;
        let socket = self.directory()?.join(format!("{node}.bird.socket")).display().to_string();
        let arguments = ["-f".to_owned(), "-c".to_owned(), file, "-s".to_owned(), socket];
        Ok(Daemon { program: "bird".to_owned(), arguments: arguments.into(), says: "Started" })
    }

    fn start_daemon(&self, node: &str, daemon: Daemon) -> Result<Process, LabError> {
        let says = daemon.says;
        let mut process = self.spawn_daemon(node, daemon)?;
        process.wait_for_text(says, READY)?;
        Ok(process)
    }

    pub(super) fn spawn_daemon(&self, node: &str, daemon: Daemon) -> Result<Process, LabError> {
        self.node(node)?.command(daemon.program).args(daemon.arguments).spawn()
    }

    /// Starts a program that outlives this process.
    fn leave_daemon(&self, node: &str, daemon: &Daemon) -> Result<(), LabError> {
        let Daemon { program, arguments, says } = daemon;
        let name = program.rsplit('/').next().unwrap_or_default();
        let log = self.directory()?.join(format!("{node}.{name}.log"));
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                LabError::MissingTool { package: package_of(program).to_owned(), tool: program.clone() }
            }
            _ => LabError::system(format!("start {program} in {node}"), error),
        };
        let mut process = self
            .node(node)?
            .run(|| {
                // Children are born into the namespace of the thread that makes them.
                let words = fs::File::create(&log)?;
                let mut command = Command::new(program);
                command.args(arguments).stdin(Stdio::null()).stdout(words.try_clone()?).stderr(words);
                std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()
            })?
            .map_err(failed)?;
        let words = || fs::read_to_string(&log).unwrap_or_default();
        let ready = wait_until(&format!("{name} in {node}"), READY, || {
            (words().contains(says) || !matches!(process.try_wait(), Ok(None))).then_some(())
        });
        if words().contains(says) {
            return Ok(());
        }
        drop(process.kill());
        ready?;
        Err(failed(std::io::Error::other(words().trim().to_owned())))
    }

    /// Writes a file into the lab's directory; its path.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<String, LabError> {
        let file = self.directory()?.join(name);
        fs::write(&file, text).map_err(|error| LabError::system(format!("write {}", file.display()), error))?;
        Ok(file.display().to_string())
    }
}
