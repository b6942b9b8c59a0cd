//! Questions to the user, rendered from the exact call that waits.

pub(crate) mod left_out;
pub(crate) mod plan;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use analysis::Plan;
use protocol::{Approval, ApprovalType, Integrity, ToolId, escape_text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use self::left_out::LeftOut;
use self::plan::AskedPlan;
use super::changed_tool::ChangedTool;
use super::look_alike;
use super::permissions::Permissions;
use super::shortened::shortened;
use crate::policy::CommandAccess;
use crate::tools::filesystem::preview::Preview;
use crate::workspace::touched::{Led, Touched};

/// The time limit of a question.
pub(crate) const EXPIRY: Duration = Duration::from_secs(300);

/// The letters of a code to retype: those that are hard to confuse.
const LETTERS: &[u8] = b"abcdefghkmnpqrstuvwxyz";

/// The maximum displayed length of a text; a longer one is shown in part, with its length and hash.
const SHOWN_TEXT: usize = 2_000;

/// The maximum number of links that are shown for one call. All of them are part of what is approved.
const LINKS_LIMIT: usize = 20;

/// A server or capability that has to be approved before a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    /// Its identity: its name, its hash, and the command or the program.
    pub(crate) what: String,
    /// The variables that it receives, one line each.
    pub(crate) grants: Vec<String>,
    /// The hash of all of that, which is pinned in the lock file.
    pub(crate) hash: Option<Integrity>,
}

/// A question to the user.
#[derive(Debug)]
pub(crate) struct Question {
    /// What it is about.
    pub(crate) about: About,
    /// Why only a person can approve it, if so.
    pub(crate) needs_person: Option<NeedsPerson>,
    /// Takes the answer.
    pub(crate) answer: oneshot::Sender<Given>,
}

/// What a question is about.
#[derive(Debug)]
pub(crate) enum About {
    /// A call that waits.
    Call(Box<AskedCall>),
    /// The calls that a program is about to make.
    Plan(AskedPlan),
}

impl About {
    /// Names it in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Call(call) => format!("`{}`", call.tool),
            Self::Plan(_) => "the program".to_owned(),
        }
    }

    /// Returns the plan of the program, if it is about that.
    pub(crate) fn plan(&self) -> Option<Arc<Plan>> {
        match self {
            Self::Call(_) => None,
            Self::Plan(asked) => Some(Arc::clone(&asked.plan)),
        }
    }

    /// Renders it from the exact arguments of the calls. Every channel shows this text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Call(call) => describe_call(call, SHOWN_TEXT),
            Self::Plan(plan) => plan.describe(),
        }
    }
}

/// A call that needs approval.
#[derive(Debug, Clone)]
pub(crate) struct AskedCall {
    /// The tool to be called.
    pub(crate) tool: ToolId,
    /// The capabilities that call it, the outermost first; none for the program itself.
    pub(crate) through: Vec<ToolId>,
    /// The exact arguments.
    pub(crate) arguments: Value,
    /// The reason for the question: the rule that applies.
    pub(crate) reason: String,
    /// The number of calls with these arguments that the answer covers.
    pub(crate) count: u64,
    /// What it would do to a file, if that is known.
    pub(crate) preview: Option<Preview>,
    /// The places that it touches.
    pub(crate) touched: Touched,
    /// The server or capability that has to be started or installed first, if any.
    pub(crate) start: Option<Start>,
    /// What the tool was when the user allowed it, if it has changed since.
    pub(crate) changed: Option<ChangedTool>,
    /// The address that receives the call, if its server is not on this machine.
    pub(crate) sends_to: Option<String>,
    /// Whether a rule could allow the tool for such calls.
    pub(crate) can_be_allowed: bool,
}

/// Why only a person can approve a call, through a channel that the model cannot use. The worst is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NeedsPerson {
    /// The user wants it for every call.
    Setting,
    /// It publishes something beyond the project.
    Publication,
    /// The server of the tool says something else of it than when the user allowed it.
    Tool,
    /// It starts a server whose program is not what the user allowed.
    ChangedProgram,
    /// It starts an MCP server of the registry: another command.
    Start,
    /// It opens a web address that no policy names: what it sends could be anything.
    Web,
    /// It touches a protected place.
    Place,
    /// It is a command that reaches so far, if that is known.
    Command(Option<CommandAccess>),
}

impl NeedsPerson {
    /// Returns the reason for a call; `None` for an ordinary one. `danger` is what is known about the call itself.
    pub(crate) fn of(permissions: &Permissions, danger: Option<Self>) -> Option<Self> {
        danger.or_else(|| permissions.by_person_only().then_some(Self::Setting))
    }

