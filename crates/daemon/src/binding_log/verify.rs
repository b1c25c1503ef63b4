//! Whether the lines of a log are those that were written, all of them and in their order.

use std::io::{self, BufRead};

use serde::Serialize;

use super::chain::{Break, Chain, Hash};
use super::marks::{Mark, MarkKind};

/// Faults that are named; more are counted.
const NAMED: usize = 100;

/// What was found in the files of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Lines of the chain.
    pub lines: u64,
    /// Number of the first one,
    pub first: Option<u64>,
    /// and of the last one.
    pub last: Option<u64>,
    /// Hash of the last one.
    pub chain: Option<String>,
    /// Events that the log itself says are missing.
    pub lost: u64,
    /// How often a gateway began to write.
    pub starts: u64,
    /// What a gateway that ended within a line has left of it.
    pub torn: u64,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// How much is, also what is not named.
    pub wrong: u64,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Name of the file.
    pub file: String,
    /// The line, from 1 on.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Reads the files of a log, the oldest first.
#[derive(Debug, Default)]
pub struct Verifier {
    chain: Option<Chain>,
    verdict: Verdict,
}

impl Verifier {
    /// Reads the next file. An unbroken chain leads to it from the file before.
    ///
    /// # Errors
    /// What reading says.
    pub fn file(&mut self, name: &str, mut lines: impl BufRead) -> io::Result<()> {
        let (mut line, mut number) = (Vec::new(), 0);
        // A line that is none, until what follows says whether it was torn.
        let mut doubtful: Option<Fault> = None;
        while lines.read_until(b'\n', &mut line)? > 0 {
            number += 1;
            let text = String::from_utf8_lossy(&line);
            let fault = |what: String| Fault { file: name.to_owned(), line: number, what };
            let text = text.trim_end_matches('\n');
            match self.line(text, number == 1) {
                Err(Break::NoLine) => {
                    doubtful
                        .replace(fault(Break::NoLine.to_string()))
                        .into_iter()
                        .for_each(|before| self.fault(before));
                }
                result => {
                    match doubtful.take() {
                        Some(_) if result.is_ok() && is_start_or_loss(text) => self.verdict.torn += 1,
                        Some(before) => self.fault(before),
                        None => {}
                    }
                    result.err().into_iter().for_each(|error| self.fault(fault(error.to_string())));
                }
            }
            line.clear();
        }
        doubtful.into_iter().for_each(|fault| self.fault(fault));
        Ok(())
    }

    fn line(&mut self, line: &str, is_first: bool) -> Result<(), Break> {
        let found = Chain::of_line(line).ok_or(Break::NoLine)?;
        let mark = serde_json::from_str::<Mark>(line).ok();
        let begins = match mark.as_ref().map(|mark| &mark.kind) {
            Some(MarkKind::Begin { previous }) if is_first => Hash::parse(previous),
            _ => None,
        };
        // Where the first file begins, what was before it is taken on trust.
        let before =
            self.chain.unwrap_or(Chain { number: found.number.saturating_sub(1), hash: begins.unwrap_or_default() });
        let chain = self.chain.insert(before);
        let result = chain.check(line);
        self.verdict.lines += 1;
        self.verdict.first.get_or_insert(found.number);
        self.verdict.last = Some(found.number);
        match mark.map(|mark| mark.kind) {
            Some(MarkKind::Lost { count, .. }) => self.verdict.lost += count,
            Some(MarkKind::Start { .. }) => self.verdict.starts += 1,
            _ => {}
        }
        result
    }

    fn fault(&mut self, fault: Fault) {
        self.verdict.wrong += 1;
        if self.verdict.faults.len() < NAMED {
            self.verdict.faults.push(fault);
        }
    }

    /// What was found.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        Verdict { chain: self.chain.map(|chain| chain.hash.to_string()), ..self.verdict }
    }
}

/// Behind a line that was torn, a gateway begins, or says what it has lost.
fn is_start_or_loss(line: &str) -> bool {
    let mark = serde_json::from_str::<Mark>(line);
    mark.is_ok_and(|mark| matches!(mark.kind, MarkKind::Start { .. } | MarkKind::Lost { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::utc::Utc;

    fn sealed(chain: &mut Chain, kind: MarkKind) -> String {
        let mut line = serde_json::to_vec(&Mark { time: Utc(5), kind }).unwrap();
        chain.seal(&mut line);
        String::from_utf8(line).unwrap()
    }

    fn verify(files: &[String]) -> Verdict {
        let mut verifier = Verifier::default();
        for (number, file) in files.iter().enumerate() {
            verifier.file(&format!("log.{number}"), file.as_bytes()).unwrap();
        }
        verifier.verdict()
    }

    /// Two files of a log.
    fn log() -> [Vec<String>; 2] {
        let mut chain = Chain::default();
        let begin = |chain: &Chain| MarkKind::Begin { previous: chain.hash.to_string() };
        let line = |chain: &mut Chain, until| sealed(chain, MarkKind::Complete { until: Utc(until), uptime: 9 });
        let first = begin(&chain);
        let old = vec![sealed(&mut chain, first), line(&mut chain, 1), line(&mut chain, 2), line(&mut chain, 3)];
        let second = begin(&chain);
        let new = vec![
            sealed(&mut chain, second),
            sealed(&mut chain, MarkKind::Lost { count: 3, from: Utc(1) }),
            line(&mut chain, 4),
        ];
        [old, new]
    }

    fn text(lines: &[String]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn files_that_follow_each_other_are_one_chain() {
        let [old, new] = log();
        let verdict = verify(&[text(&old), text(&new)]);
        assert_eq!((verdict.lines, verdict.first, verdict.last, verdict.lost), (7, Some(1), Some(7), 3));
        assert!(verdict.wrong == 0 && verdict.faults.is_empty(), "{verdict:?}");
        // The second one alone is good, too; in another order they are not.
        assert_eq!(verify(&[text(&new)]).wrong, 0);
        assert!(verify(&[text(&new), text(&old)]).wrong > 0);
    }

    #[test]
    fn what_is_cut_off_changed_or_missing_is_named_by_its_line() {
        let [old, new] = log();
        let named = |files: &[String]| {
            verify(files).faults.into_iter().map(|fault| (fault.file, fault.line)).collect::<Vec<_>>()
        };
        let changed = text(&old).replace("00:00:02Z", "00:00:09Z");
        assert_eq!(named(&[changed, text(&new)]), [("log.0".to_owned(), 3)]);
        assert_eq!(named(&[text(&old[..2]), text(&new)]), [("log.1".to_owned(), 1)]);
        assert_eq!(named(&[text(&old[1..])]), [("log.0".to_owned(), 1)], "its first lines are missing");
        assert_eq!(named(&[text(&[&old[..2], &old[3..]].concat())]), [("log.0".to_owned(), 3)]);
    }

    #[test]
    fn a_torn_line_is_no_fault_where_a_gateway_says_so() {
        let [_, new] = log();
        let torn = [text(&new[..1]), "{\"time\":\"20\n".to_owned(), text(&new[1..])].concat();
        let verdict = verify(&[torn]);
        assert_eq!((verdict.wrong, verdict.torn), (0, 1), "{verdict:?}");
        let elsewhere = [text(&new[..2]), "{\"time\":\"20\n".to_owned(), text(&new[2..])].concat();
        assert_eq!(verify(&[elsewhere]).wrong, 1);
    }
}
