//! Another build of this benchmark, measured in the same rounds: the programs before a change beside
//! those after it. It runs as a process of its own and measures when it is told to.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::contender::Outcome;

/// What the other one says when it is ready for a round.
const READY: &str = "ready";

/// The other build.
pub(crate) struct Other {
    process: Child,
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Other {
    /// Starts `program` on one series, and waits until its tables are filled.
    pub(crate) fn start(program: &str, series: &str, without: &str) -> Self {
        let mut process = Command::new(program)
            .args(["--led", "--only", series, "--without", without])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut other = Self { orders: process.stdin.take(), answers, process };
        assert_eq!(other.answer(), READY);
        other
    }

    /// One measurement of each of its contenders: names and rates.
    pub(crate) fn round(&mut self) -> Vec<(String, f64)> {
        writeln!(self.orders.as_mut().unwrap()).unwrap();
        let mut rates = Vec::new();
        loop {
            let answer = self.answer();
            if answer == READY {
                return rates;
            }
            let (name, rate) = answer.rsplit_once(' ').unwrap();
            rates.push((name.to_owned(), rate.parse().unwrap()));
        }
    }

    fn answer(&mut self) -> String {
        self.answers.next().expect("the other build has ended").unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

/// This build is the other one's: measures whenever a line comes, until there are no more.
pub(crate) fn be_led(mut round: impl FnMut() -> Vec<(&'static str, Outcome)>) {
    println!("{READY}");
    for _ in std::io::stdin().lines() {
        for (name, outcome) in round() {
            println!("{name} {}", outcome.rate);
        }
        println!("{READY}");
    }
}
