//! Which labs there are, and what removes them when nobody gets to drop them.
//!
//! - In this process: a list of live labs, removed by a thread that waits for SIGINT, SIGTERM and
//!   SIGHUP and then lets the signal do what it would have done. The first lab installs it.
//! - On this machine: one file per lab under /run/tombolo/labs, which says whose it is. A lab whose
//!   process is dead is stale ([`remove_stale`]); a named lab belongs to nobody and stays until
//!   [`remove_named`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use crate::{LabError, groups::ProcessGroups, interruption::interrupt, namespace, pins};

/// Where labs leave their records.
const RECORDS: &str = "/run/tombolo/labs";

static LIVE: Mutex<Vec<Weak<Teardown>>> = Mutex::new(Vec::new());

/// What is written down about a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabRecord {
    /// The first part of its namespaces' names: `tombolo-` and its name, or `tombolo-PID-NUMBER`.
    pub id: String,
    /// Its name, if it is a named lab, which outlives the process that made it.
    pub name: Option<String>,
    /// The process that made it.
    pub pid: u32,
    /// When that process started, in clock ticks since boot (field 22 of /proc/PID/stat): process
    /// ids are reused.
    pub started: u64,
    /// The topology's name.
    pub topology: String,
    /// Its nodes and their namespaces.
    pub nodes: Vec<NodeRecord>,
}

/// A node in a [`LabRecord`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The node's name in the topology.
    pub node: String,
    /// Its namespace's name for `ip netns exec`.
    pub namespace: String,
}

impl LabRecord {
    /// The directory of its files.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        directory_of(&self.id)
    }

    /// Whether the process that made the lab is gone.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        start_of(self.pid) != Some(self.started)
    }
}

/// Everything needed to remove a lab of this process, whoever does it.
#[derive(Debug)]
pub(crate) struct Teardown {
    pub(crate) record: LabRecord,
    pub(crate) groups: Arc<ProcessGroups>,
    /// Files of /proc or /sys that it changed.
    settings: Mutex<BTreeSet<PathBuf>>,
    done: Mutex<bool>,
}

impl Teardown {
    /// Writes the record down and arms the removal; nothing of the lab exists before this.
    pub(crate) fn arm(record: LabRecord) -> Result<Arc<Self>, LabError> {
        watch_signals()?;
        write_record(&record)?;
        let teardown =
            Arc::new(Self { record, groups: Arc::default(), settings: Mutex::default(), done: Mutex::new(false) });
        let mut live = locked(&LIVE);
        live.retain(|other| other.strong_count() > 0);
        live.push(Arc::downgrade(&teardown));
        Ok(teardown)
    }

    /// Does a step of building, unless the lab is being removed already.
    pub(crate) fn unless_removed<T>(&self, step: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
        let done = locked(&self.done);
        if *done { Err(LabError::Interrupted) } else { step() }
    }

    /// Makes the lab outlive this process.
    pub(crate) fn disarm(&self) {
        *locked(&self.done) = true;
    }

    /// Kills what runs in the lab and removes it, once; who comes second waits for the first.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        let mut done = locked(&self.done);
        if *done {
            return Ok(());
        }
        *done = true;
        self.groups.close();
        for file in std::mem::take(&mut *locked(&self.settings)) {
            put_back(&file);
        }
        remove_recorded(&self.record)
    }

    /// Changes a setting of the whole machine, which is put back when the lab goes.
    pub(crate) fn change_setting(&self, file: &Path, value: &str) -> Result<(), LabError> {
        self.unless_removed(|| {
            let failed = |action: &str| format!("{action} {}", file.display());
            let before = fs::read_to_string(file).map_err(|e| LabError::system(failed("read"), e))?;
            fs::write(file, value).map_err(|e| LabError::system(failed("write"), e))?;
            if locked(&self.settings).insert(file.to_owned()) {
                let mut originals = locked(&ORIGINALS);
                originals.entry(file.to_owned()).or_insert((before.trim().to_owned(), 0)).1 += 1;
            }
            Ok(())
        })
    }
}

/// What stood in settings of the machine before any lab of this process changed them, and how many
/// labs have: the last one puts it back, in whichever order they go.
static ORIGINALS: Mutex<BTreeMap<PathBuf, (String, usize)>> = Mutex::new(BTreeMap::new());

fn put_back(file: &Path) {
    let mut originals = locked(&ORIGINALS);
    let Some((before, labs)) = originals.get_mut(file) else { return };
    *labs -= 1;
    if *labs > 0 {
        return;
    }
    if let Err(error) = fs::write(file, &*before) {
        eprintln!("cannot put {before} back into {}: {error}", file.display());
    }
    originals.remove(file);
}

/// All labs of this machine, by id.
///
/// # Errors
/// [`LabError::System`] when the records cannot be read, [`LabError::BadRecord`] when one makes no
/// sense.
pub fn list() -> Result<Vec<LabRecord>, LabError> {
    let entries = match fs::read_dir(RECORDS) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(LabError::system(format!("read {RECORDS}"), e)),
    };
    let mut records = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| LabError::system(format!("read {RECORDS}"), e))?.path();
        if path.extension().is_some_and(|extension| extension == "json")
            && let Some(record) = read_record(&path)?
        {
            records.push(record);
        }
    }
    records.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(records)
}

