//! Which system calls are left: a list of what is allowed, in the language of seccomp. All others fail
//! with EPERM, and the kernel says so in its log (`type=1326`, with the call's number); none ends the
//! process. Calls of another architecture, of which there are none, do.
//!
//! The list is made from what the gateway calls while all tests run (`strace -f -c`), and from what
//! other C libraries use for the same things: musl has `open` where glibc has `openat`. Calls whose
//! arguments are not looked at are remembered by the kernel as allowed (since Linux 5.11), so that it
//! runs no filter for those of the packet path (`read`, `write`, `readv`, `writev`, `poll`).
//!
//! There are two filters. The first one refuses `clone3` as a kernel refuses it that does not know it
//! (ENOSYS): its flags lie in memory, where filters do not see them, and C libraries then use `clone`,
//! whose flags they do see. The same for [`MARK`], by which a thread finds that it has the filters.

use std::collections::BTreeMap;

use libc as c;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use super::error::{PrivilegeError, prepare};

/// A request to prctl(2) that no kernel knows.
pub(super) const MARK: c::c_int = 0x546f_6d42;

/// What the list depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Calls {
    /// Programs and maps in the kernel: bpf(2).
    pub bpf: bool,
    /// Sockets that are listened at: for where the kernel restricts their ports otherwise.
    pub listen: bool,
}

/// Calls that are allowed whatever their arguments are.
const ALLOWED: &[c::c_long] = &[
    // Packets, files and sockets that are open.
    c::SYS_read,
    c::SYS_write,
    c::SYS_readv,
    c::SYS_writev,
    c::SYS_pread64,
    c::SYS_pwrite64,
    c::SYS_preadv,
    c::SYS_pwritev,
    c::SYS_lseek,
    c::SYS_close,
    c::SYS_dup,
    c::SYS_dup3,
    c::SYS_fcntl,
    c::SYS_flock,
    c::SYS_fsync,
    c::SYS_fdatasync,
    c::SYS_ftruncate,
    c::SYS_fallocate,
    c::SYS_fstat,
    c::SYS_fstatfs,
    c::SYS_getdents64,
    c::SYS_ppoll,
    c::SYS_pselect6,
    c::SYS_epoll_create1,
    c::SYS_epoll_ctl,
    c::SYS_epoll_pwait,
    c::SYS_epoll_pwait2,
    c::SYS_eventfd2,
    c::SYS_pipe2,
    c::SYS_socketpair,
    c::SYS_bind,
    c::SYS_connect,
    c::SYS_accept,
    c::SYS_accept4,
    c::SYS_sendto,
    c::SYS_recvfrom,
    c::SYS_sendmsg,
    c::SYS_recvmsg,
    c::SYS_sendmmsg,
    c::SYS_recvmmsg,
    c::SYS_getsockname,
    c::SYS_getpeername,
    c::SYS_getsockopt,
    c::SYS_setsockopt,
    c::SYS_shutdown,
    // Files by name: which ones is Landlock's business.
    c::SYS_openat,
    c::SYS_openat2,
    c::SYS_newfstatat,
    c::SYS_statx,
    c::SYS_statfs,
    c::SYS_readlinkat,
    c::SYS_faccessat,
    c::SYS_faccessat2,
    c::SYS_unlinkat,
    c::SYS_renameat,
    c::SYS_renameat2,
    c::SYS_mkdirat,
    c::SYS_getcwd,
    // Memory, but for `mmap` and `mprotect`, which are below.
    c::SYS_munmap,
    c::SYS_mremap,
    c::SYS_madvise,
    c::SYS_msync,
    c::SYS_mincore,
    c::SYS_brk,
    c::SYS_membarrier,
    // Threads and signals.
    c::SYS_clone3,
    c::SYS_futex,
    c::SYS_futex_waitv,
    FUTEX_WAKE,
    FUTEX_WAIT,
    FUTEX_REQUEUE,
    c::SYS_set_robust_list,
    c::SYS_get_robust_list,
    c::SYS_rseq,
    c::SYS_set_tid_address,
    c::SYS_exit,
    c::SYS_exit_group,
    c::SYS_rt_sigaction,
    c::SYS_rt_sigprocmask,
    c::SYS_rt_sigreturn,
    c::SYS_rt_sigtimedwait,
    c::SYS_sigaltstack,
    c::SYS_restart_syscall,
    c::SYS_sched_yield,
    c::SYS_sched_getaffinity,
    c::SYS_sched_setaffinity,
    c::SYS_getpriority,
    c::SYS_setpriority,
    // Time, and what a process may know of itself and its system.
    c::SYS_clock_gettime,
    c::SYS_clock_getres,
    c::SYS_clock_nanosleep,
    c::SYS_nanosleep,
    c::SYS_gettimeofday,
    c::SYS_getrandom,
    c::SYS_getpid,
    c::SYS_gettid,
    c::SYS_getppid,
    c::SYS_getuid,
    c::SYS_geteuid,
    c::SYS_getgid,
    c::SYS_getegid,
    c::SYS_getresuid,
    c::SYS_getresgid,
    c::SYS_getgroups,
    c::SYS_capget,
    c::SYS_getrusage,
    c::SYS_getcpu,
    c::SYS_uname,
    c::SYS_sysinfo,
];

