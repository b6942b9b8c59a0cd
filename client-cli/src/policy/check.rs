//! Looks for parts of a policy that have no effect, or more effect than they seem to have.

use execution::host_pattern::HostPattern;

use super::file::{Access, Named, Rules};
use super::glob::PlacePattern;
use super::web::{REDIRECTS, Web};
use super::{INSPECTED, Policy};

/// Programs that run other programs, or arbitrary code in their arguments. To allow one of them is to allow everything.
const LAUNCHERS: &[&str] = &[
    "ash",
    "awk",
    "bash",
    "busybox",
    "csh",
    "dash",
    "deno",
    "docker",
    "doas",
    "ed",
    "emacs",
    "env",
    "expect",
    "find",
    "fish",
    "gawk",
    "gdb",
    "ionice",
    "ksh",
    "less",
    "lua",
    "make",
    "man",
    "mawk",
    "more",
    "nano",
    "nice",
    "node",
    "nohup",
    "npm",
    "npx",
    "perl",
    "php",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "python",
    "python2",
    "python3",
    "rsync",
    "ruby",
    "scp",
    "script",
    "sed",
    "setarch",
    "sh",
    "ssh",
    "ssh-agent",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "tar",
    "taskset",
    "tclsh",
    "time",
    "timeout",
    "tmux",
    "unshare",
    "uv",
    "uvx",
    "vi",
    "vim",
    "watch",
    "xargs",
    "yarn",
    "zip",
    "zsh",
];

/// Something about a policy that its author should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The part of the policy.
    pub(crate) part: String,
    /// What about it, as a sentence.
    pub(crate) message: String,
}

/// Returns the findings about a policy, in the order of its parts.
pub(crate) fn findings(policy: &Policy) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(rules) = &policy.rules else { return found };
    let prefix = policy.source.prefix();
    let mut say = |part: &str, message: String| {
        found.push(Finding { part: format!("{prefix}{part}"), message });
    };
    for (name, access) in [("filesystem.read", &rules.read), ("filesystem.write", &rules.write)] {
        if let Some(access) = access {
            of_access(name, access, &mut say);
        }
    }
    of_shell(rules, &mut say);
    of_web(rules, &mut say);
    for pattern in &rules.tools {
        let text = pattern.to_string();
        let namespace = text.split(':').next().unwrap_or_default();
        let is_replaced = policy.replaced.iter().any(|name| name == namespace);
        if INSPECTED.contains(&namespace) && !is_replaced {
            say(
                "tools",
                format!("`{text}` has no effect: the calls are judged by `{prefix}{namespace}`."),
            );
        }
    }
    if policy.examples() == 0 {
        say(
            "match",
            "There are no examples. Calls in `match` and `no_match` are tested each time the policy is read."
                .to_owned(),
        );
    }
    found
}

/// Describes the limits of a policy, a part with its value each.
pub(crate) fn summary(policy: &Policy) -> Vec<(&'static str, String)> {
    let Some(rules) = &policy.rules else {
        return vec![
            ("Read", "the workspace, hidden files with approval only".to_owned()),
            ("Write", "the workspace, hidden files with approval only".to_owned()),
            ("Commands", "with approval only".to_owned()),
            ("Web", "public addresses, with approval only".to_owned()),
            ("Other tools", "as the rules say".to_owned()),
        ];
    };
    let list = |items: Vec<String>| match items.is_empty() {
        true => "none".to_owned(),
        false => items.join(", "),
    };
    let places = |access: &Option<Access>| {
        let Some(access) = access else { return "none".to_owned() };
        let patterns = |list: &[PlacePattern]| list.iter().map(PlacePattern::to_string).collect();
        let mut out = list(patterns(&access.allow));
        if !access.deny.is_empty() {
            out += &format!("; not {}", list(patterns(&access.deny)));
        }
        out += if access.hidden { "; hidden files, too" } else { "; no hidden files" };
        for (limit, what) in [(access.max_bytes, "a file"), (access.max_total_bytes, "in a run")] {
            if let Some(limit) = limit {
                out += &format!("; at most {limit} bytes {what}");
            }
        }
        out
    };
    let mut lines = vec![("Read", places(&rules.read)), ("Write", places(&rules.write))];
    let commands = rules.shell.as_ref().map_or("none".to_owned(), |shell| {
        let program = |named: &Named| {
            let name = protocol::escape_text(&named.name);
            match &named.file {
                Some(file) if file.as_os_str() != named.name.as_str() => {
                    format!("{name} ({})", protocol::escape_text(&file.to_string_lossy()))
                }
                Some(_) => name,
                None => format!("{name} (not found)"),
            }
        };
        let mut out = list(shell.programs.iter().map(program).collect());
        for (what, names) in
            [("the network for", &shell.network), ("not confined:", &shell.unconfined)]
        {
            if !names.is_empty() {
                let names = names.iter().map(|name| protocol::escape_text(name)).collect();
                out += &format!("; {what} {}", list(names));
            }
        }
        if !shell.deny_tokens.is_empty() {
            let token = |token: &String| format!("`{}`", protocol::escape_text(token));
            out += &format!(
                "; no argument with {}",
                list(shell.deny_tokens.iter().map(token).collect())
            );
        }
        if let Some(limit) = shell.timeout_ms {
            out += &format!("; at most {limit} ms");
        }
        if let Some(limit) = shell.max_output_bytes {
            out += &format!("; at most {limit} bytes of output");
        }
        out
    });
    lines.push(("Commands", commands));
    lines.push(("Web", rules.web.as_ref().map_or("none".to_owned(), of_hosts)));
    lines.push(("Other tools", list(rules.tools.iter().map(ToString::to_string).collect())));
    let mut limits: Vec<String> =
        rules.calls.iter().map(|(pattern, limit)| format!("{limit} calls of {pattern}")).collect();
    limits.extend(rules.total_ms.map(|limit| format!("{limit} ms")));
    lines.push(("Limits of a run", list(limits)));
    lines.push(("Examples", format!("{}, all of them hold", policy.examples())));
    lines
}

