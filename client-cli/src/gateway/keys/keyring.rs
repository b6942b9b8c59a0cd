//! The desktop's keyring, through libsecret's program `secret-tool`: a child process can be killed when it hangs.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use execution::processes::programs::Programs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::{ApiKey, Gateway, KEY_LIMIT, KeyError, Login, SignIn};

/// The variable that switches the keyring off.
const KEYRING_VARIABLE: &str = "PML_KEYRING";

/// The program that accesses the keyring.
const PROGRAM: &str = "secret-tool";

/// The time limit of a read. A locked keyring prompts the user for a password, but an agent may run without one.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// The time limit of a change: the user may have to type a password.
const CHANGE_LIMIT: Duration = Duration::from_secs(60);

/// The maximum size of the program's output in bytes.
const OUTPUT_LIMIT: u64 = 16 * 1024;

/// The variables that the program needs to find the user's session.
const PASSED_VARIABLES: &[&str] = &[
    "HOME",
    "LANG",
    "LC_ALL",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
];

/// The keyring of the user's session.
#[derive(Debug, Clone)]
pub(crate) struct Keyring {
    program: PathBuf,
    /// Its `PATH`.
    path: String,
}

/// Why the keyring could not be read or written, for display; never contains a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the keyring {0}")]
pub(crate) struct KeyringError(String);

impl Keyring {
    /// Finds the keyring. Returns `None` without a session bus or `secret-tool`, or if `PML_KEYRING` is `off`. A
    /// program in `roots`, the folders of the workspace, is not used.
    ///
    /// # Errors
    /// Returns [`KeyError::Setting`] for any other value of `PML_KEYRING`.
    pub(crate) fn of_user(roots: &[PathBuf]) -> Result<Option<Self>, KeyError> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        match set(KEYRING_VARIABLE).as_deref().map(str::trim) {
            None | Some("on") => {}
            Some("off") => return Ok(None),
            Some(_) => return Err(KeyError::Setting { name: KEYRING_VARIABLE }),
        }
        if set("DBUS_SESSION_BUS_ADDRESS").is_none() {
            return Ok(None);
        }
        let programs = Programs::new(set("PATH").as_deref(), roots);
        let program = programs.find(PROGRAM, Path::new("/")).ok();
        Ok(program.map(|program| Self { program: program.file, path: programs.path() }))
    }

    /// Returns the stored API key or sign-in for a gateway's origin.
    ///
    /// # Errors
    /// Returns [`KeyringError`] if there is no answer in time, or the value is neither.
    pub(crate) async fn find(&self, gateway: &Gateway) -> Result<Option<Login>, KeyringError> {
        found(&self.run(&["lookup"], gateway, None, READ_LIMIT).await?)
    }

    /// Stores the API key or the sign-in for a gateway's origin, replacing an earlier one.
    ///
    /// # Errors
    /// Returns [`KeyringError`] if it was not stored. `secret-tool` accepts at most 8 KiB.
    pub(crate) async fn store(&self, gateway: &Gateway, login: &Login) -> Result<(), KeyringError> {
        let label = format!("--label=PML key for {}", gateway.origin());
        let text = match login {
            Login::Key(key) => key.expose().to_owned(),
            Login::SignIn(sign_in) => sign_in.to_text(),
        };
        let output = self.run(&["store", &label], gateway, Some(&text), CHANGE_LIMIT).await?;
        if output.status.success() { Ok(()) } else { Err(refused(&output)) }
    }

    /// Returns whether there is a key for the origin, even in a locked keyring.
    ///
    /// # Errors
    /// Returns [`KeyringError`] when there is no answer in time.
    pub(crate) async fn has(&self, gateway: &Gateway) -> Result<bool, KeyringError> {
        let output = self.run(&["search", "--all"], gateway, None, READ_LIMIT).await?;
        // Depending on its version, it prints results on either stream.
        Ok(output.status.success() && !(output.stdout.is_empty() && output.stderr.is_empty()))
    }

    /// Deletes the key for a gateway's origin; returns whether there was one.
    ///
    /// # Errors
    /// Returns [`KeyringError`] if the key still exists, or if that is unknown.
    pub(crate) async fn delete(&self, gateway: &Gateway) -> Result<bool, KeyringError> {
        let was_there = self.has(gateway).await?;
        if was_there {
            // `clear` may leave the key in a locked keyring, so its effect is checked.
            self.run(&["clear"], gateway, None, CHANGE_LIMIT).await?;
            if self.has(gateway).await? {
                return Err(KeyringError(
                    "is locked, so the API key cannot be removed; unlock it first".to_owned(),
                ));
            }
        }
        Ok(was_there)
    }

    /// Runs the program for the entry of an origin. Secrets are passed on stdin, never as arguments.
    async fn run(
        &self,
        arguments: &[&str],
        gateway: &Gateway,
        input: Option<&str>,
        limit: Duration,
    ) -> Result<Output, KeyringError> {
        let mut command = Command::new(&self.program);
        command.args(arguments).args(["application", "pml", "origin", &gateway.origin()]);
        command.env_clear().envs(
            PASSED_VARIABLES
                .iter()
                .filter_map(|name| std::env::var_os(name).map(|value| (name, value))),
        );
        command.env("PATH", &self.path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Kills the program at the time limit.
        command.kill_on_drop(true);
        let failed = |error: std::io::Error| KeyringError(format!("cannot be used: {error}"));
        let run = async {
            let mut child = command.spawn()?;
            let (Some(mut stdin), Some(stdout), Some(stderr)) =
                (child.stdin.take(), child.stdout.take(), child.stderr.take())
            else {
                return Err(std::io::Error::other("no pipes"));
            };
            // A write fails if the program exits early; its exit status then has the reason.
            let _ = stdin.write_all(input.unwrap_or_default().as_bytes()).await;
            // `store` reads the key up to the end of its input.
            drop(stdin);
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let (mut stdout, mut stderr) = (stdout.take(OUTPUT_LIMIT), stderr.take(OUTPUT_LIMIT));
            // Concurrently: the program blocks when one of its pipes is full and nobody reads it.
            tokio::try_join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err))?;
            let status = child.wait().await?;
            Ok(Output { status, stdout: out, stderr: err })
        };
        match tokio::time::timeout(limit, run).await {
            Ok(output) => output.map_err(failed),
            Err(_) => Err(KeyringError(format!("did not answer within {} s", limit.as_secs()))),
        }
    }
}

