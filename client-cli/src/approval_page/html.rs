//! Renders the page.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use protocol::Integrity;

use super::Shown;
use crate::consent::question::Answer;

const STYLE: &str = "
body{font:16px/1.5 system-ui,'Segoe UI',Helvetica,Arial,sans-serif;color:#1f2328;background:#f6f8fa;margin:0}
main{max-width:60rem;margin:2rem auto;padding:1.5rem 2rem;background:#fff;border:1px solid #d0d7de;border-radius:8px}
h1{font-size:1.4rem;margin:0 0 1rem}
pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre-wrap;overflow-wrap:anywhere;background:#f6f8fa;border:1px solid #d0d7de;border-radius:6px;padding:1rem}
img{max-width:100%;height:auto}
.danger{border-left:5px solid #cf222e;background:#ffebe9;padding:.6rem 1rem;font-weight:600}
.message{border-left:5px solid #9a6700;background:#fff8c5;padding:.6rem 1rem}
code{font:600 1.15em ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;letter-spacing:.12em}
input[name=code]{font:inherit;padding:.3rem .5rem;width:10rem}
fieldset{border:1px solid #d0d7de;border-radius:6px;margin:1rem 0;padding:.6rem 1rem}
fieldset label{display:inline-block;margin-right:1rem}
button{font:inherit;padding:.45rem 1.1rem;margin:.8rem .6rem 0 0;border:1px solid #8c959f;border-radius:6px;background:#fff;cursor:pointer}
button.allow{background:#1f883d;border-color:#1f883d;color:#fff}
button.deny{color:#cf222e;border-color:#cf222e}
button:focus-visible,input:focus-visible{outline:3px solid #0969da;outline-offset:2px}
";

/// A page without a question.
pub(super) enum Notice {
    /// The request was not made by a page of this process.
    Refused,
    /// The link is wrong, or was opened before.
    UnknownLink,
    /// The question does not wait any more, or the form was sent before.
    NotOpen,
    /// The code was wrong too often.
    WrongCodes,
    /// The answer was taken.
    Answered(Answer),
}

/// Returns the policy of all pages.
pub(super) fn content_security_policy() -> String {
    let style = Integrity::of(STYLE.as_bytes());
    format!(
        "default-src 'none'; style-src '{style}'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
}

/// Renders a question: first the danger, then what would happen, the decision at the end. With a `code`, it has to be
/// retyped.
pub(super) fn question(
    shown: &Shown,
    code: Option<&str>,
    secret: &str,
    message: Option<&str>,
) -> String {
    let mut body = String::from("<h1>Allow this?</h1>\n");
    if let Some(message) = message {
        let _ = writeln!(body, r#"<p class="message" role="alert">{}</p>"#, escaped(message));
    }
    if let Some(danger) = &shown.danger {
        let _ = writeln!(body, r#"<p class="danger">Careful: {}.</p>"#, escaped(danger));
    }
    let _ = writeln!(body, "<pre>{}</pre>", escaped(&shown.text));
    if let Some(picture) = &shown.picture {
        let _ = writeln!(
            body,
            r#"<img alt="What the program will and may do" src="data:image/svg+xml;base64,{}">"#,
            BASE64_STANDARD.encode(picture)
        );
    }
    let _ = writeln!(
        body,
        r#"<form method="post" action="/answer" autocomplete="off"><input type="hidden" name="secret" value="{secret}">"#
    );
    if shown.calls > 0 {
        body += "<fieldset><legend>Leave out these calls (they fail when the program makes them):</legend>";
        for number in 1..=shown.calls {
            let _ = write!(
                body,
                r#"<label><input type="checkbox" name="without" value="{number}">{number}</label> "#
            );
        }
        body += "</fieldset>\n";
    }
    if let Some(code) = code {
        let _ = writeln!(
            body,
            r#"<p><label>To allow it, type <code>{code}</code>: <input name="code" maxlength="20" autocapitalize="off" spellcheck="false"></label></p>"#
        );
    }
    // The first button is what Enter does.
    body += r#"<button name="answer" value="later">Not now</button><button class="deny" name="answer" value="deny">Deny and end the run</button><button class="allow" name="answer" value="once">Allow once</button>"#;
    if shown.offers_always {
        body += r#"<button name="answer" value="always">Always allow this tool</button>"#;
    }
    body += "\n</form>";
    document(&body)
}

/// Renders a page without a question.
pub(super) fn notice(notice: &Notice) -> String {
    let text = match notice {
        Notice::Refused => "This request was refused.",
        Notice::UnknownLink => {
            "This link does not work, or was opened before. <code>pml approve</code> in a terminal shows the question, too."
        }
        Notice::NotOpen => {
            "This question does not wait any more: it was answered, it expired, or its run has ended."
        }
        Notice::WrongCodes => {
            "The code was wrong too often. <code>pml approve</code> in a terminal shows the question, too."
        }
        Notice::Answered(Answer::Once) => "Allowed; the run continues. You can close this page.",
        Notice::Answered(Answer::Always) => {
            "Allowed from now on; the run continues. You can close this page."
        }
        Notice::Answered(Answer::Abort) => "Denied; the run was ended. You can close this page.",
    };
    document(&format!("<p>{text}</p>"))
}

fn document(body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>pml</title><style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )
}

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AP-02: no text of a call becomes markup.
    #[test]
    fn texts_are_not_markup() {
        let hostile = "</pre><script>alert(1)</script><img src=x onerror='x'>\"&";
        let shown = Shown {
            workflow_id: "wl_1".to_owned(),
            text: hostile.to_owned(),
            danger: Some(hostile.to_owned()),
            offers_always: false,
            calls: 0,
            picture: Some("</svg>\"><script>".to_owned()),
        };
        let page = question(&shown, Some("abcde"), "secret", Some(hostile));
        assert!(!page.contains("<script") && !page.contains("<img src=x"), "{page}");
        assert_eq!(page.matches("</pre>").count(), 1);
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    }
}
