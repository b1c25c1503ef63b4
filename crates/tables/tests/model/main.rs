//! The tables under a model checker: every order of steps of a few threads (at most so many forced
//! changes of thread), and every value that the processor's memory may show them. loom runs the
//! real code; see `docs/reliability.md`, "Model checking".
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p tombolo-tables --test model --target-dir target/loom
//! ```

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test may")]

mod arena;
mod changes;
mod death;
mod index;
mod kernel;
mod session;
mod tables;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use loom::thread::JoinHandle;
use tombolo_tables::atomic;
use tombolo_tables::audit;
use tombolo_tables::binding::{Binding, InsideKey, flags};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::session::{Lifetimes, State};
use tombolo_tables::tables::{Candidate, Capacity, Tables};
use tombolo_tables::tick::Tick;

const OPEN: State = State(1);
const FOREVER: Lifetimes = Lifetimes([u32::MAX; 16]);
const NOW: Tick = Tick(100);

/// Executions after which a model is left; few get there.
const MOST: usize = 20_000;

/// What was explored under one name.
struct Model {
    name: String,
    preemptions: usize,
    executions: usize,
    /// Some were left out.
    is_cut_off: bool,
    began: Instant,
}

impl Model {
    fn new(name: &str, preemptions: usize) -> Self {
        Self { name: name.to_owned(), preemptions, executions: 0, is_cut_off: false, began: Instant::now() }
    }

    /// Explores `run` with at most as many changes of thread that nothing asked for. With a
    /// weakened ordering the process ends when it fails.
    fn explore(&mut self, run: impl Fn() + Send + Sync + 'static) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.max_branches = 20_000;
        builder.checkpoint_interval = 1000;
        builder.max_permutations = Some(MOST);
        let explored = catch_unwind(AssertUnwindSafe(|| {
            builder.check(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                run();
            });
        }));
        let count = count.load(Ordering::Relaxed);
        self.executions += count;
        self.is_cut_off |= count + 1 >= MOST;
        if let Err(why) = explored {
            self.report("FAILED");
            if atomic::is_weakened() {
                std::process::exit(101);
            }
            std::panic::resume_unwind(why);
        }
    }

    fn report(&self, result: &str) {
        let Self { name, preemptions, executions, began, .. } = self;
        let more = if self.is_cut_off { ", of more" } else { "" };
        let seconds = began.elapsed().as_secs_f64();
        // Past the harness's capture.
        let line = format!(
            "model {name}: {executions} executions{more}, {preemptions} preemptions, {seconds:.1} s: {result}\n"
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.report("held");
        if let Some(path) = std::env::var_os("TOMBOLO_SITES") {
            let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
            for site in atomic::sites() {
                writeln!(file, "{}\t{site}", self.name).unwrap();
            }
        }
    }
}

/// Names the model after the test that it is.
macro_rules! model {
    ($(#[doc = $doc:literal])* $name:ident, $preemptions:literal, $run:expr) => {
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            crate::Model::new(stringify!($name), $preemptions).explore($run);
        }
    };
}
use model;

fn tables(bindings: u32, slots: u32) -> Arc<Tables> {
    Arc::new(bare_tables(bindings, slots))
}

fn bare_tables(bindings: u32, slots: u32) -> Tables {
    let capacity = Capacity { subscribers: 1, bindings, sessions: 1, outside_slots: slots, leases: 0 };
    Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])).unwrap()
}

fn spawn<T: 'static>(tables: &Arc<Tables>, run: impl FnOnce(&Tables) -> T + 'static) -> JoinHandle<T> {
    let tables = Arc::clone(tables);
    loom::thread::spawn(move || run(&tables))
}

fn inside(port: u16) -> InsideKey {
    InsideKey { ipv6: [7; 16], ipv4: [1, 2, 3, 4], port: port.to_be_bytes(), protocol: 17, service: 3 }
}

fn candidate(slot: u32) -> Candidate {
    Candidate { slot, ipv4: [192, 0, 2, 1], port: port_of(slot) }
}

fn port_of(slot: u32) -> [u8; 2] {
    u16::try_from(1024 + slot).unwrap().to_be_bytes()
}

/// Of nobody: static ones have no subscriber.
fn template(port: u16) -> Binding {
    Binding { inside: inside(port), flags: flags::STATIC, ..Binding::default() }
}

/// A binding that was made whole: its parts belong together.
fn assert_whole(binding: &Binding) {
    let inside = u16::from_be_bytes(binding.inside.port);
    assert_eq!(binding.inside, self::inside(inside), "half-built");
    assert_eq!(binding.outside_ipv4, [192, 0, 2, 1], "half-built");
    assert_eq!(binding.outside_port, port_of(binding.outside_slot), "half-built");
}

fn assert_sound(tables: &Tables) {
    let findings = audit::check(tables);
    assert!(findings.is_empty(), "{findings:#?}");
}
