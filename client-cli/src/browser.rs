//! Starts the user's browser.

use std::ffi::OsString;
use std::process::Stdio;

/// The variable that selects the command, or `off`.
const VARIABLE: &str = "PML_BROWSER";

/// How pages are opened.
#[derive(Debug, Clone)]
pub(crate) struct Browser(Option<Command>);

/// A command that opens a URL, which is its last argument.
#[derive(Debug, Clone)]
pub(crate) struct Command(OsString);

impl Browser {
    /// Returns that of the environment: `PML_BROWSER`, or else the desktop's own; without a desktop, none.
    pub(crate) fn of_environment() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let command = match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) if value == "off" => None,
            Some(value) => Some(value),
            None if cfg!(target_os = "macos") => Some("open".into()),
            None if is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") => Some("xdg-open".into()),
            None => None,
        };
        Self(command.map(Command))
    }

    /// Returns the command; `None` if pages are not opened.
    pub(crate) fn command(&self) -> Option<&Command> {
        self.0.as_ref()
    }
}

impl Command {
    /// Opens a URL, without waiting for the command.
    ///
    /// # Errors
    /// Returns why it cannot be started.
    pub(crate) fn open(&self, url: &str) -> Result<(), std::io::Error> {
        let mut command = tokio::process::Command::new(&self.0);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The browser stays when `pml` ends, and needs no key of it.
        command.process_group(0).env_remove("PML_API_KEY");
        let mut child = command.spawn()?;
        tokio::spawn(async move { child.wait().await });
        Ok(())
    }
}
