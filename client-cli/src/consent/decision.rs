//! Decides about every call, wherever its tool is: a call of a program, of a capability, or of an agent by the tool's
//! name, a forwarded call, and the publication of a program.

use protocol::{ErrorBody, ErrorCode, ToolId};
use serde_json::json;

use super::permissions::{Permissions, Ruling, Verdict};
use super::question::Start;
use crate::policy::{Judged, Policy};
use crate::workspace::touched::Touched;

/// The properties of a call, other than its tool, that the decision depends on.
#[derive(Debug, Default)]
pub(crate) struct Call<'a> {
    /// Whether the user has allowed the tool for the rest of the run.
    pub(crate) allowed_in_run: bool,
    /// The server or capability that has to be approved first.
    pub(crate) start: Option<Start>,
    /// What it touches, as far as that is known.
    pub(crate) touched: Option<&'a Touched>,
    /// The policy of its run; by default, the present one.
    pub(crate) policy: Option<&'a Policy>,
    /// Whether it needs approval each time, whatever a rule allows.
    pub(crate) always_asked: bool,
}

/// The decision about a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It runs.
    Run {
        /// The reason, for the record: the rule that allows it.
        reason: String,
    },
    /// The user decides.
    Ask {
        /// The reason, for display.
        reason: String,
        /// The server or capability that has to be approved first.
        start: Option<Start>,
        /// Whether a rule covers the tool; otherwise asking is the default.
        by_rule: bool,
    },
    /// It is refused, and the user cannot approve it.
    Refused {
        /// The reason, for display.
        reason: String,
        /// `PERMISSION_DENIED` for a rule, and `POLICY_DENIED` for the policy.
        code: ErrorCode,
    },
}

/// Decides about a call.
pub(crate) fn decide(permissions: &Permissions, tool: &ToolId, call: Call<'_>) -> Decision {
    let Ruling { verdict, rule, reason } = permissions.rule_on(tool);
    // An "always" counts even without a rule: it cannot be stored in an untrusted `.pml.json`.
    let is_allowed = verdict == Verdict::Allow || call.allowed_in_run;
    // `deny` comes first, so that nothing overrides it.
    if verdict == Verdict::Deny {
        return Decision::Refused { reason, code: ErrorCode::PermissionDenied };
    }
    let policy = call.policy.unwrap_or(permissions.policy());
    let judged = match policy.tool(tool) {
        Judged::Within => call.touched.map_or(Judged::Within, |touched| touched.judged(policy)),
        judged => judged,
    };
    if let Judged::Denied(reason) = judged {
        return Decision::Refused { reason, code: ErrorCode::PolicyDenied };
    }
    let places = call.touched.map_or(&[][..], |touched| &touched.protected);
    if !is_allowed || call.always_asked || call.start.is_some() {
        // A start needs approval even if `allow` covers the tool: the rule permits calls, and says
        // nothing about the command or the program that would run first.
        Decision::Ask { reason, start: call.start, by_rule: rule.is_some() }
    } else if let Judged::Beyond(reason) = judged {
        Decision::Ask { reason: reason.to_owned(), start: None, by_rule: false }
    } else if !places.is_empty() {
        let reason = "a rule cannot allow access to a protected place".to_owned();
        Decision::Ask { reason, start: None, by_rule: false }
    } else {
        let reason = match verdict {
            Verdict::Allow => reason,
            Verdict::Ask | Verdict::Deny => {
                "the user allowed it for the rest of the run".to_owned()
            }
        };
        Decision::Run { reason }
    }
}

/// Returns why a tool never runs, if a rule or the policy denies it.
pub(crate) fn why_refused(permissions: &Permissions, tool: &ToolId) -> Option<String> {
    // A `deny` refuses in all circumstances, so an empty call is sufficient.
    match decide(permissions, tool, Call::default()) {
        Decision::Refused { reason, .. } => Some(reason),
        Decision::Run { .. } | Decision::Ask { .. } => None,
    }
}

/// Refuses a tool that a rule or the policy denies. `why` is inserted into the message and explains how the program reaches the tool.
///
/// # Errors
/// Returns `PERMISSION_DENIED` or `POLICY_DENIED`.
pub(crate) fn refuse_denied(
    permissions: &Permissions,
    tool: &ToolId,
    why: &str,
) -> Result<(), ErrorBody> {
    match decide(permissions, tool, Call::default()) {
        Decision::Refused { reason, code } => Err(denied(tool, why, &reason, code)),
        Decision::Run { .. } | Decision::Ask { .. } => Ok(()),
    }
}

/// Refuses a tool that a rule denies by this name, which is not the one that the program calls it by. The policy judges that
/// one: its `tools` lists the names that programs use.
///
/// # Errors
/// Returns `PERMISSION_DENIED`.
pub(crate) fn refuse_denied_by_rule(
    permissions: &Permissions,
    tool: &ToolId,
    why: &str,
) -> Result<(), ErrorBody> {
    match permissions.rule_on(tool) {
        Ruling { verdict: Verdict::Deny, reason, .. } => {
            Err(denied(tool, why, &reason, ErrorCode::PermissionDenied))
        }
        _ => Ok(()),
    }
}

/// Returns the error for a denied tool.
pub(crate) fn denied(tool: &ToolId, why: &str, reason: &str, code: ErrorCode) -> ErrorBody {
    let message = format!("tool `{tool}` is denied{why}: {reason}");
    ErrorBody::new(code, message).with_details(json!({ "tool": tool }))
}

