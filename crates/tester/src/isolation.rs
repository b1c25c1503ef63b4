//! Cores that are the tester's alone while it measures: everything else of the machine is kept off
//! them, as `systemctl set-property --runtime AllowedCPUs=` would, and put back afterwards.
//!
//! Real-time priority does not do that: the kernel leaves 5 % of such a core to others, 50 ms at a
//! time, and a pause of that length costs a trial. With control groups of version 2 the groups below
//! the root get the other cores, and the tester a group of its own beside them. With version 1 (a
//! mounted `cpuset`) those below its root do, and the root's own processes get a group. Threads of
//! the kernel that are bound to a core stay there. All is put back by an [`Undo`], however the tester
//! ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tombolo_generator::Undo;

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
const CPUS: &str = "cpuset.cpus";
const MEMORY: &str = "cpuset.mems";
const CONTROLLERS: &str = "cgroup.controllers";
const SUBTREE: &str = "cgroup.subtree_control";
/// Processes of a group, and its threads in version 1.
const PROCESSES: &str = "cgroup.procs";

/// While it lives, the cores are the tester's.
#[derive(Debug)]
pub struct Isolation {
    /// Its own group, which goes at the end.
    group: PathBuf,
    cores: Vec<usize>,
    /// Puts everything back.
    _undo: Undo,
}

impl Isolation {
    /// Keeps everything but this process, and what it starts, off these cores; the others of the
    /// machine are for the rest.
    ///
    /// # Errors
    /// In words, if the kernel has no control of processors or refuses; then nothing has changed.
    pub fn begin(cores: &[usize], others: &[usize]) -> Result<Isolation, String> {
        let mount = Path::new(MOUNT);
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let home = |prefix: &str| own.lines().find_map(|line| line.split_once(prefix)).map(|(_, path)| path.to_owned());
        if has_cpuset(mount) {
            return Isolation::below(mount, &home("0::/").unwrap_or_default(), std::process::id(), cores, others);
        }
        let former = mount.join("cpuset");
        if !former.join(CPUS).exists() {
            return Err(format!("{MOUNT} has no cpuset, neither as version 2 nor as version 1"));
        }
        Isolation::below(&former, &home(":cpuset:/").unwrap_or_default(), std::process::id(), cores, others)
    }

    /// The same in the tree below `root`, for the process `own`, which is in the group `home` there.
    fn below(root: &Path, home: &str, own: u32, cores: &[usize], others: &[usize]) -> Result<Isolation, String> {
        if others.is_empty() {
            return Err("no core would be left for the rest of the machine".to_owned());
        }
        let group = root.join(format!("tombolo-{own}"));
        let in_words = |error: io::Error| format!("{}: {error}", root.display());
        let mut undo = Undo::begin("tombolo-isolation").map_err(in_words)?;
        // What has been done so far is undone where a step fails: by being dropped.
        take(&mut undo, &group, root, home, own, &list(others)).map_err(in_words)?;
        Ok(Isolation { group, cores: cores.to_vec(), _undo: undo })
    }

    /// What was done, for results.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("cores {} are the tester's and its gateway's alone ({})", list(&self.cores), self.group.display())
    }
}

/// Takes the steps, after each was noted with the one that undoes it.
fn take(undo: &mut Undo, group: &Path, root: &Path, home: &str, own: u32, others: &str) -> io::Result<()> {
    let is_new = root.join(CONTROLLERS).exists();
    if is_new && !read(&root.join(SUBTREE)).split_whitespace().any(|word| word == "cpuset") {
        fs::write(root.join(SUBTREE), "+cpuset")?;
    }
    let siblings: Vec<PathBuf> = groups_below(root)?;
    let home = root.join(home);
    // Processes that start in the group meanwhile leave it, too.
    undo.empty(group, if is_new { &home } else { root })?;
    fs::create_dir(group)?;
    if is_new {
        move_to(own, group)?;
    } else {
        // Version 1 has no tasks in a group without cores and memory. This one is the others'.
        fs::write(group.join(MEMORY), read(&root.join(MEMORY)).trim())?;
        fs::write(group.join(CPUS), others)?;
        undo.write(&home.join(PROCESSES), &own.to_string())?;
        move_to(own, root)?;
        for process in read(&root.join(PROCESSES)).lines().filter_map(|line| line.parse().ok()) {
            // Those bound to a core, and those that have ended meanwhile, are not moved.
            let _ = if process == own { Ok(()) } else { move_to(process, group) };
        }
    }
    for sibling in siblings {
        let file = sibling.join(CPUS);
        // An empty line is what lets a group have all cores again.
        undo.write(&file, read(&file).trim())?;
        fs::write(&file, others)?;
    }
    Ok(())
}

fn move_to(process: u32, group: &Path) -> io::Result<()> {
    fs::write(group.join(PROCESSES), process.to_string())
}

