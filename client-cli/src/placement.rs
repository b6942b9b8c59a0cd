//! Locates the tools of a program without running it, and records the source of each location.
//!
//! The sources, in order: the user's own servers, the tools of `pml`, the gateway and the other registries, without it the
//! capabilities that ran here before, its last answer, its cached routing rules, the table shipped with `pml`. A tool that none of them knows
//! is reported as unknown.

mod finder;
pub(crate) mod inquiry;
mod learned;
mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

use analysis::{Analysis, Place, Plan, plan_with};
use protocol::{DryRun, DryTask, ErrorBody, Integrity, Routing, Side, ToolId, ToolUse};
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::finder::Finder;
use self::inquiry::{Names, Resolution};
use self::learned::Learned;
use self::rules::CachedRules;
use crate::app::{App, Elsewhere};
use crate::files::records::RecordFile;
use crate::origin::Origin;
use crate::tools;

/// The time limit of the gateway's answer for a plan.
const GATEWAY_TIMEOUT: Duration = Duration::from_secs(15);

/// The source of a tool's location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// A server of `.pml.json`.
    Config,
    /// It is built into `pml`.
    Native,
    /// Another registry of `.pml.json`, queried just now.
    Registry,
    /// The gateway, queried just now.
    Gateway,
    /// A capability that ran here before, and that runs without the gateway.
    Kept,
    /// The gateway's last answer.
    Cache,
    /// The gateway's routing rules, when they were read last.
    Rules,
    /// The table shipped with `pml`.
    Shipped,
    /// No source has the tool.
    None,
}

/// The location of one tool.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) side: Side,
    pub(crate) source: Source,
    /// The age of the source's answer, in seconds.
    pub(crate) age_s: Option<u64>,
    pub(crate) capability: Option<Reached>,
    /// Whether it runs on this machine and sends its arguments to the gateway.
    asks_gateway: bool,
    /// The registry that has its server, if that is not the gateway.
    pub(crate) registry: Option<Origin>,
    /// The address that receives its arguments, if it is a server elsewhere that is called from this machine.
    pub(crate) sends_to: Option<String>,
    well_known: bool,
}

/// A capability and the tools that it reaches.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    /// Its full name.
    pub(crate) name: String,
    pub(crate) integrity: Option<Integrity>,
    /// Every tool that it reaches, and its side.
    pub(crate) reaches: BTreeMap<ToolId, Side>,
    /// Whether a local tool that it reaches sends data elsewhere.
    sends: bool,
}

impl Placed {
    /// Returns whether it runs here and may send data elsewhere.
    pub(crate) fn sends_within(&self) -> bool {
        let elsewhere = |reached: &Reached| {
            reached.sends || reached.reaches.values().any(|side| *side != Side::Client)
        };
        self.side == Side::Client
            && (self.asks_gateway
                || self.sends_to.is_some()
                || self.capability.as_ref().is_some_and(elsewhere))
    }

    fn place(&self) -> Place {
        Place { side: self.side, sends_within: self.sends_within(), well_known: self.well_known }
    }
}

/// Whether the gateway was queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It answered.
    Now,
    /// It was not needed: every tool is on this machine.
    NotNeeded,
    /// It was not queried, or did not answer, and why.
    No(String),
}

/// The locations of a program and its tools.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) tools: BTreeMap<ToolId, Placed>,
    pub(crate) runs_on: Side,
    pub(crate) asked: Asked,
    /// The gateway, for display.
    pub(crate) gateway: String,
    /// The gateway, if a run sends it the text of the program.
    pub(crate) text_goes_to: Option<String>,
    /// Why the program is refused before it starts, as far as that is known.
    pub(crate) refusals: Vec<String>,
    /// Further notes: hidden entries, rules that change the location.
    pub(crate) notes: Vec<String>,
}

impl Placement {
    /// Finds where a program's tools run. The gateway gets only their names; with `offline` it is not queried.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` for settings or a lock that do not parse. A gateway that does not answer is not an
    /// error.
    pub(crate) async fn of_program(
        app: &App,
        analysis: &Analysis,
        offline: bool,
        cancel: &CancellationToken,
    ) -> Result<Self, ErrorBody> {
        // The user's own servers are included, so that the plan can show the gateway's entries that they hide.
        let mut to_ask: Vec<ToolId> =
            analysis.tools.iter().filter(|id| !is_of_pml(app, id)).cloned().collect();
        let mut finder = Finder::new(app).await?;
        let mut unanswered = None;
        if !offline {
            match app.look_before_gateway(&analysis.tools, cancel).await {
                Ok(elsewhere) => finder.elsewhere = elsewhere,
                Err(error) => unanswered = Some(error.message),
            }
        }
        // The gateway is not told what another registry has before it.
        to_ask.retain(|id| !finder.elsewhere.has(id));
        let needs = analysis.tools.iter().any(|id| !app.is_local(id) && !finder.elsewhere.has(id));
        let cloud = app.cloud()?;
        let asked = if to_ask.is_empty() {
            Asked::NotNeeded
        } else if let Some(message) = unanswered {
            Asked::No(format!("the gateway was not asked: {message}"))
        } else if offline {
            Asked::No("the gateway was not asked: `--offline` was given".to_owned())
        } else if !cloud.has_key().await {
            Asked::No(format!(
                "the gateway was not asked: there is no API key for {}",
                cloud.gateway()
            ))
        } else {
            let answer = async {
                let names = inquiry::ask_names(app, &to_ask, cancel).await?;
                // The refreshed rules serve later plans: the finder has already read the stored
                // ones.
                let (added, ()) =
                    tokio::join!(finder.add(names, cancel), CachedRules::refresh(app));
                added?;
                finder.look_for_missing(cancel).await;
                Ok::<_, ErrorBody>(())
            };
            match tokio::time::timeout(GATEWAY_TIMEOUT, answer).await {
                Ok(Ok(())) => Asked::Now,
                Ok(Err(error)) => {
                    Asked::No(format!("the gateway did not locate the tools: {}", error.message))
                }
                Err(_) => {
                    let limit = GATEWAY_TIMEOUT.as_secs();
                    Asked::No(format!("{} did not answer within {limit} s", cloud.gateway()))
                }
            }
        };
        // Without an answer, a plan of local tools lacks only the entries of the gateway that they
        // hide.
        let asked = if !needs && matches!(asked, Asked::No(_)) { Asked::NotNeeded } else { asked };
        finder.place(analysis, asked).await
    }