/// Returns whether a rule asks about one of these tools.
///
/// The default of asking when no rule matches applies only to programs that run on this machine or get data from it.
pub(crate) fn has_ask_rule<'a>(
    permissions: &Permissions,
    mut tools: impl Iterator<Item = &'a ToolId>,
) -> bool {
    tools.any(|tool| {
        matches!(permissions.rule_on(tool), Ruling { verdict: Verdict::Ask, rule: Some(_), .. })
    })
}

/// Returns whether a rule asks about a tool by its full name, and none allows it by the name in the program: `allow` precedes
/// `ask`, and is for that name when the program runs here.
pub(crate) fn asks_by_full_name(permissions: &Permissions, name: &ToolId, full: &ToolId) -> bool {
    permissions.rule_on(name).verdict != Verdict::Allow
        && has_ask_rule(permissions, std::iter::once(full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consent::permissions::PermissionRules;
    use crate::workspace::protected::{Guard, Protected};

    fn permissions() -> Permissions {
        let list = |text: &str| vec![text.parse().unwrap()];
        let rules = PermissionRules { allow: list("a:*"), ask: list("b:*"), deny: list("c:*") };
        Permissions::new(rules, ".pml.json")
    }

    fn start() -> Start {
        Start { what: "it".to_owned(), grants: Vec::new(), hash: None }
    }

    /// Decides about a call in each circumstance; returns one letter per decision.
    fn letters(tool: &str) -> String {
        let place =
            Protected { real: ".git/config".into(), guard: Guard::Asked, reason: "Git runs it" };
        let touched = Touched { protected: vec![place], ..Touched::default() };
        let touched = Some(&touched);
        let calls = [
            Call::default(),
            Call { allowed_in_run: true, ..Call::default() },
            Call { start: Some(start()), ..Call::default() },
            Call { touched, ..Call::default() },
            Call { always_asked: true, ..Call::default() },
            Call { allowed_in_run: true, start: Some(start()), ..Call::default() },
            Call { allowed_in_run: true, touched, ..Call::default() },
        ];
        let letter = |call| match decide(&permissions(), &tool.parse().unwrap(), call) {
            Decision::Run { .. } => 'r',
            Decision::Ask { by_rule: true, .. } => 'A',
            Decision::Ask { by_rule: false, .. } => 'a',
            Decision::Refused { .. } => '-',
        };
        calls.into_iter().map(letter).collect()
    }

    /// A denied tool never runs. A call that `allow` cannot cover always needs approval.
    #[test]
    fn every_circumstance_is_decided() {
        assert_eq!(letters("a:x"), "rrAaAAa");
        assert_eq!(letters("b:x"), "ArAAAAa");
        assert_eq!(letters("c:x"), "-------");
        assert_eq!(letters("d:x"), "araaaaa");
    }

    #[test]
    fn a_question_names_what_it_is_about() {
        let tool = "a:x".parse().unwrap();
        let call = Call { start: Some(start()), ..Call::default() };
        let reason = "`allow` has `a:*` in `.pml.json`".to_owned();
        let asked = Decision::Ask { reason, start: Some(start()), by_rule: true };
        assert_eq!(decide(&permissions(), &tool, call), asked);
        let reason = "`allow` has `a:*` in `.pml.json`".to_owned();
        assert_eq!(decide(&permissions(), &tool, Call::default()), Decision::Run { reason });
        let reason = "the user allowed it for the rest of the run".to_owned();
        let call = Call { allowed_in_run: true, ..Call::default() };
        let asked = "b:x".parse().unwrap();
        assert_eq!(decide(&permissions(), &asked, call), Decision::Run { reason });
    }

    /// A rule that asks about everything does not ask about the full name of a tool that is allowed.
    #[test]
    fn a_full_name_is_asked_about_unless_the_tool_is_allowed() {
        let list = |text: &str| vec![text.parse().unwrap()];
        let rules = |allow: &str, ask: &str| {
            let rules = PermissionRules { allow: list(allow), ask: list(ask), deny: Vec::new() };
            Permissions::new(rules, ".pml.json")
        };
        let [name, full]: [ToolId; 2] = ["a:x", "acme.web.a:x"].map(|id| id.parse().unwrap());
        for (allow, ask, expected) in [
            ("a:*", "*", false),
            ("a:*", "acme.web.a:x", false),
            ("b:*", "*", true),
            ("b:*", "acme.web.a:x", true),
            ("b:*", "b:*", false),
            // A rule for the full name does not allow the name in the program.
            ("acme.web.a:x", "a:*", false),
        ] {
            let asked = asks_by_full_name(&rules(allow, ask), &name, &full);
            assert_eq!(asked, expected, "{allow} {ask}");
        }
    }

    /// Only an `ask` rule keeps a program on this machine; the default of asking does not.
    #[test]
    fn the_default_is_no_rule() {
        let tools = ["a:x", "b:x", "c:x", "d:x"].map(|tool| tool.parse().unwrap());
        let asks = tools.each_ref().map(|tool| has_ask_rule(&permissions(), [tool].into_iter()));
        assert_eq!(asks, [false, true, false, false]);
        let refused = tools
            .each_ref()
            .map(|tool| refuse_denied(&permissions(), tool, ", as the test says").is_err());
        assert_eq!(refused, [false, false, true, false]);
        let error = refuse_denied(&permissions(), &tools[2], ", and `x` calls it").unwrap_err();
        assert_eq!(
            error.message,
            "tool `c:x` is denied, and `x` calls it: `deny` has `c:*` in `.pml.json`"
        );
    }
}
