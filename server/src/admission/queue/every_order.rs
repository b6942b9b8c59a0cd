//! Every order of arrivals, waits, ends and cancellations, up to a length, on the real queue: R-30.

use std::collections::VecDeque;
use std::pin::Pin;

use futures::FutureExt as _;

use super::*;

/// The tenant of each program.
const TENANTS: [&str; 4] = ["a.one", "a.one", "a.one", "b.two"];

const LIMITS: QueueLimits = QueueLimits { running: 1, waiting: 1 };

/// The length of the orders.
const LENGTH: u32 = 6;

/// A program, as the code that executes it sees it.
enum Program {
    Absent,
    /// It is admitted and waits, or is about to.
    Waits(Pin<Box<dyn Future<Output = (Admitted, RunSlot)>>>),
    Runs {
        _admitted: Admitted,
        _slot: RunSlot,
    },
}

/// The programs of a tenant by the rules alone.
#[derive(Default)]
struct Expected {
    admitted: Vec<usize>,
    /// Those that wait, in the order in which they began to.
    waiting: VecDeque<usize>,
    /// Those that have a slot, whether they know it yet or not.
    slots: Vec<usize>,
}

impl Expected {
    /// Returns whether a program may run that waits, or begins to.
    fn may_run(&mut self, program: usize) -> bool {
        if !self.slots.contains(&program) && !self.waiting.contains(&program) {
            self.waiting.push_back(program);
            self.hand_over();
        }
        self.slots.contains(&program)
    }

    fn leaves(&mut self, program: usize) {
        self.admitted.retain(|one| *one != program);
        self.waiting.retain(|one| *one != program);
        self.slots.retain(|one| *one != program);
        self.hand_over();
    }

    fn hand_over(&mut self) {
        while self.slots.len() < LIMITS.running
            && let Some(next) = self.waiting.pop_front()
        {
            self.slots.push(next);
        }
    }
}

struct World {
    queue: ProgramQueue,
    programs: [Program; TENANTS.len()],
    expected: HashMap<&'static str, Expected>,
}

impl World {
    fn new() -> Self {
        let programs = std::array::from_fn(|_| Program::Absent);
        Self { queue: ProgramQueue::new(LIMITS), programs, expected: HashMap::new() }
    }

    /// Takes the next step of a program: it arrives, waits, or ends.
    fn goes_on(&mut self, number: usize) {
        let expected = self.expected.entry(TENANTS[number]).or_default();
        match &mut self.programs[number] {
            Program::Absent => {
                let admitted = self.queue.admit(&TENANTS[number].parse().unwrap());
                let has_room = expected.admitted.len() < LIMITS.running + LIMITS.waiting;
                assert_eq!(admitted.is_some(), has_room);
                let Some(admitted) = admitted else { return };
                expected.admitted.push(number);
                self.programs[number] = Program::Waits(Box::pin(async move {
                    let slot = admitted.wait().await;
                    (admitted, slot)
                }));
            }
            Program::Waits(waits) => {
                let ready = waits.as_mut().now_or_never();
                assert_eq!(ready.is_some(), expected.may_run(number));
                if let Some((admitted, slot)) = ready {
                    self.programs[number] = Program::Runs { _admitted: admitted, _slot: slot };
                }
            }
            Program::Runs { .. } => self.ends(number),
        }
    }

    /// Ends a program, whatever it does at the moment.
    fn ends(&mut self, number: usize) {
        self.programs[number] = Program::Absent;
        self.expected.entry(TENANTS[number]).or_default().leaves(number);
    }

    fn check(&self) {
        let running = |program: &&Program| matches!(program, Program::Runs { .. });
        let running = self.programs.iter().filter(running).count();
        let absent = self.programs.iter().filter(|one| matches!(one, Program::Absent)).count();
        let waiting = TENANTS.len() - absent - running;
        assert_eq!(self.queue.stats(), QueueStats { running, waiting });
        for expected in self.expected.values() {
            assert!(expected.slots.len() <= LIMITS.running);
        }
    }
}

/// A tenant never has more programs than its limits, they run in the order in which they began to wait, a slot that becomes
/// free is never lost, whoever is cancelled when, and nothing is counted that is gone.
#[test]
fn every_order_keeps_the_limits_and_loses_no_slot() {
    let events = 2 * TENANTS.len();
    for number in 0..events.pow(LENGTH) {
        let (mut world, mut rest) = (World::new(), number);
        for _ in 0..LENGTH {
            let (program, cancels) = (rest % events / 2, rest % 2 == 1);
            rest /= events;
            match cancels {
                true => world.ends(program),
                false => world.goes_on(program),
            }
            world.check();
        }
        (0..TENANTS.len()).for_each(|program| world.ends(program));
        world.check();
    }
}
