//! Programs that other compilers made of the same sources: whether this kernel takes them, for every
//! plan. `scripts/check-clang.sh` compiles them and names their folders in `TOMBOLO_OBJECTS`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aya::EbpfLoader;
use aya::programs::Program;
use tombolo_engine::Plan;
use tombolo_fastpath::tap::Watch;
use tombolo_fastpath::trial::Trials;
use tombolo_fastpath::{FastPath, PinnedMemory, Settings};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;

use crate::plans;

#[test]
#[ignore = "scripts/check-clang.sh compiles the programs that it loads"]
fn the_kernel_takes_what_other_compilers_made() {
    let folders = std::env::var("TOMBOLO_OBJECTS").expect("TOMBOLO_OBJECTS names folders, with colons between");
    let only = std::env::var("TOMBOLO_CASE").unwrap_or_default();
    let wanted = || plans::all().into_iter().filter(|(name, ..)| name.contains(&only));
    let mut refused = Vec::new();
    for folder in folders.split(':').map(Path::new) {
        let read = |name: &str| fs::read(folder.join(name)).unwrap();
        for name in ["generator.bpf.o", "route_lookup.bpf.o"] {
            note(&mut refused, folder, name, "alone", load_alone(&read(name)));
        }
        // What the other two have besides is the same whatever the plan: a few are enough.
        for (object, every) in [("fastpath.bpf.o", 1), ("traced.bpf.o", 5), ("trial.bpf.o", 5)] {
            let object = (object, read(object));
            for (name, plan, _) in wanted().step_by(every) {
                note(&mut refused, folder, object.0, name, load(&object.1, &plan));
            }
        }
    }
    assert!(refused.is_empty(), "{} refused: {refused:#?}", refused.len());
}

/// They are more than the ordinary ones, which must not be too many for the verifier.
#[test]
fn the_kernel_takes_the_programs_of_a_trace() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: loading programs needs root");
        return;
    }
    let any = ["2001:db8::/32", "198.51.100.0/24", "64:ff9b::/96", "192.0.2.1/32"].map(|net| net.parse().unwrap());
    let watch = Watch { any: any.to_vec(), space: None, port: Some(443) };
    let mut slowest = Duration::ZERO;
    // A few of them, or all if many trials are asked for.
    let every = if std::env::var_os("TOMBOLO_TRIALS").is_some() { 1 } else { 5 };
    for (name, plan, _) in plans::all().into_iter().step_by(every) {
        let directory = PathBuf::from(format!("/sys/fs/bpf/tombolo-test-{}-traced", std::process::id()));
        let mut memory = PinnedMemory::open(&directory, "test").unwrap();
        let tables = Tables::new(&mut memory, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap();
        let settings = Settings { watch: Some(watch.clone()), ..Settings::default() };
        let began = Instant::now();
        let loaded = FastPath::load(&memory, &tables, &plan, settings);
        slowest = slowest.max(began.elapsed());
        PinnedMemory::remove(&directory).unwrap();
        loaded.map(drop).unwrap_or_else(|error| panic!("{name}: {}", last_words(error)));
    }
    println!("the slowest of them took {slowest:?} to load");
}

fn note(refused: &mut Vec<String>, folder: &Path, object: &str, plan: &str, result: Result<(), String>) {
    let compiler = folder.file_name().unwrap().to_string_lossy();
    match result {
        Ok(()) => println!("{compiler}: {object}, {plan}: taken"),
        Err(why) => {
            println!("{compiler}: {object}, {plan}: refused\n{why}");
            refused.push(format!("{compiler}: {object}, {plan}: {why}"));
        }
    }
}

fn load(object: &[u8], plan: &Plan) -> Result<(), String> {
    let directory = PathBuf::from(format!("/sys/fs/bpf/tombolo-test-{}-objects", std::process::id()));
    let mut memory = PinnedMemory::open(&directory, "test").unwrap();
    let tables = Tables::new(&mut memory, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap();
    let result = Trials::load_object(object, &memory, &tables, plan, &Settings::default());
    PinnedMemory::remove(&directory).unwrap();
    result.map_err(last_words)
}

/// Of programs that stand for themselves, with arrays of any size.
fn load_alone(object: &[u8]) -> Result<(), String> {
    let mut loader = EbpfLoader::new();
    for array in ["endpoints_a", "endpoints_b", "counters", "delays", "variations", "bitmap", "records"] {
        loader.map_max_entries(array, 64);
    }
    let mut programs = loader.load(object).map_err(last_words)?;
    for (_, program) in programs.programs_mut() {
        match program {
            Program::Xdp(program) => program.load().map_err(last_words)?,
            Program::SchedClassifier(program) => program.load().map_err(last_words)?,
            _ => {}
        }
    }
    Ok(())
}

/// The verifier's log is long, and its end says why.
fn last_words(error: impl std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    let last = words.lines().rev().take(12).collect::<Vec<_>>();
    last.into_iter().rev().collect::<Vec<_>>().join("\n")
}
