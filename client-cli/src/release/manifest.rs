//! `latest.txt`: lines of words, which a shell can read as well.

use chrono::{DateTime, Utc};
use protocol::escape_text;

use super::ReleaseError;

/// A version: three numbers.
pub(crate) type Version = (u32, u32, u32);

/// The largest file of a release, packed or unpacked, in bytes.
const FILE_LIMIT: u64 = 512 * 1024 * 1024;

/// What a release says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Its channel.
    pub(super) channel: String,
    /// Its version.
    pub(crate) version: Version,
    /// When somebody else has to say what is newest.
    pub(super) expires: DateTime<Utc>,
    /// Its files.
    files: Vec<File>,
}

/// A file of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Its name, in the folder of its version.
    pub(super) name: String,
    /// Its size in bytes.
    pub(super) bytes: u64,
    /// Its SHA-256, in hex digits.
    pub(super) sha256: String,
    /// The size of what is packed in it, in bytes.
    pub(super) unpacked: u64,
}

impl Manifest {
    /// Reads the text of a manifest, whose signature was verified.
    ///
    /// # Errors
    /// Returns what is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, ReleaseError> {
        let invalid = |reason: String| ReleaseError::Manifest(reason);
        let mut lines = text.lines();
        if lines.next() != Some("pml-release 1") {
            return Err(invalid(
                "its first line is not `pml-release 1`; install the release by hand".to_owned(),
            ));
        }
        let (mut channel, mut version, mut expires, mut files) = (None, None, None, Vec::new());
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let twice = match *words {
                ["channel", name] => channel.replace(name.to_owned()).is_some(),
                ["version", text] => {
                    let read = version_of(text).ok_or_else(|| {
                        invalid(format!("`{}` is not a version", escape_text(text)))
                    })?;
                    version.replace(read).is_some()
                }
                ["expires", text] => {
                    let read = DateTime::parse_from_rfc3339(text)
                        .map_err(|_| invalid(format!("`{}` is not a time", escape_text(text))))?;
                    expires.replace(read.with_timezone(&Utc)).is_some()
                }
                ["file", name, bytes, sha256, unpacked] => {
                    let file = File::parse(name, bytes, sha256, unpacked)
                        .ok_or_else(|| invalid(format!("`{}`", escape_text(line))))?;
                    let twice = files.iter().any(|known: &File| known.name == file.name);
                    files.push(file);
                    twice
                }
                // Added by a later version.
                _ => false,
            };
            if twice {
                return Err(invalid(format!("it has `{}` twice", escape_text(words[0]))));
            }
        }
        match (channel, version, expires) {
            (Some(channel), Some(version), Some(expires)) => {
                Ok(Self { channel, version, expires, files })
            }
            _ => Err(invalid("it lacks `channel`, `version` or `expires`".to_owned())),
        }
    }

    /// Returns the file with a program for this machine.
    ///
    /// # Errors
    /// Returns that there is none.
    pub(crate) fn program(&self, program: &str) -> Result<&File, ReleaseError> {
        let name = format!("{program}-{}-{}.gz", std::env::consts::ARCH, std::env::consts::OS);
        self.files.iter().find(|file| file.name == name).ok_or_else(|| {
            ReleaseError::Refused(format!("{} has no `{name}`: not for this machine", self.shown()))
        })
    }

    /// Returns the version as text.
    pub(crate) fn shown(&self) -> String {
        shown(self.version)
    }
}

impl File {
    /// Returns the size of what is packed in it, in bytes.
    pub(crate) fn unpacked_bytes(&self) -> u64 {
        self.unpacked
    }

    fn parse(name: &str, bytes: &str, sha256: &str, unpacked: &str) -> Option<Self> {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let size = |text: &str| text.parse::<u64>().ok().filter(|size| *size <= FILE_LIMIT);
        let is_hash = sha256.len() == 64
            && sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (is_hash && !name.is_empty() && !name.starts_with('.') && name.chars().all(is_of_name))
            .then_some(Self {
                name: name.to_owned(),
                bytes: size(bytes)?,
                sha256: sha256.to_owned(),
                unpacked: size(unpacked)?,
            })
    }
}

/// Reads a version: three numbers without leading zeros.
pub(super) fn version_of(text: &str) -> Option<Version> {
    let number = |text: &str| {
        let is_plain = text == "0" || !text.starts_with('0');
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        (is_plain && digits).then(|| text.parse().ok())?
    };
    let mut parts = text.split('.');
    let version = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    parts.next().is_none().then_some(version)
}

/// Returns a version as text.
pub(super) fn shown((major, minor, patch): Version) -> String {
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "pml-release 1\nchannel stable\nversion 1.2.3\nexpires 2027-01-01T00:00:00Z\n";

    #[test]
    fn a_manifest_is_read_strictly() {
        let hash = "a".repeat(64);
        let good = format!("{GOOD}file a.gz 10 {hash} 20\nlater word\n");
        let read = Manifest::parse(&good).unwrap();
        assert_eq!((read.version, read.files.len()), ((1, 2, 3), 1));
        for bad in [
            String::new(),
            "pml-release 2\n".to_owned(),
            GOOD.replace("1.2.3", "1.2"),
            GOOD.replace("1.2.3", "01.2.3"),
            GOOD.replace("1.2.3", "1.2.+3"),
            GOOD.replace("1.2.3", "1.2.3-rc1"),
            GOOD.replace("channel stable\n", ""),
            GOOD.replace("2027-01-01", "2027-13-01"),
            format!("{GOOD}version 9.9.9\n"),
            format!("{GOOD}file a.gz 10 {hash} 20\nfile a.gz 10 {hash} 20\n"),
            format!("{GOOD}file ../a.gz 10 {hash} 20\n"),
            format!("{GOOD}file .a 10 {hash} 20\n"),
            format!("{GOOD}file a/b 10 {hash} 20\n"),
            format!("{GOOD}file a.gz -1 {hash} 20\n"),
            format!("{GOOD}file a.gz 99999999999 {hash} 20\n"),
            format!("{GOOD}file a.gz 10 {} 20\n", "A".repeat(64)),
            format!("{GOOD}file a.gz 10 {} 20\n", "a".repeat(63)),
        ] {
            assert!(Manifest::parse(&bad).is_err(), "{bad}");
        }
    }
}
