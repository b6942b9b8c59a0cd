//! Values that leave what can be followed.

use super::Builder;
use super::value::{Cap, Deps, Value};
use crate::diagnostic::{Code, shown};

/// What to write so that a program is understood.
const ADVICE: &str = "call tools directly, as in `mcp.filesystem.read_file({ path })`";

impl Builder<'_> {
    /// Gives a value to code that cannot be followed; `how` completes the
    /// sentence that names it.
    pub(super) fn escape(&mut self, value: &Value, how: &str) {
        self.escape_to(value, how, &Deps::default(), true);
    }

    /// Gives a value to code that may call the functions in it with what
    /// depends on `given`.
    pub(super) fn escape_to(&mut self, value: &Value, how: &str, given: &Deps, repeats: bool) {
        if !value.is_loaded() {
            return;
        }
        for cap in value.caps().to_vec() {
            self.escape_cap(&cap, how);
        }
        for func in value.funcs().to_vec() {
            self.call_from_unknown(func, given, true, repeats);
        }
        for part in value.parts() {
            self.escape_to(part, how, given, repeats);
        }
    }

    /// Gives a list to code that cannot be followed, and that can only hand on what
    /// is in it. Of a tool in it, it is known by then that it may be called.
    pub(super) fn escape_all_but_tools(&mut self, list: &Value, how: &str) {
        for part in list.parts().filter(|part| !part.is_tool()) {
            self.escape(part, how);
        }
    }

    fn escape_cap(&mut self, cap: &Cap, how: &str) {
        let (code, message) = match cap {
            Cap::Mcp => (Code::DynamicEscape, format!("`mcp` {how}; {ADVICE}")),
            Cap::Namespace(namespace) => {
                (Code::DynamicEscape, format!("`mcp.{}` {how}; {ADVICE}", shown(namespace, 64)))
            }
            Cap::Tool(namespace, action) | Cap::Bound(namespace, action) => {
                let name = format!("mcp.{}.{}", shown(namespace, 64), shown(action, 64));
                let message = format!(
                    "`{name}` {how}; pass a function instead, as in `(input) => {name}({{ input }})`"
                );
                (Code::DynamicEscape, message)
            }
            Cap::Global => (
                Code::DynamicGlobal,
                format!(
                    "the global object {how}; name what you need of it, as in `globalThis.JSON`"
                ),
            ),
            Cap::Evaluator => (
                Code::DynamicEval,
                format!("what makes code out of text {how}; write the code into the program"),
            ),
        };
        self.dynamic(code, message);
    }
}