    /// Returns the reason, for display.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Place => "the call touches a protected place",
            Self::Command(None) => "the call is a command",
            Self::Command(Some(CommandAccess::Workspace)) => {
                "the command can change every file in the workspace"
            }
            Self::Command(Some(CommandAccess::Network)) => {
                "the command can change every file in the workspace, and use the network"
            }
            Self::Command(Some(CommandAccess::Unconfined)) => {
                "the command can do everything that you can"
            }
            Self::Web => "the address receives what the call sends, and no policy names it",
            Self::Start => "it starts a server of the registry, a program that somebody else wrote",
            Self::ChangedProgram => "it starts a program that changed since you allowed it",
            Self::Tool => "its server describes the tool otherwise than when you allowed it",
            Self::Publication => "others can read and run what is published",
            Self::Setting => "`approvals` is set to `human`",
        }
    }

    /// Returns whether the call itself is dangerous.
    fn is_danger(self) -> bool {
        match self {
            Self::Command(_)
            | Self::Place
            | Self::Web
            | Self::Start
            | Self::ChangedProgram
            | Self::Tool
            | Self::Publication => true,
            Self::Setting => false,
        }
    }
}

/// An answer, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// The answer.
    pub(crate) answer: Answer,
    /// The calls of the list that it does not allow.
    pub(crate) without: LeftOut,
    /// Its channel.
    pub(crate) by: Channel,
}

/// The channel of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// The agent called `pml_continue`. It reports what the user said, or claims to.
    Agent,
    /// The agent's client asked the person with a form.
    Client,
    /// A person answered on a terminal.
    Terminal,
    /// A person answered on the page that `pml` had the browser open.
    Page,
}

impl Channel {
    /// Returns the channel of a name in records.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Agent, Self::Client, Self::Terminal, Self::Page]
            .into_iter()
            .find(|channel| channel.as_str() == name)
    }

    /// Returns its name in records.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Client => "client",
            Self::Terminal => "terminal",
            Self::Page => "page",
        }
    }

    /// Returns the reason for a call that was approved through it, for the record.
    pub(crate) fn approval(self) -> &'static str {
        match self {
            Self::Agent => "approved through the agent",
            Self::Client => "approved in the client's form",
            Self::Terminal => "approved on a terminal",
            Self::Page => "approved on the page",
        }
    }
}

/// The user's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// This call may run.
    Once,
    /// This call and all later calls of the tool may run.
    Always,
    /// The run ends.
    Abort,
}

