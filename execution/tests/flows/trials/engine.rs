//! Compares the analysis' list of engine functions with the engine.

use std::collections::BTreeSet;
use std::sync::Arc;

use libtest_mimic::Failed;
use sandbox::{CallError, Limits, Pool, PoolConfig, ToolCall, ToolCaller};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A program that lists the names of all functions on objects of the engine that a program can reach.
const NAMES: &str = r#"
const names = new Set(), seen = new Set(), open = [
  globalThis, function* () {}, async function () {}, async function* () {}, (function* () {})(),
  (async function* () {})(), [][Symbol.iterator](), new Map().entries(), new Set().values(), ""[Symbol.iterator](),
  "".matchAll(/a/g), new Error(), Symbol(), 1n, 1, true, "", new Date(), /a/,
];
for (const one of open) {
  if (one === null || one === undefined || seen.has(one)) continue;
  seen.add(one);
  if (one === mcp || one === args) continue;
  let keys;
  try {
    open.push(Object.getPrototypeOf(one));
    keys = Reflect.ownKeys(Object(one));
  } catch {
    continue; // A proxy may throw.
  }
  for (const key of keys) {
    if (one === globalThis && (key === "mcp" || key === "args")) continue;
    const { value } = Object.getOwnPropertyDescriptor(Object(one), key);
    if (typeof key === "string" && typeof value === "function") names.add(key);
    if (value !== null && (typeof value === "object" || typeof value === "function")) open.push(value);
  }
}
return [...names];
"#;

struct NoTools;

impl ToolCaller for NoTools {
    fn call(
        &self,
        _: ToolCall,
        _: CancellationToken,
    ) -> futures::future::BoxFuture<'static, Result<Value, CallError>> {
        Box::pin(async { Err(CallError::new("the program has no tools")) })
    }
}

/// The analysis takes a call of a method that is not in its list for a call that throws, so the list must be complete.
pub(crate) fn knows_every_engine_function() -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    let program = sandbox::Program {
        source: NAMES.to_owned(),
        args: json!({}),
        ..sandbox::Program::default()
    };
    let outcome = runtime.block_on(async {
        let pool = Pool::new(PoolConfig::default())?;
        let limits = Limits::server();
        Ok::<_, sandbox::SandboxError>(
            pool.run(program, &limits, Arc::new(NoTools), CancellationToken::new()).await,
        )
    })?;
    let names = outcome.result.map_err(|failure| failure.message)?;
    let names: BTreeSet<String> = serde_json::from_value(names)?;
    if names.len() < 300 {
        return Err(format!("found only {} names", names.len()).into());
    }
    let unknown: Vec<&String> =
        names.iter().filter(|name| !analysis::is_engine_function(name)).collect();
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(format!("unknown to the analysis: {unknown:?}").into())
    }
}
