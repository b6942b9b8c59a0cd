//! `permissions` of `.pml.json`: `deny` overrides `allow`, `allow` overrides `ask`, and the default is to ask.

use std::sync::Arc;

use protocol::{ToolId, ToolPattern};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::policy::{GivenPolicy, Policy};

/// The rules in `.pml.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionRules {
    /// Tools that run without a question.
    #[serde(default)]
    pub(crate) allow: Vec<ToolPattern>,
    /// Tools that need approval.
    #[serde(default)]
    pub(crate) ask: Vec<ToolPattern>,
    /// Tools that never run.
    #[serde(default)]
    pub(crate) deny: Vec<ToolPattern>,
}

/// The kind of rule that covers a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It runs without a question.
    Allow,
    /// The user decides.
    Ask,
    /// It is refused, and the user cannot approve it.
    Deny,
}

/// The result of the rules for a tool. Only [`decide`](super::decision::decide) turns it into a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ruling {
    /// The kind of rule.
    pub(super) verdict: Verdict,
    /// The rule that decided; `None` when no rule covers the tool.
    pub(super) rule: Option<ToolPattern>,
    /// The reason, for display: the rule and its file.
    pub(super) reason: String,
}

/// What the gateway is told of the runs that it has located the tools of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TraceLevel {
    /// Nothing.
    Off,
    /// Which tools were called, and when; of values, a keyed hash, the size and the shape.
    #[default]
    Summary,
    /// The values, too, sanitized.
    Full,
}

/// The permissions of a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Permissions {
    rules: PermissionRules,
    source: String,
    /// Whether the agent can approve nothing, not even ordinary calls.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    by_person_only: bool,
    /// Whether the text of a program stays on this machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    analysed_here: bool,
    /// What its trace tells.
    #[serde(skip_serializing_if = "is_default")]
    traces: TraceLevel,
    /// What the tools may touch.
    #[serde(flatten, serialize_with = "recorded")]
    policy: Arc<Policy>,
}

impl Permissions {
    /// Stores rules and the name of their file.
    pub(crate) fn new(rules: PermissionRules, source: impl Into<String>) -> Self {
        Self {
            rules,
            source: source.into(),
            by_person_only: false,
            analysed_here: false,
            traces: TraceLevel::default(),
            policy: Arc::default(),
        }
    }

    /// Sets the policy.
    #[must_use]
    pub(crate) fn under(self, policy: Arc<Policy>) -> Self {
        Self { policy, ..self }
    }

    /// Returns the policy.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Sets whether only a person can approve calls. Once set, it stays.
    #[must_use]
    pub(crate) fn approved_by_person_only(mut self, is_set: bool) -> Self {
        self.by_person_only |= is_set;
        self
    }

    /// Returns whether only a person can approve calls.
    pub(crate) fn by_person_only(&self) -> bool {
        self.by_person_only
    }

    /// Sets whether the text of a program stays on this machine. Once set, it stays.
    #[must_use]
    pub(crate) fn analysed_here(mut self, is_set: bool) -> Self {
        self.analysed_here |= is_set;
        self
    }

    /// Returns whether the text of a program stays on this machine: programs are analysed and run here, and the gateway
    /// gets the names of their tools only.
    pub(crate) fn keeps_text(&self) -> bool {
        self.analysed_here
    }

    /// Sets what traces tell.
    #[must_use]
    pub(crate) fn traced(self, traces: TraceLevel) -> Self {
        Self { traces, ..self }
    }

    /// Returns what traces tell.
    pub(crate) fn traces(&self) -> TraceLevel {
        self.traces
    }

    /// Returns whether any rule denies or asks, or there is a policy.
    pub(crate) fn restrict(&self) -> bool {
        !self.rules.deny.is_empty() || !self.rules.ask.is_empty() || self.policy.restricts()
    }

    /// Returns whether a call of some tool of a server, possibly one that is not known yet, could start the server
    /// without asking the user.
    pub(crate) fn may_start(&self, namespace: &str) -> bool {
        // A `deny` of single tools does not prevent a start, because the server may have other
        // tools. A `deny` of the whole namespace does.
        let Ok(some_tool) = ToolId::new(namespace, "x") else { return false };
        let is_denied = |pattern: &ToolPattern| {
            !matches!(pattern, ToolPattern::Tool(_)) && pattern.restricts(&some_tool)
        };
        self.rules.allow.iter().any(|pattern| match pattern {
            ToolPattern::Any => true,
            ToolPattern::Namespace(name) => name == namespace,
            // A `deny` of exactly this tool overrides its `allow`.
            ToolPattern::Tool(id) => {
                id.namespace() == namespace && self.rule_on(id).verdict == Verdict::Allow
            }
        }) && !self.rules.deny.iter().any(is_denied)
    }

    /// Applies the rules to a tool.
    ///
    /// The kind of rule decides, not how specific it is: nothing in `allow` weakens a `deny`.
    pub(super) fn rule_on(&self, tool: &ToolId) -> Ruling {
        let lists = [
            (Verdict::Deny, "deny", &self.rules.deny),
            (Verdict::Allow, "allow", &self.rules.allow),
            (Verdict::Ask, "ask", &self.rules.ask),
        ];
        for (verdict, name, patterns) in lists {
            // Of several rules of one kind, the most specific one is shown as the reason.
            let covering = patterns.iter().filter(|pattern| match verdict {
                // Narrower than `restricts`: the author of a rule for a short name did not mean
                // another organisation's tool of that name.
                Verdict::Allow => pattern.grants(tool),
                Verdict::Deny | Verdict::Ask => pattern.restricts(tool),
            });
            if let Some(rule) = covering.max_by_key(|pattern| pattern.specificity()) {
                let reason = format!("`{name}` has `{rule}` in `{}`", self.source);
                return Ruling { verdict, rule: Some(rule.clone()), reason };
            }
        }
        let reason = format!("no rule in `{}` matches `{tool}`", self.source);
        Ruling { verdict: Verdict::Ask, rule: None, reason }
    }
}

