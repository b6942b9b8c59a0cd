//! The tools that agents are offered next to the meta-tools: `expose_tools` in `.pml.json`.
//!
//! This selects and names them, and notices when they change. Offering a tool grants nothing: a call of it is a program
//! with one call, under the rules of every program.

mod known;
mod names;
mod stamp;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{ToolDescriptor, ToolId};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use self::stamp::Stamp;
use crate::app::App;

/// How often the project's files are looked at for changes by another `pml` or an editor.
const PERIOD: Duration = Duration::from_secs(1);

/// A tool that agents can call by a name of its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExposedTool {
    /// What a program calls: the full name and version of a capability, or the id of a tool of this machine.
    pub(crate) id: ToolId,
    /// Whether it is a capability. The schema of its arguments is checked here then; another tool checks its own.
    pub(crate) is_capability: bool,
    /// Its description and its parameters, as its author wrote them.
    pub(crate) descriptor: ToolDescriptor,
}

/// The exposed tools, by name.
pub(crate) type ExposedTools = BTreeMap<String, ExposedTool>;

/// The tools that a project exposes at the moment.
pub(crate) struct Exposed {
    app: Arc<App>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    /// What the tools were selected from; `None` before the first time.
    stamp: Option<Stamp>,
    tools: Arc<ExposedTools>,
    /// The warnings about the present selection, which are logged once.
    warnings: BTreeSet<String>,
}

impl Exposed {
    /// Begins to follow the exposed tools of a project; `None` if its `.pml.json` exposed none when it was opened.
    ///
    /// Must be called in the async runtime.
    pub(crate) fn follow(app: &Arc<App>) -> Option<Arc<Self>> {
        if !app.exposes() {
            return None;
        }
        let (changed, _) = watch::channel(());
        let exposed = Arc::new(Self { app: Arc::clone(app), state: Mutex::default(), changed });
        let followed = Arc::downgrade(&exposed);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(exposed) = followed.upgrade() else { return };
                exposed.current().await;
            }
        });
        Some(exposed)
    }

    /// Returns the tools that are exposed now.
    pub(crate) async fn current(self: &Arc<Self>) -> Arc<ExposedTools> {
        let exposed = Arc::clone(self);
        // It reads files.
        let selected = tokio::task::spawn_blocking(move || exposed.select()).await;
        selected.unwrap_or_else(|_| self.last())
    }

    /// Returns the tools that were exposed when somebody last looked.
    pub(crate) fn last(&self) -> Arc<ExposedTools> {
        Arc::clone(&self.state().tools)
    }

    /// Returns a receiver that is told of each later change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn select(&self) -> Arc<ExposedTools> {
        let mut state = self.state();
        // Taken before the files are read: a later change is then noticed the next time.
        let stamp = Stamp::of(&self.app);
        if state.stamp.as_ref() == Some(&stamp) {
            return Arc::clone(&state.tools);
        }
        let mut warnings = BTreeSet::new();
        let tools = known::select(&self.app, &mut warnings);
        for warning in warnings.difference(&state.warnings) {
            tracing::warn!("{warning}");
        }
        // The first selection is no change: nobody has seen another one.
        let has_changed = state.stamp.is_some() && *state.tools != tools;
        *state = State { stamp: Some(stamp), tools: Arc::new(tools), warnings };
        let tools = Arc::clone(&state.tools);
        drop(state);
        if has_changed {
            self.changed.send_replace(());
        }
        tools
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Replaced as a whole, so a panic elsewhere leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