    /// Finds where a program's tools run from the gateway's answer about them.
    ///
    /// # Errors
    /// Returns why the gateway's answer is invalid.
    pub(crate) async fn of_resolution(
        app: &App,
        analysis: &Analysis,
        resolution: Option<Resolution>,
        elsewhere: &Elsewhere,
        cancel: &CancellationToken,
    ) -> Result<Self, ErrorBody> {
        let mut finder = Finder::new(app).await?;
        finder.elsewhere = elsewhere.clone();
        let asked = match resolution {
            Some(resolution) => {
                let names =
                    Names { tools: resolution.tools, scope: resolution.scope, ..Names::default() };
                finder.add(names, cancel).await?;
                Asked::Now
            }
            None => Asked::No("the gateway was not asked: none is configured".to_owned()),
        };
        finder.place(analysis, asked).await
    }

    /// Takes note that the program runs here wherever its tools are, and why.
    pub(crate) fn keep_here(&mut self, why: String) {
        if self.runs_on != Side::Client {
            self.runs_on = Side::Client;
            self.notes.push(why);
        }
    }

    /// Returns the warnings of a dry run.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let refusals = self.refusals.iter().map(|why| format!("the program is refused: {why}"));
        refusals.chain(self.notes.iter().cloned()).collect()
    }

    /// Returns the plan of the program.
    pub(crate) fn plan(&self, analysis: &Analysis) -> Plan {
        let unknown = Place { well_known: false, ..Place::on(Side::Unknown) };
        plan_with(analysis, self.runs_on, |id| self.tools.get(id).map_or(unknown, Placed::place))
    }

    /// Returns the result of a dry run.
    pub(crate) fn dry_run(&self, analysis: &Analysis) -> DryRun {
        let plan = self.plan(analysis);
        let here = |id: &&ToolId| self.tools.get(*id).is_some_and(|of| of.side == Side::Client);
        DryRun {
            dry_run: true,
            // If the gateway was queried, nothing is unknown; without a gateway everything runs here.
            routing: match self.runs_on {
                Side::Server => Routing::Server,
                Side::Client | Side::Unknown => Routing::Client,
            },
            dynamic: analysis.dynamic,
            scope: None,
            client_tools: analysis.tools.iter().filter(here).map(ToolId::to_string).collect(),
            tasks: plan
                .tasks
                .into_iter()
                .map(|task| DryTask {
                    id: task.id,
                    sends_to: self.tools.get(&task.tool).and_then(|of| of.sends_to.clone()),
                    tool: task.tool,
                    side: task.side,
                    sends_within: task.sends_within,
                    line: task.line,
                })
                .collect(),
            order: plan.order,
            text_goes_to: self.text_goes_to.clone(),
            egress: plan.egress,
            args_egress: plan.args_egress,
            diagnostics: json!(analysis.diagnostics),
        }
    }
}

/// Caches the gateway's answer, for use while it is unreachable. It is only a cache: if it cannot be written, the
/// gateway is queried again.
pub(crate) async fn learn(app: &App, tools: &[ToolUse]) {
    Learned::learn_later(app, tools).await;
}

/// Returns whether a tool is in a native namespace, for which no other source is queried.
fn is_of_pml(app: &App, id: &ToolId) -> bool {
    !app.is_configured(id)
        && (app.is_local(id) || id.is_plain() && tools::is_native(id.namespace()))
}

/// Returns the record file in `folder` for this workspace, gateway and API key.
async fn record_file(app: &App, folder: &str, limit: usize) -> Option<RecordFile> {
    let cloud = app.cloud().ok()?;
    let principal = cloud.principal().await?;
    let workspace = app.workspace().display();
    let owner = format!("{workspace}\0{}\0{principal}", cloud.gateway());
    Some(RecordFile::new(app.records(), folder, &owner, limit))
}