/// Since Linux 6.7; not in all versions of the library's list.
const FUTEX_WAKE: c::c_long = 454;
const FUTEX_WAIT: c::c_long = 455;
const FUTEX_REQUEUE: c::c_long = 456;

/// What only x86-64 has, beside newer calls for the same.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c::c_long] = &[
    c::SYS_open,
    c::SYS_stat,
    c::SYS_lstat,
    c::SYS_access,
    c::SYS_readlink,
    c::SYS_unlink,
    c::SYS_rename,
    c::SYS_mkdir,
    c::SYS_rmdir,
    c::SYS_poll,
    c::SYS_select,
    c::SYS_epoll_create,
    c::SYS_epoll_wait,
    c::SYS_eventfd,
    c::SYS_pipe,
    c::SYS_dup2,
    c::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c::c_long] = &[];

/// Kinds of sockets: the control socket and the resolver's, metrics, netlink.
const FAMILIES: [c::c_int; 4] = [c::AF_UNIX, c::AF_INET, c::AF_INET6, c::AF_NETLINK];
/// Nothing that changes a device or a terminal.
const REQUESTS: [c::Ioctl; 6] =
    [c::FIONBIO as _, c::FIONREAD as _, c::FIOCLEX as _, c::TCGETS as _, c::SIOCGIFINDEX as _, c::SIOCGIFNAME as _];
/// The name of the thread, and that of its memory.
const CONTROLS: [c::c_int; 5] = [c::PR_SET_NAME, c::PR_GET_NAME, c::PR_SET_VMA, c::PR_GET_NO_NEW_PRIVS, MARK];
/// Threads, but no processes,
const THREAD: u64 = c::CLONE_THREAD as u64;
/// and none in another namespace.
const NAMESPACES: u64 = (c::CLONE_NEWNS
    | c::CLONE_NEWCGROUP
    | c::CLONE_NEWUTS
    | c::CLONE_NEWIPC
    | c::CLONE_NEWUSER
    | c::CLONE_NEWPID
    | c::CLONE_NEWNET) as u32 as u64;
/// Commands of bpf(2) (`linux/bpf.h`): MAP_CREATE, MAP_LOOKUP_ELEM, MAP_UPDATE_ELEM, MAP_DELETE_ELEM,
/// MAP_GET_NEXT_KEY, PROG_LOAD, OBJ_PIN, OBJ_GET, PROG_ATTACH, PROG_DETACH, OBJ_GET_INFO_BY_FD,
/// PROG_QUERY, BTF_LOAD, MAP_FREEZE, LINK_CREATE, LINK_UPDATE, LINK_DETACH. Not those that find
/// what belongs to others by its number.
const BPF: [u64; 17] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 18, 22, 28, 29, 34];

type Rules = BTreeMap<c::c_long, Vec<SeccompRule>>;