/// Describes the web addresses that may be opened.
fn of_hosts(web: &Web) -> String {
    let list = |patterns: &[HostPattern]| {
        let texts: Vec<String> = patterns.iter().map(HostPattern::to_string).collect();
        texts.join(", ")
    };
    let mut out = match web.allow.is_empty() && web.private.is_empty() {
        true => "none".to_owned(),
        false if web.allow.is_empty() => "only private hosts".to_owned(),
        false => list(&web.allow),
    };
    if !web.private.is_empty() {
        out += &format!("; with private addresses: {}", list(&web.private));
    }
    if !web.deny.is_empty() {
        out += &format!("; not {}", list(&web.deny));
    }
    if let Some(limit) = web.max_bytes {
        out += &format!("; at most {limit} bytes");
    }
    if let Some(limit) = web.timeout_ms {
        out += &format!("; at most {limit} ms");
    }
    out + &format!("; at most {} redirects", web.max_redirects.unwrap_or(REDIRECTS))
}

fn of_web(rules: &Rules, say: &mut impl FnMut(&str, String)) {
    let Some(web) = &rules.web else { return };
    if web.allow.is_empty() && web.private.is_empty() {
        say("web.allow", "It is empty, so every address is denied.".to_owned());
    }
    for pattern in web.allow.iter().chain(&web.private) {
        if pattern.is_any() {
            say(
                "web.allow",
                format!(
                    "`{pattern}` allows every host: whatever a program reads can be sent anywhere."
                ),
            );
        }
        if web.deny.contains(pattern) {
            say("web.allow", format!("`{pattern}` has no effect, because `deny` has it, too."));
        }
    }
}

fn of_access(name: &str, access: &Access, say: &mut impl FnMut(&str, String)) {
    if access.allow.is_empty() {
        say(&format!("{name}.allow"), "It is empty, so everything is denied.".to_owned());
    }
    for allow in &access.allow {
        if access.deny.iter().any(|deny| deny.as_str() == allow.as_str()) {
            say(
                &format!("{name}.allow"),
                format!("`{allow}` has no effect, because `deny` has it, too."),
            );
        }
        let names_hidden =
            allow.as_str().split('/').any(|part| part.starts_with('.') && part != ".");
        if names_hidden && !access.hidden {
            say(
                &format!("{name}.allow"),
                format!("`{allow}` has no effect, because it is hidden and `hidden` is not set."),
            );
        }
    }
}

fn of_shell(rules: &Rules, say: &mut impl FnMut(&str, String)) {
    let Some(shell) = &rules.shell else { return };
    if shell.programs.is_empty() {
        say("shell.allow", "It is empty, so every command is denied.".to_owned());
    }
    for program in &shell.programs {
        let name = protocol::escape_text(&program.name);
        if program.file.is_none() {
            say("shell.allow", format!("`{name}` was not found on this machine."));
        }
        let last = program.name.rsplit('/').next().unwrap_or_default();
        // Also with a version, as `python3.12`.
        let stem = last.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if LAUNCHERS.contains(&last) || LAUNCHERS.contains(&stem) {
            say(
                "shell.allow",
                format!("`{name}` can run any other program, so this allows every command."),
            );
        }
        if shell.unconfined.contains(&program.name) {
            say("shell.unconfined", format!("`{name}` can do everything that you can."));
        }
    }
    if (rules.read.is_some() || rules.write.is_some()) && !shell.programs.is_empty() {
        say(
            "shell.allow",
            "The limits of `filesystem` do not apply to what a command reads and writes in the workspace."
                .to_owned(),
        );
    }
}