/// Removes a named lab. Returns whether there was one.
///
/// # Errors
/// [`LabError`] when it cannot be removed.
pub fn remove_named(name: &str) -> Result<bool, LabError> {
    let found = list()?.into_iter().find(|record| record.name.as_deref() == Some(name));
    found.map_or(Ok(false), |record| remove_recorded(&record).map(|()| true))
}

/// Removes the labs that dead processes left behind, and with `named` all named labs as well. Labs
/// of living processes stay. Returns the ids removed.
///
/// # Errors
/// [`LabError`] at the first that cannot be removed.
pub fn remove_stale(named: bool) -> Result<Vec<String>, LabError> {
    let mut removed = Vec::new();
    for record in list()? {
        let stale = if record.name.is_some() { named } else { record.is_orphan() };
        if stale {
            remove_recorded(&record)?;
            removed.push(record.id);
        }
    }
    Ok(removed)
}

/// Writes a record where [`list`] finds it; a name that is taken is refused.
fn write_record(record: &LabRecord) -> Result<(), LabError> {
    let failed = |e: io::Error| LabError::system(format!("write the lab's record in {RECORDS}"), e);
    let text = serde_json::to_string_pretty(record).map_err(|e| failed(e.into()))?;
    fs::create_dir_all(RECORDS).map_err(failed)?;
    // Whole or not at all: written aside, then linked to its name, which fails when that is taken.
    let aside = Path::new(RECORDS).join(format!("{}.{}.new", record.id, std::process::id()));
    fs::write(&aside, text).map_err(failed)?;
    let linked = fs::hard_link(&aside, record_path(&record.id));
    fs::remove_file(&aside).map_err(failed)?;
    match linked {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(LabError::BadName {
            name: record.name.clone().unwrap_or_else(|| record.id.clone()),
            reason: "there is a lab of that name; fix: tombolo lab down NAME".to_owned(),
        }),
        other => other.map_err(failed),
    }
}

fn read_record(path: &Path) -> Result<Option<LabRecord>, LabError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        // Its lab was removed since the directory was read.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(LabError::system(format!("read {}", path.display()), e)),
    };
    let record = serde_json::from_str(&text);
    record.map(Some).map_err(|e| LabError::BadRecord { path: path.to_owned(), reason: e.to_string() })
}

fn record_path(id: &str) -> PathBuf {
    Path::new(RECORDS).join(format!("{id}.json"))
}

/// The directory for a lab's files (generated configurations, captures); it goes with the lab.
pub(crate) fn directory_of(id: &str) -> PathBuf {
    Path::new(RECORDS).join(format!("{id}.d"))
}

/// Removes the lab that a record describes, with every process that is still in it.
fn remove_recorded(record: &LabRecord) -> Result<(), LabError> {
    for node in &record.nodes {
        kill_inhabitants(&namespace::path_of(&node.namespace));
        namespace::remove(&node.namespace)?;
    }
    pins::remove_named(&record.id);
    let failed = |e| LabError::system(format!("remove the files of {}", record.id), e);
    unless_absent(fs::remove_dir_all(directory_of(&record.id))).map_err(failed)?;
    unless_absent(fs::remove_file(record_path(&record.id))).map_err(failed)
}

/// Takes it for success that there was nothing to remove.
fn unless_absent(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// Kills all processes in a namespace, daemons that left their process group included. This process
/// is spared: its threads leave by themselves.
fn kill_inhabitants(namespace: &Path) {
    let Ok(here) = fs::metadata(namespace).map(|file| (file.dev(), file.ino())) else {
        return;
    };
    let Ok(processes) = fs::read_dir("/proc") else {
        return;
    };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let theirs = fs::metadata(process.path().join("ns/net")).map(|file| (file.dev(), file.ino()));
        if theirs.is_ok_and(|theirs| theirs == here) && pid.cast_unsigned() != std::process::id() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// When a process started; `None` when there is no such process.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses and may hold anything; field 22 is the 20th
    // after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Starts the thread that removes the labs of this process when it is asked to end.
fn watch_signals() -> Result<(), LabError> {
    static WATCHING: Once = Once::new();
    let mut result = Ok(());
    WATCHING.call_once(|| result = start_watching());
    result.map_err(|e| LabError::system("watch for signals", e))
}

fn start_watching() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let body = move || {
        if let Some(signal) = signals.forever().next() {
            interrupt();
            remove_live();
            // Ends this process with the signal that it got, so that the shell sees why.
            drop(emulate_default_handler(signal));
        }
    };
    thread::Builder::new().name("lab-signals".to_owned()).spawn(body).map(drop)
}

fn remove_live() {
    let live: Vec<Weak<Teardown>> = std::mem::take(&mut *locked(&LIVE));
    for teardown in live.iter().filter_map(Weak::upgrade) {
        if let Err(error) = teardown.remove() {
            eprintln!("{}; `tombolo lab down --all` tries again", error.chain());
        }
    }
}

/// Locks a mutex whose data is consistent at every step, so that a panic elsewhere does not matter.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_and_a_dead_one_has_none() {
        assert_eq!(start_of(std::process::id()), start_of(std::process::id()));
        assert!(start_of(std::process::id()).is_some());
        // Beyond the largest process id that Linux gives (2^22).
        assert_eq!(start_of(5_000_000), None);
    }
}
