//! What `.pml.json` may say, in the forms that people write it.

use serde_json::json;

use crate::support::cli::{Project, text};
use crate::support::expect::success;

/// What a program needs that uses nothing of the file.
const SUM: &str = "return 1 + 1";

/// Settings without an effect are named in a warning, and another version of the file is refused.
#[test]
fn settings_without_effect_are_named() {
    let project = Project::offline().configure(&json!({
        "version": "1.0",
        "workspace": ".",
        "server": { "port": 3003 },
        "expose_tools": { "mode": "hybrid", "curated_limit": 10 },
    }));
    let (envelope, _) = project.exec(SUM);
    success(&envelope);
    let said = text(&project.run_with(&["exec", "-"], SUM.as_bytes()).stderr);
    for name in ["workspace", "server", "expose_tools"] {
        let warning = format!("warning: `{name}` in `.pml.json` has no effect in this version");
        assert!(said.contains(&warning), "{said}");
    }
    project.write(".pml.json", r#"{ "version": "2.0" }"#);
    let refused = project.run_with(&["exec", "-"], SUM.as_bytes());
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("version `2.0` of this file is not known"), "{said}");
}
