//! `pml doctor`: what holds on this machine.

use std::process::ExitCode;

use protocol::ErrorCode;
use serde_json::json;

use super::say;
use crate::args::Doctor;
use crate::error::CliError;

/// Has sealed children ask for what they must not have, and tells what became of them.
pub(super) async fn doctor(doctor: &Doctor) -> Result<ExitCode, CliError> {
    let seen = sandbox::self_test()
        .await
        .map_err(|error| CliError::from_code(ErrorCode::SandboxUnavailable, error.to_string()))?;
    if doctor.json {
        let told = json!({ "holds": seen.holds(), "layers": seen.layers, "calls": seen.calls });
        say(&format!("{told:#}\n"))?;
    } else {
        say(&seen.to_string())?;
    }
    Ok(if seen.holds() { ExitCode::SUCCESS } else { ExitCode::from(4) })
}