fn is_default(traces: &TraceLevel) -> bool {
    *traces == TraceLevel::default()
}

/// Serializes a policy for the record: the one of the project, and the one that the command was given.
fn recorded<S: Serializer>(policy: &Policy, serializer: S) -> Result<S::Ok, S::Error> {
    let mut members = serializer.serialize_map(None)?;
    if let Some(written) = policy.written() {
        members.serialize_entry("policy", written)?;
    }
    if let Some(given) = policy.given() {
        members.serialize_entry(GivenPolicy::RECORDED, &given.record())?;
    }
    members.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permissions(allow: &[&str], ask: &[&str], deny: &[&str]) -> Permissions {
        let list = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let rules = PermissionRules { allow: list(allow), ask: list(ask), deny: list(deny) };
        Permissions::new(rules, ".pml.json")
    }

    fn verdict(permissions: &Permissions, tool: &str) -> Verdict {
        permissions.rule_on(&tool.parse().unwrap()).verdict
    }

    /// CL-08: no `allow`, however specific, weakens a `deny`.
    #[test]
    fn deny_wins_over_allow_over_ask() {
        use Verdict::{Allow, Ask, Deny};
        let all = ["*", "filesystem:*", "filesystem:read_file"];
        let id = "filesystem:read_file";
        for one in all {
            assert_eq!(verdict(&permissions(&[], &[], &[]), id), Ask);
            assert_eq!(verdict(&permissions(&[one], &[], &[]), id), Allow);
            for other in all {
                assert_eq!(verdict(&permissions(&[other], &[], &[one]), id), Deny, "{one} {other}");
                assert_eq!(
                    verdict(&permissions(&[one], &[other], &[]), id),
                    Allow,
                    "{one} {other}"
                );
                assert_eq!(verdict(&permissions(&[one], &[one], &[other]), id), Deny);
            }
        }
        let mixed = permissions(&["*"], &[], &["filesystem:*"]);
        assert_eq!(verdict(&mixed, "filesystem:write_file"), Deny);
        assert_eq!(verdict(&mixed, "json:parse"), Allow);
    }

    /// CL-08: another spelling of a denied tool is a different tool or invalid; it never escapes the rule.
    #[test]
    fn other_spellings_do_not_escape_a_deny() {
        let denied = permissions(&["git:*"], &[], &["filesystem:*"]);
        for text in ["Filesystem:read_file", "filesystem2:read_file", "file-system:read_file"] {
            assert_eq!(verdict(&denied, text), Verdict::Ask, "{text}");
        }
        for text in [
            "filesystem/read_file",
            "filesystem.read_file",
            " filesystem:read_file",
            "filesystem:read_file ",
            "ﬁlesystem:read_file",
            "filesystem:re\u{200b}ad_file",
            "filesystem:*",
        ] {
            text.parse::<ToolId>().expect_err(text);
        }
        let wire = ToolId::from_wire("filesystem__read_file").unwrap();
        assert_eq!(denied.rule_on(&wire).verdict, Verdict::Deny);
    }

    /// `-` and `_` are one character for `deny` and `ask`, and two for `allow`.
    #[test]
    fn a_hyphen_does_not_escape_a_deny() {
        for (rule, tool) in [("own-db:*", "own_db:query"), ("own_db:run-it", "own-db:run_it")] {
            assert_eq!(verdict(&permissions(&["*"], &[], &[rule]), tool), Verdict::Deny, "{tool}");
            let asked = permissions(&[], &[rule], &[]).rule_on(&tool.parse().unwrap());
            assert_eq!(asked.reason, format!("`ask` has `{rule}` in `.pml.json`"));
            assert_eq!(verdict(&permissions(&[rule], &[], &[]), tool), Verdict::Ask, "{tool}");
        }
        assert!(!permissions(&["*"], &[], &["own-db:*"]).may_start("own_db"));
        assert!(permissions(&["*"], &[], &["own-db:query"]).may_start("own_db"));
        assert!(!permissions(&["own-db:*"], &[], &[]).may_start("own_db"));
    }

    /// A version or a full name neither escapes a `deny` nor gains an `allow`.
    #[test]
    fn versions_and_full_names_do_not_escape_a_deny() {
        let denied = permissions(&["*"], &[], &["text:shout"]);
        let allowed = permissions(&["text:*"], &[], &[]);
        for text in ["text:shout@0.1.0", "evil.web.text:shout", "evil.web.text:shout@0.1.0"] {
            assert_eq!(verdict(&denied, text), Verdict::Deny, "{text}");
        }
        assert_eq!(verdict(&allowed, "text:shout@0.1.0"), Verdict::Allow);
        assert_eq!(verdict(&allowed, "evil.web.text:shout"), Verdict::Ask);
        let full = permissions(&["acme.core.text:shout"], &[], &[]);
        assert_eq!(verdict(&full, "acme.core.text:shout@0.2.0"), Verdict::Allow);
        assert_eq!(verdict(&full, "text:shout"), Verdict::Ask);
    }

    #[test]
    fn a_decision_names_its_rule_and_file() {
        let decision = permissions(&["*", "git:*"], &[], &[]).rule_on(&"git:log".parse().unwrap());
        assert_eq!(decision.reason, "`allow` has `git:*` in `.pml.json`");
        let decision = permissions(&[], &[], &[]).rule_on(&"git:log".parse().unwrap());
        assert_eq!(decision.reason, "no rule in `.pml.json` matches `git:log`");
        assert_eq!(decision.rule, None);
    }
}
