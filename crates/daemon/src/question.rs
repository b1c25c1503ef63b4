//! A question that may take longer than anybody waits who wants the gateway to end, as those to a resolver do: it is
//! asked on a thread of its own, again and again.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The question, and when it was asked last.
#[derive(Debug)]
pub(crate) struct Question<T> {
    asked: Option<Instant>,
    answer: Option<Receiver<T>>,
}

impl<T> Default for Question<T> {
    fn default() -> Self {
        Self { asked: None, answer: None }
    }
}

impl<T: Send + 'static> Question<T> {
    /// Asks, on the thread `name`, unless it was asked for less than `pause` before `now` or the answer has not come
    /// yet. False if it does not.
    pub(crate) fn ask(
        &mut self,
        name: &str,
        (pause, now): (Duration, Instant),
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> bool {
        if self.answer.is_some() || self.asked.is_some_and(|asked| now < asked + pause) {
            return false;
        }
        self.asked = Some(now);
        let (to, from) = sync_channel(1);
        let thread = Builder::new().name(name.to_owned()).spawn(move || to.send(ask()));
        self.answer = thread.is_ok().then_some(from);
        true
    }

    /// The answer, once, when it has come.
    pub(crate) fn answer(&mut self) -> Option<T> {
        let answer = self.answer.as_ref()?.try_recv();
        if !matches!(answer, Err(TryRecvError::Empty)) {
            self.answer = None;
        }
        answer.ok()
    }

    /// The same, waiting so long for it.
    pub(crate) fn answer_within(&mut self, limit: Duration) -> Option<T> {
        let answer = self.answer.as_ref()?.recv_timeout(limit).ok()?;
        self.answer = None;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_at_a_bounded_rate_and_answered_once() {
        let (mut question, now, pause) = (Question::default(), Instant::now(), Duration::from_secs(3));
        assert!(question.ask("test", (pause, now), || 1));
        assert_eq!(question.answer_within(Duration::from_secs(20)), Some(1));
        assert_eq!(question.answer(), None);
        assert!(!question.ask("test", (pause, now + Duration::from_secs(2)), || 2));
        assert!(question.ask("test", (pause, now + pause), || 3));
        assert_eq!(question.answer_within(Duration::from_secs(20)), Some(3));
    }

    #[test]
    fn one_that_is_not_answered_is_not_asked_twice() {
        let (mut question, now) = (Question::default(), Instant::now());
        let (end, wait) = sync_channel::<()>(0);
        assert!(question.ask("test", (Duration::ZERO, now), move || wait.recv().is_err()));
        assert_eq!(question.answer(), None);
        assert!(!question.ask("test", (Duration::ZERO, now + Duration::from_secs(60)), || false));
        drop(end);
        assert_eq!(question.answer_within(Duration::from_secs(20)), Some(true));
    }
}
