//! Reads the files of a release, from a folder or from a web address.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{File, Manifest, ReleaseError};
use crate::http_client::{self, Credential};

/// How long one file may take.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Where releases are.
#[derive(Debug)]
pub(crate) enum Source {
    /// A folder.
    Folder(PathBuf),
    /// A web address, with a `/` at its end.
    Web(Url),
}

impl Source {
    /// Reads a place: a web address, or else the path of a folder.
    ///
    /// # Errors
    /// Returns that it is neither.
    pub(super) fn parse(place: &str) -> Result<Self, ReleaseError> {
        let unreadable = |reason: &str| ReleaseError::Unreadable {
            from: place.to_owned(),
            reason: reason.to_owned(),
        };
        if !place.contains("://") {
            return Ok(Self::Folder(PathBuf::from(place)));
        }
        let url = Url::parse(&format!("{}/", place.trim_end_matches('/')));
        let url = url.map_err(|_| unreadable("it is not a URL"))?;
        if url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || url.password().is_some()
        {
            return Err(unreadable("it has more than a host and a path"));
        }
        match url.scheme() {
            "https" => Ok(Self::Web(url)),
            // What is signed could be sent in clear, but an observer would learn which version runs here.
            "http" if http_client::is_this_machine(&url) => Ok(Self::Web(url)),
            _ => Err(unreadable("its scheme is not `https`")),
        }
    }

    /// Names a file in it.
    pub(super) fn shown(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(name).display().to_string(),
            Self::Web(url) => format!("{url}{name}"),
        }
    }

    /// Reads a small text.
    ///
    /// # Errors
    /// Returns why it cannot be read.
    pub(super) async fn text(&self, name: &str, limit: u64) -> Result<String, ReleaseError> {
        let mut text = Vec::new();
        self.read(name, limit, |part| {
            text.extend_from_slice(part);
            Ok(())
        })
        .await?;
        let from = self.shown(name);
        String::from_utf8(text)
            .map_err(|_| ReleaseError::Unreadable { from, reason: "it is not UTF-8".to_owned() })
    }

    /// Reads a file of a release, and gives it on in parts. It is what the manifest says if this succeeds.
    ///
    /// # Errors
    /// Returns why it cannot be read, or that it is something else.
    pub(crate) async fn file(
        &self,
        manifest: &Manifest,
        file: &File,
        mut take: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), ReleaseError> {
        let name = format!("{}/{}", manifest.shown(), file.name);
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        self.read(&name, file.bytes, |part| {
            hash.update(part);
            bytes += part.len() as u64;
            take(part)
        })
        .await?;
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if bytes != file.bytes || hash != file.sha256 {
            return Err(ReleaseError::Refused(format!(
                "`{}` has the SHA-256 {hash}, and the signed one is {}",
                self.shown(&name),
                file.sha256
            )));
        }
        Ok(())
    }

    async fn read(
        &self,
        name: &str,
        limit: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), ReleaseError> {
        let unreadable =
            |reason: String| ReleaseError::Unreadable { from: self.shown(name), reason };
        let mut total = 0;
        let mut bounded = |part: &[u8]| {
            total += part.len() as u64;
            match total > limit {
                true => Err(unreadable(format!("it is larger than {limit} bytes"))),
                false => take(part).map_err(unreadable),
            }
        };
        match self {
            Self::Folder(folder) => {
                // Opening a FIFO does not block, and reading one is refused.
                let opened = OpenOptions::new()
                    .read(true)
                    .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                    .open(folder.join(name));
                let mut opened = opened.map_err(|error| unreadable(error.to_string()))?;
                let is_file = opened.metadata().is_ok_and(|found| found.is_file());
                if !is_file {
                    return Err(unreadable("it is not a file".to_owned()));
                }
                let mut part = vec![0; 64 * 1024];
                loop {
                    let read =
                        opened.read(&mut part).map_err(|error| unreadable(error.to_string()))?;
                    if read == 0 {
                        return Ok(());
                    }
                    bounded(&part[..read])?;
                }
            }
            Self::Web(url) => {
                let url = url.join(name).map_err(|error| unreadable(error.to_string()))?;
                let client = http_client::builder(&url, Credential::None)
                    .map_err(|error| unreadable(error.to_string()))?
                    .timeout(LIMIT)
                    .build()
                    .map_err(|error| unreadable(error.to_string()))?;
                let failed = |error: reqwest::Error| unreadable(error.without_url().to_string());
                let mut response = client.get(url).send().await.map_err(failed)?;
                if response.status().as_u16() != 200 {
                    return Err(unreadable(format!("HTTP status {}", response.status())));
                }
                while let Some(part) = response.chunk().await.map_err(failed)? {
                    bounded(&part)?;
                }
                Ok(())
            }
        }
    }
}
