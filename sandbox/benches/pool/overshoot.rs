//! By how much a program exceeds its limits before it is killed.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sandbox::{FailureKind, Limits, Outcome};

use crate::attacks::{Attack, attacks};
use crate::figures::time;
use crate::ours::{self, Ours};

/// The number of concurrent programs.
const LANES: usize = 2;
const CPU: Duration = Duration::from_millis(300);
const WALL: Duration = Duration::from_secs(2);

/// An attack and its outcome.
type Ended = (String, Outcome);

/// Runs all attacks and returns a Markdown table of their outcomes.
pub(crate) fn table(ours: &Ours) -> Result<String, Box<dyn Error>> {
    let attacks = Arc::new(attacks()?);
    let ended = ended(ours, &attacks)?;
    let mut table = format!(
        "| programs of `tests/fixtures/attacks.txt`, each with {} ms of CPU and {} s, {LANES} side by side | | the farthest beyond |\n|---|---:|---|\n| all | {} | |\n",
        CPU.as_millis(),
        WALL.as_secs(),
        attacks.len(),
    );
    let failed = ended.iter().filter(|(_, outcome)| outcome.result.is_err()).count();
    table += &format!("| ended with a failure | {failed} | |\n");
    table += &row(&ended, "its CPU time", FailureKind::CpuTime, |outcome| {
        Some(outcome.cpu?.saturating_sub(CPU))
    });
    table += &row(&ended, "the wall time", FailureKind::WallTime, |outcome| {
        Some(outcome.duration.saturating_sub(WALL))
    });
    for (what, outcome) in &ended {
        if let Ok(value) = &outcome.result {
            let value: String = value.to_string().chars().take(80).collect();
            table += &format!("\n**Not ended, but answered `{value}`**: {what}\n");
        }
    }
    Ok(table)
}

/// Renders the number of programs that this limit ended, and the largest excess.
fn row(
    ended: &[Ended],
    limit: &str,
    kind: FailureKind,
    beyond: impl Fn(&Outcome) -> Option<Duration>,
) -> String {
    let of_kind: Vec<&Ended> = ended
        .iter()
        .filter(|(_, outcome)| outcome.result.as_ref().is_err_and(|failure| failure.kind == kind))
        .collect();
    let farthest =
        of_kind.iter().filter_map(|(what, outcome)| Some((beyond(outcome)?, what))).max();
    let farthest = farthest.map(|(most, what)| format!("{}: {what}", time(most.as_secs_f64())));
    format!("| ended by {limit} | {} | {} |\n", of_kind.len(), farthest.unwrap_or_default())
}

/// Runs each attack in the pool, without the gateway's analysis.
fn ended(ours: &Ours, attacks: &Arc<Vec<Attack>>) -> Result<Vec<Ended>, Box<dyn Error>> {
    let next = Arc::new(AtomicUsize::new(0));
    let lanes: Vec<_> = (0..LANES)
        .map(|_| {
            let (pool, attacks) = (Arc::clone(&ours.pool), Arc::clone(attacks));
            let next = Arc::clone(&next);
            ours.runtime.spawn(async move {
                let limits = Limits { cpu: CPU, wall: WALL, ..Limits::server() };
                let mut ended = Vec::new();
                while let Some(attack) = attacks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = ours::run(&pool, &attack.code, &limits).await;
                    ended.push((attack.what.clone(), outcome));
                }
                ended
            })
        })
        .collect();
    let mut all = Vec::new();
    for lane in lanes {
        all.extend(ours.runtime.block_on(lane)?);
    }
    Ok(all)
}