impl Calls {
    /// The filters, in the order in which they are installed.
    pub(super) fn filters(self) -> Result<Vec<Vec<sock_filter>>, PrivilegeError> {
        let made = || -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
            let unknown = BTreeMap::from([(c::SYS_clone3, Vec::new()), (c::SYS_prctl, vec![is(0, value(MARK))?])]);
            let errno = |number: c::c_int| SeccompAction::Errno(number.unsigned_abs());
            Ok(vec![
                program(unknown, SeccompAction::Allow, errno(c::ENOSYS))?,
                program(self.rules()?, errno(c::EPERM), SeccompAction::Allow)?,
            ])
        };
        made().map_err(prepare("making the filter of system calls"))
    }

    fn rules(self) -> Result<Rules, seccompiler::BackendError> {
        let mut rules: Rules = ALLOWED.iter().chain(ALLOWED_HERE).map(|&call| (call, Vec::new())).collect();
        let any = |argument: u8, values: &[u64]| -> Result<Vec<_>, _> {
            values.iter().map(|&value| is(argument, value)).collect()
        };
        rules.insert(c::SYS_socket, any(0, &FAMILIES.map(value))?);
        rules.insert(c::SYS_ioctl, any(1, &REQUESTS.map(u64::from))?);
        rules.insert(c::SYS_prctl, any(0, &CONTROLS.map(value))?);
        rules.insert(c::SYS_tgkill, any(0, &[u64::from(std::process::id())])?);
        // Reading a limit, not setting it.
        rules.insert(c::SYS_prlimit64, any(2, &[0])?);
        // The time of a file that is open, not of one by name.
        rules.insert(c::SYS_utimensat, any(1, &[0])?);
        rules.insert(c::SYS_clone, vec![masked(0, THREAD | NAMESPACES, THREAD)?]);
        // No memory that is executed.
        let executable = u64::from(c::PROT_EXEC.unsigned_abs());
        rules.insert(c::SYS_mmap, vec![masked(2, executable, 0)?]);
        rules.insert(c::SYS_mprotect, vec![masked(2, executable, 0)?]);
        if self.listen {
            rules.insert(c::SYS_listen, Vec::new());
        }
        if self.bpf {
            rules.insert(c::SYS_bpf, any(0, &BPF)?);
        }
        Ok(rules)
    }
}

fn value(number: c::c_int) -> u64 {
    u64::from(number.unsigned_abs())
}

fn is(argument: u8, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    rule(argument, SeccompCmpOp::Eq, value)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    rule(argument, SeccompCmpOp::MaskedEq(mask), value)
}

/// The kernel looks at the lower half of all arguments that are checked here, but for pointers.
fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let length =
        if operator == SeccompCmpOp::Eq && value == 0 { SeccompCmpArgLen::Qword } else { SeccompCmpArgLen::Dword };
    SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
}

fn program(
    rules: Rules,
    other: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(rules, other, matching, TargetArch::try_from(std::env::consts::ARCH)?)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_are_what_the_kernel_takes() {
        for bpf in [false, true] {
            let filters = Calls { bpf, listen: bpf }.filters().unwrap();
            assert_eq!(filters.len(), 2);
            assert!(filters.iter().all(|filter| (3..4096).contains(&filter.len())));
        }
    }

    #[test]
    fn what_starts_programs_or_reaches_others_is_not_allowed() {
        let rules = Calls { bpf: true, listen: true }.rules().unwrap();
        let forbidden = [
            c::SYS_execve,
            c::SYS_execveat,
            c::SYS_ptrace,
            c::SYS_process_vm_readv,
            c::SYS_mount,
            c::SYS_init_module,
            c::SYS_kill,
            c::SYS_setns,
            c::SYS_unshare,
            c::SYS_seccomp,
            c::SYS_io_uring_setup,
            c::SYS_perf_event_open,
            c::SYS_userfaultfd,
            c::SYS_fchmodat,
            c::SYS_fchownat,
        ];
        assert!(forbidden.iter().all(|call| !rules.contains_key(call)));
        let fewest = Calls::default().rules().unwrap();
        assert!([c::SYS_bpf, c::SYS_listen].iter().all(|call| !fewest.contains_key(call)));
    }
}
