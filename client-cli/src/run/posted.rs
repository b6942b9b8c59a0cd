//! Questions that a person can answer from another terminal, with `pml approve` and `pml deny`.
//!
//! A waiting question is a file among the user's own records, which no program in the workspace can write. The answer
//! is another file next to it. The id of the question is known only to the waiting `pml`, the person and the agent, and
//! the answer is about exactly the call that the file describes.

use std::path::{Path, PathBuf};

use protocol::{Approval, escape_text};
use serde::{Deserialize, Serialize};

use crate::consent::question::Answer;
use crate::consent::question::left_out::LeftOut;
use crate::files::records::{RecordFile, now};

/// The folder of the files, among the user's records.
const FOLDER: &str = "questions";
/// The maximum size of a file, in bytes. A description is far smaller.
const LIMIT: usize = 1024 * 1024;

/// A question that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Posted {
    /// The workspace of its run.
    pub(crate) workspace: PathBuf,
    /// The process that waits.
    pub(crate) pid: u32,
    /// When it expires, in seconds since 1970.
    pub(crate) expires: u64,
    /// The question as it is shown.
    pub(crate) approval: Approval,
}

/// The answer to a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    answer: Answer,
    #[serde(default)]
    without: LeftOut,
}

/// The questions of a user.
#[derive(Debug, Clone)]
pub(crate) struct PostedQuestions {
    records: PathBuf,
}

impl PostedQuestions {
    /// Returns those among the user's `records`.
    pub(crate) fn of(records: &Path) -> Self {
        Self { records: records.to_owned() }
    }

    /// Posts a question.
    ///
    /// # Errors
    /// Returns the system's error. The question can then not be answered from a terminal.
    pub(crate) fn post(&self, question: &Posted) -> Result<(), std::io::Error> {
        let text = serde_json::to_vec(question)?;
        self.question(&question.approval.workflow_id).write(&text)
    }

    /// Removes a question and its answer.
    pub(crate) fn remove(&self, workflow_id: &str) {
        for file in [file_name(workflow_id), answer_name(workflow_id)] {
            let _ = std::fs::remove_file(self.records.join(FOLDER).join(file));
        }
    }

    /// Returns whether the waiting `pml` has taken the answer, and forgets that.
    pub(crate) fn was_taken(&self, workflow_id: &str) -> bool {
        std::fs::remove_file(self.records.join(FOLDER).join(taken_name(workflow_id))).is_ok()
    }

    /// Returns a question that still waits.
    pub(crate) fn find(&self, workflow_id: &str) -> Option<Posted> {
        // Anything else could leave the folder.
        if !is_id(workflow_id) {
            return None;
        }
        let posted: Posted = serde_json::from_slice(&self.question(workflow_id).read()?).ok()?;
        let waits = posted.expires > now()
            && posted.approval.workflow_id == workflow_id
            // A killed `pml` leaves its files behind.
            && Path::new("/proc").join(posted.pid.to_string()).exists();
        waits.then_some(posted)
    }

    /// Returns the questions that wait, the oldest first, and removes files of questions that no longer do.
    pub(crate) fn list(&self) -> Vec<Posted> {
        let Ok(entries) = std::fs::read_dir(self.records.join(FOLDER)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut found = Vec::new();
        for name in names {
            let Some((id, kind)) = name.split_once('.').filter(|(id, _)| is_id(id)) else {
                continue;
            };
            match self.find(id) {
                Some(posted) if kind == "json" => found.push(posted),
                Some(_) => {}
                None => {
                    self.remove(id);
                    let _ = self.was_taken(id);
                }
            }
        }
        found.sort_by_key(|posted| posted.expires);
        found
    }

    /// Answers a question.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn answer(
        &self,
        workflow_id: &str,
        answer: Answer,
        without: LeftOut,
    ) -> Result<(), std::io::Error> {
        let text = serde_json::to_vec(&Answered { answer, without })?;
        self.answered(workflow_id).write(&text)
    }

    /// Takes the answer to a question, if there is one, and tells the command that it was taken.
    pub(crate) fn take_answer(&self, workflow_id: &str) -> Option<(Answer, LeftOut)> {
        let Answered { answer, without } =
            serde_json::from_slice(&self.answered(workflow_id).read()?).ok()?;
        let folder = self.records.join(FOLDER);
        let (from, to) = (answer_name(workflow_id), taken_name(workflow_id));
        std::fs::rename(folder.join(from), folder.join(to)).ok()?;
        Some((answer, without))
    }

    fn question(&self, workflow_id: &str) -> RecordFile {
        RecordFile::named(&self.records, FOLDER, file_name(workflow_id), LIMIT)
    }

    fn answered(&self, workflow_id: &str) -> RecordFile {
        RecordFile::named(&self.records, FOLDER, answer_name(workflow_id), LIMIT)
    }
}

fn file_name(workflow_id: &str) -> String {
    format!("{workflow_id}.json")
}

fn taken_name(workflow_id: &str) -> String {
    format!("{workflow_id}.taken")
}

fn answer_name(workflow_id: &str) -> String {
    format!("{workflow_id}.answer")
}

/// Returns whether a text has the form of the ids of this machine's runs.
pub(crate) fn is_id(text: &str) -> bool {
    text.strip_prefix("wl_")
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns a question for display on a terminal. Its lines are those of the description; everything else is escaped.
pub(crate) fn shown(posted: &Posted) -> String {
    let lines =
        posted.approval.description.lines().map(|line| format!("  {}\n", escape_text(line)));
    format!(
        "{}\n  in {}\n{}",
        escape_text(&posted.approval.workflow_id),
        escape_text(&posted.workspace.to_string_lossy()),
        lines.collect::<String>()
    )
}
