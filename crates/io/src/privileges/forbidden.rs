//! Calls that a gateway never makes and whoever takes it over would: for tests, which have a running
//! gateway try them. In builds with debug assertions only. Where one is not refused it does no harm.
//!
//! `TOMBOLO_DECOY` in the environment names a file, an abstract socket and a TCP port of loopback that are
//! others', with commas between them.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::ptr;

use libc as c;
use nix::errno::Errno;

/// A call by name, and what came of it.
type Tried = (&'static str, io::Result<()>);

/// Tries them all, and says on the standard error what came of each.
pub(crate) fn try_and_say() {
    let decoys = std::env::var("TOMBOLO_DECOY").unwrap_or_default();
    let mut decoys = decoys.split(',');
    let mut next = || decoys.next().unwrap_or_default();
    let file = CString::new(next()).unwrap_or_default();
    let (socket, port) = (next().as_bytes(), next().parse().unwrap_or_default());
    for (call, result) in attempt(&file, socket, port) {
        match result {
            Ok(()) => eprintln!("forbidden call {call}: let through"),
            Err(error) => eprintln!("forbidden call {call}: {error}"),
        }
    }
    eprintln!("forbidden calls tried");
}

fn attempt(decoy: &CStr, socket: &[u8], port: u16) -> Vec<Tried> {
    let mut tried = vec![
        ("another abstract socket", connect_abstract(socket)),
        ("another TCP port", TcpStream::connect(("127.0.0.1", port)).map(drop)),
        ("listen at another TCP port", TcpListener::bind(("127.0.0.1", port)).map(drop)),
    ];
    let mut note = |name, result: c::c_long| tried.push((name, Errno::result(result).map(drop).map_err(Into::into)));
    let none = ptr::null::<u8>();
    let number = |value: c::c_int| c::c_long::from(value);
    let empty = [ptr::null::<c::c_char>()];
    // SAFETY: each call gets pointers to what it asks for, or null where it then does nothing; none
    // writes to this process's memory.
    unsafe {
        note("read /etc/shadow", number(c::open(c"/etc/shadow".as_ptr(), c::O_RDONLY)));
        note("read a decoy", number(c::open(decoy.as_ptr(), c::O_RDONLY)));
        note("write a decoy", number(c::open(decoy.as_ptr(), c::O_WRONLY)));
        note("unlink a decoy", number(c::unlink(decoy.as_ptr())));
        note("rename a decoy", number(c::rename(decoy.as_ptr(), c"/tmp/tombolo-decoy".as_ptr())));
        note("make a file", number(c::open(c"/tmp/tombolo-forbidden".as_ptr(), c::O_WRONLY | c::O_CREAT, 0o600)));
        note("make a directory", number(c::mkdir(c"/tmp/tombolo-forbidden.d".as_ptr(), 0o700)));
        note("chmod a decoy", number(c::chmod(decoy.as_ptr(), 0o600)));
        note("chown a decoy", number(c::chown(decoy.as_ptr(), 0, 0)));
        note("symlink", number(c::symlink(decoy.as_ptr(), c"/tmp/tombolo-link".as_ptr())));
        note("mount", number(c::mount(c"none".as_ptr(), c"/nowhere".as_ptr(), c"tmpfs".as_ptr(), 0, none.cast())));
        note("umount", number(c::umount2(c"/nowhere".as_ptr(), 0)));
        note("chroot", number(c::chroot(c"/nowhere".as_ptr())));
        note("setns", number(c::setns(-1, 0)));
        note("unshare", number(c::unshare(c::CLONE_FS)));
        note("ptrace", c::ptrace(c::PTRACE_PEEKDATA, 1, none, none));
        note("process_vm_readv", c::syscall(c::SYS_process_vm_readv, 1, none, 0, none, 0, 0));
        note("kill", number(c::kill(1, 0)));
        note("init_module", c::syscall(c::SYS_init_module, none, 0, c"".as_ptr()));
        note("kexec_load", c::syscall(c::SYS_kexec_load, 0, 0, none, u64::MAX));
        note("setuid", c::syscall(c::SYS_setuid, c::getuid()));
        note("capset", c::syscall(c::SYS_capset, none, none));
        note("seccomp", c::syscall(c::SYS_seccomp, 0xffff, 0, none));
        note("prctl", number(c::prctl(c::PR_GET_DUMPABLE)));
        note("perf_event_open", c::syscall(c::SYS_perf_event_open, none, 0, -1, -1, 0));
        note("userfaultfd", c::syscall(c::SYS_userfaultfd, u64::MAX));
        note("io_uring_setup", c::syscall(c::SYS_io_uring_setup, 0, none));
        note("keyctl", c::syscall(c::SYS_keyctl, 0xffff, 0, 0, 0, 0));
        note("bpf of others", c::syscall(c::SYS_bpf, 11, none, 0));
        note("a raw packet socket", number(c::socket(c::AF_PACKET, c::SOCK_RAW, 0)));
        note("a raw socket", number(c::socket(c::AF_INET, c::SOCK_RAW, c::IPPROTO_ICMP)));
        note("terminal input", number(c::ioctl(2, c::TIOCSTI, c"x".as_ptr())));
        note("executable memory", map_executable());
        // A child would end at once.
        note("fork", fork());
        note("execve", number(c::execve(c"/bin/true".as_ptr(), empty.as_ptr(), empty.as_ptr())));
    }
    tried
}

fn fork() -> c::c_long {
    // SAFETY: the child does nothing but to end.
    let child = unsafe { c::syscall(c::SYS_clone, c::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: see above.
        unsafe { c::_exit(0) };
    }
    child
}

fn map_executable() -> c::c_long {
    // SAFETY: new memory, which nobody uses.
    let found = unsafe {
        let protection = c::PROT_READ | c::PROT_EXEC;
        c::mmap(ptr::null_mut(), 4096, protection, c::MAP_PRIVATE | c::MAP_ANONYMOUS, -1, 0)
    };
    if found == c::MAP_FAILED { -1 } else { 0 }
}

fn connect_abstract(name: &[u8]) -> io::Result<()> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop)
}