/// Returns five random letters, which a person retypes to allow something dangerous.
pub(crate) fn code() -> String {
    let mut random = [0_u8; 5];
    getrandom::fill(&mut random).expect("the kernel provides random bytes");
    random.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// Returns a question as it is asked.
pub(crate) fn describe(workflow_id: &str, question: &Question, code_hash: Integrity) -> Approval {
    let (approval_type, mut context, options) = match &question.about {
        About::Call(call) => {
            let kind = match (&call.start, &call.changed) {
                (Some(_), _) => ApprovalType::Dependency,
                (None, Some(_)) => ApprovalType::Integrity,
                (None, None) => ApprovalType::ToolPermission,
            };
            // A protected place is never allowed permanently, nor a command that the policy does not name.
            let options: &[&str] = match call.can_be_allowed {
                true => &["continue", "always", "abort"],
                false => &["continue", "abort"],
            };
            (kind, context(call), options)
        }
        // A rule is made for one tool, after a question about it.
        About::Plan(plan) => (ApprovalType::Plan, plan.context(), &["continue", "abort"][..]),
    };
    context["code_hash"] = json!(code_hash);
    if let Some(why) = question.needs_person {
        context["needs_person"] = why.reason().into();
        context["dangerous"] = why.is_danger().into();
    }
    // For display only. The timer in `Approvals` is monotonic, so a change of the system's clock
    // does not move it.
    let expires: chrono::DateTime<chrono::Utc> = (SystemTime::now() + EXPIRY).into();
    Approval {
        approval_required: true,
        approval_type,
        workflow_id: workflow_id.to_owned(),
        description: question.about.text(),
        context,
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        expires_at: expires.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
    }
}

/// Renders a call. A text of more than `limit` characters is shown in part.
pub(super) fn describe_call(call: &AskedCall, limit: usize) -> String {
    let shown = |text: &str| shortened(text, limit);
    let callers = call.through.iter().map(|id| format!("{} → ", id.call_form()));
    let callers: String = callers.collect();
    let times = match call.count {
        0 | 1 => String::new(),
        count => format!(" {count} times"),
    };
    let arguments = shown(&call.arguments.to_string());
    let mut description = format!("Run `{callers}{}`{times} with {arguments}", call.tool);
    // Each part is put in front of the text so far, so what is added last is read first: the
    // address, the start, the warnings, the change of a file, and the call at the end.
    if let Some(change) = call.preview.as_ref().and_then(|preview| describe_change(preview, limit))
    {
        description = format!("{change}{description}");
    }
    for place in call.touched.protected.iter().rev() {
        let path = shown(&place.real.to_string_lossy());
        description = format!("Protected place `{path}`: {}\n{description}", place.reason);
    }
    let links: Vec<&Led> = call.touched.paths.iter().filter(|led| led.by_link).collect();
    if let Some(more) = links.len().checked_sub(LINKS_LIMIT).filter(|more| *more > 0) {
        description = format!("and {more} more paths that are links\n{description}");
    }
    for led in links.into_iter().take(LINKS_LIMIT).rev() {
        let (given, real) = (shown(&led.given), shown(&led.real.to_string_lossy()));
        description = format!("`{given}` leads to `{real}`\n{description}");
    }
    if let Some(other) = look_alike::of(&call.tool) {
        description = format!(
            "Warning: `{}` looks like `{other}`, but is not\n{description}",
            call.tool.namespace()
        );
    }
    if let Some(changed) = &call.changed {
        description = changed.shown(&call.tool, limit) + &description;
    }
    if let Some(start) = &call.start {
        // Each line is shortened separately, so that a long command cannot hide the lines after it.
        let lines: Vec<String> =
            start.grants.iter().map(|line| format!("{}\n", shown(line))).collect();
        description = format!("Start {}\n{}{description}", shown(&start.what), lines.concat());
    }
    if let Some(place) = &call.sends_to {
        description = format!("Send to {}\n{description}", shown(place));
    }
    match call.touched.command.as_ref().map(|command| command.access) {
        None | Some(CommandAccess::Workspace) => description,
        Some(CommandAccess::Network) => format!("May use the network\n{description}"),
        Some(CommandAccess::Unconfined) => {
            format!("Not confined: may do everything that you can\n{description}")
        }
    }
}

/// Describes how a file that exists changes: the lines that are removed and added, as far as they fit.
fn describe_change(preview: &Preview, limit: usize) -> Option<String> {
    preview.before?;
    let path = shortened(&preview.real.to_string_lossy(), limit);
    let Some(diff) = &preview.diff else {
        return Some(format!("Replaces `{path}` ({} bytes)\n", preview.bytes));
    };
    if diff.is_empty() {
        return Some(format!("Does not change the content of `{path}`\n"));
    }
    let mut out = format!("Changes `{path}`:\n");
    let mut left = limit;
    let mut lines = diff.lines();
    for line in lines.by_ref() {
        let line = escape_text(line);
        let Some(rest) = left.checked_sub(line.chars().count()) else {
            let more = lines.count() + 1;
            let hash = Integrity::of(diff.as_bytes());
            out += &format!("  … and {more} more lines of the change, {hash} in full\n");
            break;
        };
        left = rest;
        out += &format!("  {line}\n");
    }
    Some(out)
}

/// Returns the machine-readable context of a call, without what only the description needs.
pub(super) fn context(call: &AskedCall) -> Value {
    let arguments = call.arguments.to_string();
    let mut context = json!({ "tool": call.tool, "reason": call.reason });
    // The arguments stay with the paused call; a model does not need to read a megabyte of them.
    if arguments.len() <= SHOWN_TEXT {
        context["arguments"] = call.arguments.clone();
    } else {
        context["arguments_hash"] = json!(Integrity::of(arguments.as_bytes()));
    }
    if !call.can_be_allowed {
        context["can_be_allowed"] = false.into();
    }
    if call.count > 1 {
        context["count"] = call.count.into();
    }
    if !call.touched.protected.is_empty() {
        let places = call.touched.protected.iter().map(|place| {
            json!({ "path": escape_text(&place.real.to_string_lossy()), "reason": place.reason })
        });
        context["protected"] = places.collect();
    }
    let links = call.touched.paths.iter().filter(|led| led.by_link).take(LINKS_LIMIT);
    let links = links.map(|led| {
        json!({ "path": escape_text(&led.given), "leads_to": escape_text(&led.real.to_string_lossy()) })
    });
    let links: Vec<Value> = links.collect();
    if !links.is_empty() {
        context["links"] = links.into();
    }
    if !call.through.is_empty() {
        context["through"] = json!(call.through);
    }
    if let Some(start) = &call.start {
        context["start"] = escape_text(&start.what).into();
        if !start.grants.is_empty() {
            let grants: Vec<String> = start.grants.iter().map(|line| escape_text(line)).collect();
            context["grants"] = json!(grants);
        }
        if let Some(hash) = start.hash {
            context["start_hash"] = json!(hash);
        }
    }
    // The description has the difference.
    if let Some(changed) = &call.changed {
        context["changed"] =
            json!({ "summary": changed.summary(&call.tool), "hash": changed.hash() });
    }
    if let Some(place) = &call.sends_to {
        context["sends_to"] = escape_text(place).into();
    }
    // The description has the lines.
    if let Some(Preview { real, before: Some(_), bytes, .. }) = &call.preview {
        context["changes"] =
            json!({ "path": escape_text(&real.to_string_lossy()), "bytes": bytes });
    }
    context
}
