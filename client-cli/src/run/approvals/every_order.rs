//! Every order of answers, expiries and ends, up to a length, on the real code: R-30.
//!
//! A run asks twice, and has an effect after each question that is allowed. What may happen at any moment happens in every
//! order: an answer of the agent or on the page, to the open question or to an earlier one, its expiry, the end of all
//! runs, and the agent's request for the outcome.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;

use super::tests::question;
use super::*;
use crate::consent::question::Answer;
use crate::run::paused::RunEvent;

/// The number of questions of a run.
const QUESTIONS: usize = 2;

/// The length of the orders. With 5, which takes nine times as long, they were all right, too.
const LENGTH: u32 = 4;

#[derive(Debug, Clone, Copy)]
enum Event {
    Agent(Answer, Which),
    Page(Answer, Which),
    Expires,
    AsksForOutcome,
    AllEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// The question that is open, else the last one that was.
    Latest,
    /// The first question of the run.
    First,
}

const EVENTS: [Event; 9] = [
    Event::Agent(Answer::Once, Which::Latest),
    Event::Agent(Answer::Once, Which::First),
    Event::Agent(Answer::Abort, Which::Latest),
    Event::Page(Answer::Once, Which::Latest),
    Event::Page(Answer::Once, Which::First),
    Event::Page(Answer::Abort, Which::Latest),
    Event::Expires,
    Event::AsksForOutcome,
    Event::AllEnd,
];

/// What must be the case, by the rules alone.
#[derive(Default)]
struct Expected {
    /// How many questions were allowed.
    allowed: usize,
    /// Whether a question was denied or left without an answer, or the run was ended.
    is_over: bool,
}

impl Expected {
    fn is_open(&self) -> bool {
        !self.is_over && self.allowed < QUESTIONS
    }

    /// Takes an answer; returns whether it counts.
    fn answer(&mut self, answer: Answer, which: Which) -> bool {
        let counts = self.is_open() && (which == Which::Latest || self.allowed == 0);
        match answer {
            Answer::Once | Answer::Always if counts => self.allowed += 1,
            Answer::Abort if counts => self.is_over = true,
            _ => {}
        }
        counts
    }
}

/// A run, and what it did.
struct World {
    approvals: Arc<Approvals>,
    effects: Arc<Mutex<Vec<usize>>>,
    has_ended: Arc<AtomicBool>,
    /// The ids of its questions so far.
    ids: Vec<String>,
}

impl World {
    async fn start() -> Self {
        let approvals: Arc<Approvals> = Arc::default();
        let (effects, has_ended): (Arc<Mutex<Vec<usize>>>, Arc<AtomicBool>) = Default::default();
        let (done, ended) = (Arc::clone(&effects), Arc::clone(&has_ended));
        let run = PausedRun::start(Integrity::of(b""), |events, stop| async move {
            for number in 0..QUESTIONS {
                let (answer, answered) = oneshot::channel();
                let _ = events.send(RunEvent::Asks(Box::new(question(answer))));
                let given = tokio::select! {
                    given = answered => given.ok(),
                    () = stop.cancelled() => None,
                };
                if given.is_none_or(|given| given.answer != Answer::Once) {
                    break;
                }
                done.lock().unwrap().push(number);
            }
            ended.store(true, Ordering::SeqCst);
            Envelope::error(ErrorBody::new(ErrorCode::Cancelled, "over"))
        });
        let mut world = Self { approvals, effects, has_ended, ids: Vec::new() };
        world.approvals.follow(run, &CancellationToken::new()).await;
        world.settle().await;
        world
    }

    /// Lets everything happen that can, and notes the open question.
    async fn settle(&mut self) {
        for _ in 0..12 {
            tokio::task::yield_now().await;
        }
        let open: Vec<String> = self.approvals.lock().waiting.keys().cloned().collect();
        assert!(open.len() <= 1, "two questions of one run are open");
        let known = self.ids.last().cloned();
        self.ids.extend(open.into_iter().filter(|id| known.as_ref() != Some(id)));
    }

    fn id(&self, which: Which) -> String {
        let id = match which {
            Which::Latest => self.ids.last(),
            Which::First => self.ids.first(),
        };
        id.cloned().unwrap()
    }

    async fn happens(&mut self, event: Event, expected: &mut Expected) {
        let given = |answer, by| Given { answer, without: LeftOut::default(), by };
        match event {
            Event::Agent(answer, which) => {
                let resumed = self.approvals.resume(&self.id(which));
                assert_eq!(resumed.is_ok(), expected.answer(answer, which));
                if let Ok(Resumed { run, answer: sender }) = resumed {
                    let _ = sender.send(given(answer, Channel::Agent));
                    self.approvals.follow(run, &CancellationToken::new()).await;
                }
            }
            Event::Page(answer, which) => {
                let counts = self.approvals.settle(&self.id(which), given(answer, Channel::Page));
                assert_eq!(counts, expected.answer(answer, which));
            }
            Event::Expires => {
                let id = self.id(Which::Latest);
                // As its timer does.
                self.approvals.lock().end(&id, Unanswered::Expired);
                expected.is_over |= expected.is_open();
            }
            Event::AsksForOutcome => {
                let (id, caller) = (self.id(Which::Latest), CancellationToken::new());
                // It may have to wait.
                let _ = self.approvals.settled(&id, &caller).now_or_never();
            }
            Event::AllEnd => {
                self.approvals.end_all();
                expected.is_over |= expected.is_open();
            }
        }
        self.settle().await;
    }
}

/// An effect has exactly one answer that allowed it, each question has at most one answer that counts, and nothing follows
/// a denial, an expiry or an end. A run that is over does not go on waiting.
#[test]
fn every_order_of_answers_has_the_effects_that_were_allowed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for number in 0..EVENTS.len().pow(LENGTH) {
            let (mut world, mut expected) = (World::start().await, Expected::default());
            let mut rest = number;
            for _ in 0..LENGTH {
                world.happens(EVENTS[rest % EVENTS.len()], &mut expected).await;
                rest /= EVENTS.len();
                let effects: Vec<usize> = (0..expected.allowed).collect();
                assert_eq!(*world.effects.lock().unwrap(), effects, "order {number}");
                let is_waiting = !world.approvals.lock().waiting.is_empty();
                assert_eq!(is_waiting, expected.is_open(), "order {number}");
                let has_ended = world.has_ended.load(Ordering::SeqCst);
                assert_eq!(has_ended, !expected.is_open(), "order {number}");
            }
        }
    });
}
