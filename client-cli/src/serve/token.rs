//! `.pml/serve-token`: what a client of `pml serve` sends.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use execution::files::atomic::Existing;
use protocol::Integrity;

use crate::workspace::Workspace;
use crate::workspace::own_folder::OwnFolder;

/// Its name in the project's own folder.
const NAME: &str = "serve-token";

/// The number of its random bits, as bytes.
const BYTES: usize = 32;

/// Why the token cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use `.pml/{NAME}`: {0}")]
pub(crate) struct TokenError(String);

/// A token. Only its hash is kept, which the comparison needs.
#[derive(Debug)]
pub(super) struct Token(Integrity);

impl Token {
    /// Reads the token of a project, or creates one.
    ///
    /// # Errors
    /// Returns [`TokenError`] for a file that somebody else can read or may have written, or that is no token.
    pub(super) fn open(workspace: &Workspace) -> Result<Self, TokenError> {
        let failed = |error: &dyn std::fmt::Display| TokenError(error.to_string());
        let folder = OwnFolder::create(workspace).map_err(|errno| failed(&errno))?;
        // First, so that the token is at no time a file that Git would add.
        folder.ignore(NAME).map_err(|error| failed(&error))?;
        if let Some(file) = folder.open_file(NAME).map_err(|error| failed(&error))? {
            return Self::read(file);
        }
        let text = random().map_err(|error| failed(&error))?;
        match folder.write(NAME, format!("{text}\n").as_bytes(), Existing::Kept) {
            Ok(()) => Ok(Self(Integrity::of(text.as_bytes()))),
            // Another `pml serve` was started at the same time.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let file = folder.open_file(NAME).map_err(|error| failed(&error))?;
                Self::read(file.ok_or_else(|| failed(&"it was deleted"))?)
            }
            Err(error) => Err(failed(&error)),
        }
    }

    fn read(file: File) -> Result<Self, TokenError> {
        let refused = |reason: &str| Err(TokenError(reason.to_owned()));
        let metadata = file.metadata().map_err(|error| TokenError(error.to_string()))?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return refused("it belongs to another user");
        }
        if metadata.mode() & 0o077 != 0 {
            return refused("others can read it; delete it, and `pml serve` creates a new one");
        }
        let mut text = String::new();
        // A line feed after the token; one more byte, so that a longer file is refused.
        let limit = BYTES as u64 * 2;
        file.take(limit)
            .read_to_string(&mut text)
            .map_err(|error| TokenError(error.to_string()))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        if bytes.is_none_or(|bytes| bytes.len() != BYTES) {
            return refused("it is not a token; delete it, and `pml serve` creates a new one");
        }
        Ok(Self(Integrity::of(text.as_bytes())))
    }

    /// Returns whether a text is the token.
    pub(super) fn is(&self, text: &str) -> bool {
        // Hashes are compared, so the time tells nothing about how many characters were right.
        Integrity::of(text.as_bytes()) == self.0
    }
}

/// Returns the text of a new token.
fn random() -> Result<String, getrandom::Error> {
    loop {
        let mut bytes = [0_u8; BYTES];
        getrandom::fill(&mut bytes)?;
        let text = BASE64_URL_SAFE_NO_PAD.encode(bytes);
        // In the command line of a client, it would be an option.
        if !text.starts_with('-') {
            return Ok(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn project() -> (tempfile::TempDir, Workspace) {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::find(Some(root.path())).unwrap();
        (root, workspace)
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn it_is_created_once_for_its_owner_only() {
        let (root, workspace) = project();
        let token = Token::open(&workspace).unwrap();
        let path = root.path().join(".pml/serve-token");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(token.is(text.trim()) && Token::open(&workspace).unwrap().is(text.trim()));
        assert!(!token.is(&text) && !token.is("") && !token.is(&text[1..43]));
        let ignored = std::fs::read_to_string(root.path().join(".pml/.gitignore")).unwrap();
        assert!(ignored.lines().any(|line| line == NAME), "{ignored}");
        let (_other, workspace) = project();
        assert!(!Token::open(&workspace).unwrap().is(text.trim()));
    }

    #[test]
    fn no_token_looks_like_an_option() {
        let tokens: Vec<String> = (0..1_000).map(|_| random().unwrap()).collect();
        assert_eq!(tokens.iter().find(|token| token.starts_with('-')), None);
        assert!(tokens.iter().any(|token| token.contains('-')));
    }

    #[test]
    fn a_file_that_is_not_a_private_token_is_refused() {
        let (root, workspace) = project();
        Token::open(&workspace).unwrap();
        let path = root.path().join(".pml/serve-token");
        let refused = || Token::open(&workspace).unwrap_err().to_string();
        let token = std::fs::read_to_string(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o666] {
            set_mode(&path, mode);
            assert!(refused().contains("others can read it"), "{mode:o}");
        }
        set_mode(&path, 0o600);
        let weak = BASE64_URL_SAFE_NO_PAD.encode([1; 16]);
        for text in ["", "\n", "secret\n", &weak, &format!("{token}{token}"), &format!(" {token}")]
        {
            std::fs::write(&path, text).unwrap();
            assert!(refused().contains("it is not a token"), "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(refused().contains("it is a symbolic link"));
    }
}