/// Returns the API key or the sign-in that a lookup printed.
fn found(output: &Output) -> Result<Option<Login>, KeyringError> {
    if !output.status.success() {
        // `secret-tool` prints nothing for a missing key.
        return if output.stderr.is_empty() { Ok(None) } else { Err(refused(output)) };
    }
    let not_a_key = || KeyringError("contains a value that is not an API key".to_owned());
    let text = str::from_utf8(&output.stdout).map_err(|_| not_a_key())?;
    // No key begins like that.
    if text.starts_with('{') {
        let sign_in = SignIn::parse(text).ok_or_else(not_a_key)?;
        return Ok(Some(Login::SignIn(Box::new(sign_in))));
    }
    if text.len() > KEY_LIMIT {
        return Err(not_a_key());
    }
    Ok(ApiKey::new(text, "the keyring").map_err(|_| not_a_key())?.map(Login::Key))
}

/// Returns the program's error message.
fn refused(output: &Output) -> KeyringError {
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.lines().next_back().unwrap_or("secret-tool: no reason was given");
    let message = protocol::escape_text(message.strip_prefix("secret-tool: ").unwrap_or(message));
    KeyringError(format!("reported: {}", message.chars().take(200).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn only_a_missing_key_is_no_key() {
        let long = vec![b'x'; KEY_LIMIT + 1];
        for (code, stdout, stderr, expected) in [
            (0, &b"pml_key_x"[..], "", Ok(true)),
            (1, b"", "", Ok(false)),
            (1, b"", "secret-tool: locked", Err("locked")),
            (0, b"\xff\xfe", "", Err("not an API key")),
            (0, b"a b", "", Err("not an API key")),
            (0, &long, "", Err("not an API key")),
            (0, b"{\"id\": 1}", "", Err("not an API key")),
        ] {
            let (stdout, stderr) = (stdout.to_vec(), stderr.as_bytes().to_vec());
            let output = Output { status: ExitStatus::from_raw(code << 8), stdout, stderr };
            match (found(&output), expected) {
                (Ok(key), Ok(is_there)) => assert_eq!(key.is_some(), is_there, "{output:?}"),
                (Err(error), Err(reason)) => assert!(error.0.contains(reason), "{error}"),
                (found, _) => panic!("{output:?}: {}", found.is_ok()),
            }
        }
    }
}
