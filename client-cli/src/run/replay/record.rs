//! The record of a replay: a run of its own, which names the run that it replays, and how it compares with it.

use analysis::Analysis;
use protocol::ErrorBody;
use serde_json::json;

use super::Replayed;
use crate::run_store::RunStore;
use crate::run_store::reader::Run;
use crate::run_store::record::{
    CallDiffers, Failure, InputChanged, ProgramStarted, REPLAY, Record, ReplayCompared, RunBegan,
    RunEnded, Status, now,
};

/// A replay that is to be recorded.
pub(crate) struct Recorded<'a> {
    /// The run that it replays.
    pub(crate) of: &'a Run,
    /// When it began.
    pub(crate) began_at: String,
    /// The program, if it was another one.
    pub(crate) changed_program: Option<&'a str>,
    /// Its analysis.
    pub(crate) analysis: &'a Analysis,
    /// What it did.
    pub(crate) replayed: &'a Replayed,
    /// How it ended.
    pub(crate) result: Result<&'a serde_json::Value, &'a ErrorBody>,
    /// Whether that is how the run ended, if it can be compared.
    pub(crate) matches: Option<bool>,
    /// What the run depended on and is another one now.
    pub(crate) inputs: Vec<InputChanged>,
}

impl Recorded<'_> {
    /// Records the replay; returns its id.
    ///
    /// Only now that it has ended: it had no effect that must not happen without a record.
    ///
    /// # Errors
    /// Returns why it was not recorded.
    pub(crate) async fn write(self, store: &RunStore) -> Result<String, ErrorBody> {
        let content =
            |value: &serde_json::Value| store.content(value).map_err(|error| error.body());
        let run = uuid::Uuid::now_v7().to_string();
        let Run { began, started, .. } = self.of;
        let Replayed { calls, left, printed, .. } = self.replayed;
        let code = self.changed_program.map(|code| content(&json!(code))).transpose()?;
        let plan = json!({ "dag": self.analysis.dag, "dynamic": self.analysis.dynamic });
        let left = left.as_ref().map(|left| {
            let args = left.now.as_ref().map(|(_, arguments)| content(arguments));
            let tool = left.now.as_ref().map(|(tool, _)| tool.clone());
            Ok::<_, ErrorBody>(CallDiffers { call: left.call, tool, args: args.transpose()? })
        });
        let mut records = vec![Record::RunBegan(RunBegan {
            at: self.began_at.clone(),
            run: run.clone(),
            mode: REPLAY.to_owned(),
            of: Some(began.run.clone()),
            pml: env!("CARGO_PKG_VERSION").to_owned(),
            code: code.unwrap_or_else(|| began.code.clone()),
            args: began.args.clone(),
            plan: content(&plan)?,
            // Those of the run: the present ones decide about nothing.
            policy: began.policy.clone(),
            trace: None,
        })];
        records.extend(started.as_ref().map(|started| {
            let (at, run) = (self.began_at.clone(), run.clone());
            Record::ProgramStarted(ProgramStarted { at, run, ..started.clone() })
        }));
        records.push(Record::ReplayCompared(ReplayCompared {
            at: now(),
            run: run.clone(),
            answered: u64::try_from(*calls).unwrap_or(u64::MAX),
            matches: self.matches,
            left: left.transpose()?,
            changed: self.inputs,
        }));
        let output = self.result.ok().map(content).transpose()?;
        records.push(Record::RunEnded(RunEnded {
            at: now(),
            run: run.clone(),
            status: if output.is_some() { Status::Success } else { Status::Error },
            output,
            error: self.result.err().map(Failure::of),
            console: *printed,
        }));
        // In one commit: an erasure of the run finds the whole replay, or prevents it.
        store.append_run(records).await.map_err(|error| error.body())?;
        Ok(run)
    }
}