/// Which cores are taken from the rest of the machine, and which are left to it: the gateway's as well
/// where others remain.
#[must_use]
pub fn divide(sending: &[usize], gateway: &[usize], there: usize) -> (Vec<usize>, Vec<usize>) {
    let without = |taken: &dyn Fn(&usize) -> bool| (0..there).filter(|core| !taken(core)).collect::<Vec<_>>();
    let left = without(&|core| sending.contains(core) || gateway.contains(core));
    match left.is_empty() {
        true => (sending.to_vec(), without(&|core| sending.contains(core))),
        false => (without(&|core| left.contains(core)), left),
    }
}

fn has_cpuset(mount: &Path) -> bool {
    read(&mount.join(CONTROLLERS)).split_whitespace().any(|word| word == "cpuset")
}

fn groups_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root)?.flatten().map(|entry| entry.path());
    Ok(entries.filter(|path| path.is_dir() && path.join(CPUS).exists()).collect())
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree as the kernel shows it, with these groups.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn the_gateways_cores_are_taken_where_others_remain() {
        assert_eq!(divide(&[0], &[1], 4), (vec![0, 1], vec![2, 3]));
        assert_eq!(divide(&[0], &[1], 2), (vec![0], vec![1]));
        assert_eq!(divide(&[0], &[0], 1), (vec![0], vec![]));
    }

    #[test]
    fn groups_of_version_2_get_the_other_cores_and_have_theirs_back() {
        let root = tree(&[
            ("cgroup.controllers", "cpuset cpu memory\n"),
            ("cgroup.subtree_control", "cpu\n"),
            ("system.slice/cpuset.cpus", "\n"),
            ("user.slice/cpuset.cpus", "0-2\n"),
            ("user.slice/cgroup.procs", "7\n42\n"),
        ]);
        let of = |file: &str| read(&root.path().join(file));
        let isolation = Isolation::below(root.path(), "user.slice", 42, &[0, 1], &[2, 3]).unwrap();
        assert_eq!(of("cgroup.subtree_control"), "+cpuset");
        assert_eq!((of("system.slice/cpuset.cpus"), of("user.slice/cpuset.cpus")), ("2,3".into(), "2,3".into()));
        assert_eq!(of("tombolo-42/cgroup.procs"), "42");
        assert!(isolation.in_words().contains("cores 0,1"));
        drop(isolation);
        assert_eq!((of("system.slice/cpuset.cpus"), of("user.slice/cpuset.cpus")), ("\n".into(), "0-2\n".into()));
        assert_eq!(of("user.slice/cgroup.procs"), "42\n");
    }

    #[test]
    fn what_fails_leaves_all_as_it_was() {
        let root = tree(&[
            ("cgroup.controllers", "cpuset\n"),
            ("cgroup.subtree_control", "cpuset\n"),
            ("a.slice/cpuset.cpus", "0-3\n"),
            // Not to be written to.
            ("b.slice/cpuset.cpus/x", ""),
            ("home/cgroup.procs", "7\n42\n"),
        ]);
        let error = Isolation::below(root.path(), "home", 42, &[0], &[1, 2]).unwrap_err();
        assert!(error.contains("directory"), "{error}");
        assert_eq!(read(&root.path().join("a.slice/cpuset.cpus")).trim(), "0-3");
        assert_eq!(read(&root.path().join("home/cgroup.procs")), "42\n");
        assert!(Isolation::below(root.path(), "home", 42, &[0], &[]).unwrap_err().contains("no core"));
    }

    /// In a group of its own below the kernel's, where it is mounted as version 1 and may be written to.
    #[test]
    fn processes_of_version_1_are_off_the_cores_and_back() {
        let root = Path::new(MOUNT).join(format!("cpuset/tombolo-test-{}", std::process::id()));
        if fs::create_dir(&root).is_err() {
            eprintln!(
                "SKIPPED: processes_of_version_1_are_off_the_cores_and_back: no cpuset of version 1 that may be changed"
            );
            return;
        }
        for file in [CPUS, MEMORY] {
            fs::write(root.join(file), read(&Path::new(MOUNT).join("cpuset").join(file)).trim()).unwrap();
        }
        let sleep = || std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let mut both = [sleep(), sleep()];
        let [own, other] = both.each_ref().map(std::process::Child::id);
        for process in [own, other] {
            fs::write(root.join(PROCESSES), process.to_string()).unwrap();
        }
        let allowed = |process: u32| {
            let status = read(Path::new(&format!("/proc/{process}/status")));
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.unwrap_or_default().trim().to_owned()
        };
        let before = [own, other].map(allowed);
        if before[0] != "0" {
            let isolation = Isolation::below(&root, "", own, &[0], &[1]).unwrap();
            assert_eq!([own, other].map(allowed), [before[0].clone(), "1".to_owned()]);
            // One that starts meanwhile is where its parent is.
            let mut born = sleep();
            fs::write(root.join(format!("tombolo-{own}")).join(PROCESSES), born.id().to_string()).unwrap();
            assert_eq!(allowed(born.id()), "1");
            drop(isolation);
            assert_eq!([own, other].map(allowed), before);
            assert_eq!(allowed(born.id()), before[0], "what started meanwhile was left behind");
            born.kill().unwrap();
            born.wait().unwrap();
        }
        for child in &mut both {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        fs::remove_dir(&root).unwrap();
    }
}
