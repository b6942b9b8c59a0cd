//! `pml verify`: checks an exported run against keys that the reader trusts.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use protocol::{ErrorBody, ErrorCode, escape_text};
use serde_json::json;

use super::runs::export::{PREDICATE, subject};
use super::runs::{display, json as runs_json};
use super::terminal::say;
use crate::args::Verify;
use crate::attestation::{
    FILE_LIMIT, KeyError, Opened, PublicKey, Refused, SigningKey, Statement, TrustedKeys, open,
};
use crate::error::CliError;
use crate::files::{records_folder, settings_folder};
use crate::run_store::record::Status;
use crate::run_store::{CheckedExport, RunExport};

/// Runs the command.
///
/// # Errors
/// Returns why the file is refused, or that it or a key cannot be read.
pub(super) fn verify(options: &Verify) -> Result<ExitCode, CliError> {
    if let Some(file) = &options.trust_key {
        return trust(file);
    }
    let file = options.file.as_deref().ok_or_else(|| CliError::cannot_run("no file is named"))?;
    let keys = keys(&options.key)?;
    let bytes = read(file)?;
    let Opened { payload, key } = open(&bytes, &keys).map_err(refused)?;
    let statement = Statement::<RunExport>::parse(&payload, PREDICATE)
        .map_err(|reason| invalid(&format!("its statement {reason}")))?;
    let exported = &statement.predicate;
    let digest = exported.digest();
    statement
        .check_subject(&subject(&exported.run), digest)
        .map_err(|reason| invalid(&format!("its statement {reason}")))?;
    let checked = exported.check().map_err(|reason| invalid(&reason))?;
    say(&match options.json {
        true => format!("{:#}\n", to_json(exported, &checked, &key)),
        false => text(exported, &checked, &key),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Adds a key to those that are trusted.
fn trust(file: &Path) -> Result<ExitCode, CliError> {
    let key = PublicKey::read(file).map_err(unusable)?;
    trusted()?.add(key).map_err(unusable)?;
    say(&format!("Exports that the key {} signed are trusted from now on.\n", key.id()))?;
    Ok(ExitCode::SUCCESS)
}

fn trusted() -> Result<TrustedKeys, CliError> {
    let settings = settings_folder();
    let settings = settings.ok_or_else(|| CliError::cannot_run("there is no home folder"))?;
    Ok(TrustedKeys::of_user(&settings))
}

/// Returns the keys that may have signed: those that the options name, else all trusted ones and this machine's own.
fn keys(named: &[String]) -> Result<Vec<PublicKey>, CliError> {
    if named.is_empty() {
        let mut keys = trusted()?.all().map_err(unusable)?;
        if let Some(records) = records_folder() {
            keys.extend(SigningKey::find(&records).map_err(unusable)?.map(|key| key.public()));
        }
        return Ok(keys);
    }
    let mut keys = Vec::new();
    for name in named {
        let is_id = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            keys.push(PublicKey::read(Path::new(name)).map_err(unusable)?);
            continue;
        }
        let all = trusted()?.all().map_err(unusable)?;
        let key = all.into_iter().find(|key| key.id() == *name).ok_or_else(|| {
            let hint = "Get its public part from its owner, and add it with `pml verify --trust-key FILE`.";
            CliError::cannot_run(format!("the key {name} is not trusted")).with_hint(hint)
        })?;
        keys.push(key);
    }
    Ok(keys)
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let shown = escape_text(&path.to_string_lossy());
    let failed =
        |error: std::io::Error| CliError::cannot_run(format!("cannot read `{shown}`: {error}"));
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn text(exported: &RunExport, checked: &CheckedExport, key: &PublicKey) -> String {
    let RunExport { run, exported_at, pml, verified, end, records, absent, .. } = exported;
    let mut out = format!("The export is what the key {} signed.\n", key.id());
    let mut line = |name: &str, text: String| out += &format!("{name:<9} {}\n", escape_text(&text));
    line("run", run.clone());
    line("began", checked.began_at.clone());
    let ended = checked.ended.as_ref().map(|(at, status)| format!("{at}, {}", word(*status)));
    line("ended", ended.unwrap_or_else(|| "not in this export".to_owned()));
    let (first, last) = (records.first().map_or(0, |r| r.seq), records.last().map_or(0, |r| r.seq));
    line("records", format!("{}, numbers {first} to {last} of store {}", records.len(), end.store));
    line("calls", checked.calls.to_string());
    line("exported", format!("{exported_at}, by `pml` {pml}"));
    for erasure in &checked.erasures {
        out += &format!("{:<9} {}\n", "erased", display::erasure(erasure));
    }
    if !verified {
        out += "The store had a fault when the run was exported, or its end was not known.\n";
    }
    if !absent.is_empty() {
        let count = absent.len();
        let (word, are) = if count == 1 { ("content", "is") } else { ("contents", "are") };
        out += &format!("{count} {word} {are} not in the file; their hashes are:\n");
        for hash in absent {
            out += &format!("  {hash}\n");
        }
    }
    out
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Success => "completed",
        Status::Error => "failed",
    }
}

fn to_json(exported: &RunExport, checked: &CheckedExport, key: &PublicKey) -> serde_json::Value {
    json!({
        "ok": true,
        "signed_by": key.id(),
        "run": exported.run,
        "created_at": checked.began_at,
        "completed_at": checked.ended.as_ref().map(|(at, _)| at),
        "status": checked.ended.as_ref().map(|(_, status)| word(*status)),
        "calls": checked.calls,
        "records": exported.records.len(),
        "store": exported.end,
        "exported_at": exported.exported_at,
        "pml": exported.pml,
        "store_verified": exported.verified,
        "absent": exported.absent,
        "erasures": checked.erasures.iter().map(runs_json::erasure).collect::<Vec<_>>(),
    })
}

fn refused(reason: Refused) -> CliError {
    let hint = match &reason {
        Refused::NotTrusted(_) => {
            "If you know whose key that is, get its public part from them, not from the sender of the file, and add it with `pml verify --trust-key FILE`."
        }
        Refused::Form(_) | Refused::Signature(_) => "Get the file again from whoever exported it.",
    };
    failed(&reason.to_string(), hint)
}

fn invalid(reason: &str) -> CliError {
    failed(
        &format!("the file is signed, and does not hold together: {reason}"),
        "Its signer did not write it with `pml runs export`.",
    )
}

fn failed(message: &str, hint: &str) -> CliError {
    let body = ErrorBody::new(ErrorCode::IntegrityMismatch, escape_text(message));
    CliError::failed_check(body).with_hint(hint)
}

fn unusable(error: KeyError) -> CliError {
    CliError::cannot_run(format!("a key cannot be used: {error}"))
}
