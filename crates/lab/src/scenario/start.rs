//! Gateways of a scenario, started in its lab.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use super::description::Scenario;
use crate::{Lab, LabError, LabRecord, Process, wait_until};

/// How long a gateway may take to be ready.
const READY: Duration = Duration::from_secs(20);

impl Lab {
    /// Starts a gateway, `program` with the configuration `text`, in node `node`, and waits until
    /// it is ready. It ends with the process or this one.
    ///
    /// # Errors
    /// [`LabError`] if it does not become ready; its own words are in it.
    pub fn start_gateway(&self, node: &str, program: &str, text: &str) -> Result<Process, LabError> {
        let file = self.configuration(node, text)?;
        let mut process = self.node(node)?.command(program).args(["run", "-c"]).arg(file).spawn()?;
        process.wait_for_text("ready", READY)?;
        Ok(process)
    }

    /// Builds a named lab of `scenario` with its gateways, `program run`, all of which stay when
    /// this process ends, until [`crate::remove_named`].
    ///
    /// # Errors
    /// As [`Lab::create_named`]; [`LabError`] with the last words of a gateway that does not become
    /// ready.
    pub fn create_scenario(name: &str, scenario: &Scenario, program: &str) -> Result<LabRecord, LabError> {
        Self::create_named_with(name, &scenario.topology, |lab| {
            scenario.gateways.iter().try_for_each(|(node, text)| lab.leave_gateway(node, program, text))
        })
    }

    /// Starts a gateway that outlives this process.
    fn leave_gateway(&self, node: &str, program: &str, text: &str) -> Result<(), LabError> {
        let file = self.configuration(node, text)?;
        let log = self.directory()?.join(format!("{node}.log"));
        let failed = |error| LabError::system(format!("start {program} in {node}"), error);
        let mut process = self
            .node(node)?
            .run(|| {
                // Children are born into the namespace of the thread that makes them.
                let words = fs::File::create(&log)?;
                let mut command = Command::new(program);
                command.args(["run", "-c", &file]).stdin(Stdio::null()).stdout(words.try_clone()?).stderr(words);
                std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()
            })?
            .map_err(failed)?;
        let words = || fs::read_to_string(&log).unwrap_or_default();
        let ready = wait_until(&format!("the gateway in {node}"), READY, || {
            (words().contains("ready") || !matches!(process.try_wait(), Ok(None))).then_some(())
        });
        if words().contains("ready") {
            return Ok(());
        }
        drop(process.kill());
        ready?;
        Err(failed(std::io::Error::other(words().trim().to_owned())))
    }

    /// Writes a configuration into the lab's directory; its path.
    fn configuration(&self, node: &str, text: &str) -> Result<String, LabError> {
        let file = self.directory()?.join(format!("{node}.toml"));
        fs::write(&file, text).map_err(|error| LabError::system(format!("write {}", file.display()), error))?;
        Ok(file.display().to_string())
    }
}
