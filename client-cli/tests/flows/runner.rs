//! Runs one program and records the arguments of its calls.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use sandbox::{
    CallError, Limits, Pool, PoolConfig, ProgramClock, Repeatable, SandboxError, ToolCall,
    ToolCaller,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::inputs::{Change, Flavour, answer, field};
use crate::subject::{Source, Subject};

/// The calls and the end of a run.
pub(crate) struct Run {
    /// Its calls: name and arguments.
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) ended_well: bool,
}

struct Tools {
    calls: Mutex<Vec<(String, String)>>,
    flavour: Flavour,
    words: Vec<String>,
    changed: Option<(String, Change)>,
}

impl ToolCaller for Tools {
    fn call(
        &self,
        call: ToolCall,
        _: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let key = Subject::key(&call.namespace, &call.action);
        let change = self.changed.as_ref().filter(|(changed, _)| *changed == key);
        let change = change.map(|(_, change)| *change);
        let answer = answer(self.flavour, &self.words, &key, change);
        self.calls.lock().expect("no holder panics").push((key, call.args.to_string()));
        Box::pin(async move { Ok(answer) })
    }
}

pub(crate) struct Runner(Pool);

impl Runner {
    pub(crate) fn start() -> Result<Self, SandboxError> {
        Ok(Self(Pool::new(PoolConfig { warm: 4, max_running: 4, ..PoolConfig::default() })?))
    }

    pub(crate) async fn run(
        &self,
        subject: &Subject,
        flavour: Flavour,
        changed: Option<(&Source, Change)>,
    ) -> Run {
        let mut args = Map::new();
        for name in &subject.fields {
            let change = match changed {
                Some((Source::Field(changed), change)) if changed == name => Some(change),
                _ => None,
            };
            args.insert(name.clone(), field(flavour, &subject.words, name, "args", change));
        }
        let tools = Arc::new(Tools {
            calls: Mutex::default(),
            flavour,
            words: subject.words.clone(),
            changed: match changed {
                Some((Source::Calls(key), change)) => Some((key.clone(), change)),
                _ => None,
            },
        });
        let program = sandbox::Program {
            source: subject.program.clone(),
            args: Value::Object(args),
            repeatable: Some(Repeatable {
                clock: ProgramClock::virtual_time(1_700_000_000_000),
                seed: [1; 32],
            }),
            implicit_returns: None,
        };
        let limits = Limits { calls: 200, ..Limits::server() };
        let caller: Arc<dyn ToolCaller> = tools.clone();
        let outcome = self.0.run(program, &limits, caller, CancellationToken::new()).await;
        let calls = tools.calls.lock().expect("no holder panics").clone();
        Run { calls, ended_well: outcome.result.is_ok() }
    }
}
