//! A gateway of somebody else: two interfaces of this machine lead to it, and commands of the user
//! drive it.
//!
//! Each hook is a line for `sh -c`; exit status 0 means done. The environment variable
//! `TOMBOLO_HOOK` names the hook.

use std::collections::BTreeMap;
use std::io;
use std::process::{Command, Stdio};

use tombolo_generator::{Ends, Port, link_address};

use super::control::{Gateway, GatewayError, TableCounts};

/// How to drive a gateway from outside. Commands that are absent make the procedures that need them
/// unavailable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Its name in tables.
    pub name: Option<String>,
    /// Interface that leads to the gateway's inside.
    pub left: String,
    /// Interface that leads to its outside.
    pub right: String,
    /// Link-layer address of the gateway's inside port.
    pub left_gateway: [u8; 6],
    /// Link-layer address of its outside port.
    pub right_gateway: [u8; 6],
    /// Empties its tables of connections; returns when that is done.
    pub flush: Option<String>,
    /// Restarts it.
    pub reset: Option<String>,
    /// Prints the number of connections in its tables.
    pub sessions: Option<String>,
    /// Sets the number of cores it works on; `TOMBOLO_CORES` says how many.
    pub cores: Option<String>,
    /// How long it keeps UDP connections, seconds.
    pub udp_timeout_seconds: Option<u64>,
}

/// A gateway behind two interfaces.
pub struct External {
    hooks: Hooks,
}

impl External {
    /// Takes the hooks as they are; nothing is run yet.
    pub fn new(hooks: Hooks) -> External {
        External { hooks }
    }

    fn run(&self, hook: &str, line: Option<&String>, cores: usize) -> Result<String, GatewayError> {
        let line = line.ok_or_else(|| GatewayError::Unsuitable {
            gateway: self.name(),
            reason: format!("the procedure needs a command for `{hook}`; give it with --hook-{hook} COMMAND"),
        })?;
        let failed = |source| GatewayError::System {
            gateway: self.name(),
            action: format!("run the {hook} hook `{line}`"),
            source,
        };
        let output = Command::new("sh")
            .args(["-c", line])
            .env("TOMBOLO_HOOK", hook)
            .env("TOMBOLO_CORES", cores.to_string())
            .stdin(Stdio::null())
            .output()
            .map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(failed(io::Error::other(format!("{}: {words}", output.status))))
    }

    fn port(name: &str) -> Port {
        Port { name: name.to_owned(), namespace: None }
    }
}

impl Gateway for External {
    fn name(&self) -> String {
        self.hooks.name.clone().unwrap_or_else(|| "external".to_owned())
    }

    fn description(&self) -> BTreeMap<String, String> {
        let hooks = [("flush", &self.hooks.flush), ("reset", &self.hooks.reset), ("sessions", &self.hooks.sessions)];
        hooks.into_iter().filter_map(|(name, line)| Some((format!("hook {name}"), line.clone()?))).collect()
    }

    fn ports(&self) -> (Port, Port) {
        (External::port(&self.hooks.left), External::port(&self.hooks.right))
    }

    fn ends(&self) -> Result<(Ends, Ends), GatewayError> {
        let (left, right) = self.ports();
        let address = |port: &Port| {
            link_address(port).map_err(|source| GatewayError::System {
                gateway: self.name(),
                action: format!("find the link-layer address of {}", port.name),
                source,
            })
        };
        Ok((
            Ends { source: address(&left)?, destination: self.hooks.left_gateway },
            Ends { source: address(&right)?, destination: self.hooks.right_gateway },
        ))
    }

    fn flush(&mut self) -> Result<(), GatewayError> {
        self.run("flush", self.hooks.flush.as_ref(), 0).map(drop)
    }

    fn reset(&mut self) -> Result<(), GatewayError> {
        self.run("reset", self.hooks.reset.as_ref(), 0).map(drop)
    }

    fn counts(&mut self) -> Option<TableCounts> {
        let sessions = self.run("sessions", self.hooks.sessions.as_ref(), 0).ok()?.trim().parse().ok()?;
        Some(TableCounts { sessions: Some(sessions), bindings: None })
    }

    fn udp_timeout_seconds(&self) -> Option<u64> {
        self.hooks.udp_timeout_seconds
    }

    fn place(&mut self, cores: &[usize]) -> Result<String, GatewayError> {
        if self.hooks.cores.is_some() {
            self.run("cores", self.hooks.cores.as_ref(), cores.len())?;
            return Ok(format!("the cores hook was run for {} cores", cores.len()));
        }
        Ok("on its own machine; nothing was changed there".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_run_and_their_failures_reported() {
        let mut gateway = External::new(Hooks {
            flush: Some("test \"$TOMBOLO_HOOK\" = flush".to_owned()),
            sessions: Some("echo 1234".to_owned()),
            ..Hooks::default()
        });
        gateway.flush().unwrap();
        assert_eq!(gateway.counts(), Some(TableCounts { sessions: Some(1234), bindings: None }));
        assert!(gateway.reset().unwrap_err().to_string().contains("--hook-reset"));
        let mut broken =
            External::new(Hooks { flush: Some("echo no such box >&2; exit 3".to_owned()), ..Hooks::default() });
        let words = broken.flush().unwrap_err().to_string();
        assert!(words.contains("no such box") && words.contains("exit status: 3"), "{words}");
    }
}
