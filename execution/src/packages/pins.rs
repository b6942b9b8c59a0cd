//! What is known of the packages of a server before they are installed.

use protocol::ErrorBody;

use super::locked::LockedPackages;
use super::request::Request;

/// Knows from which exact packages each server starts.
pub trait Pins: std::fmt::Debug + Send + Sync {
    /// Returns what a server starts from, if that is known for this request.
    ///
    /// # Errors
    /// Returns that it is not what the user allowed.
    fn locked(&self, server: &str, request: &str) -> Result<Option<LockedPackages>, ErrorBody>;

    /// Stores what a server starts from; returns what was stored by another process in the meantime instead.
    ///
    /// # Errors
    /// Returns why it cannot be stored. Nothing is installed then.
    fn keep(&self, server: &str, packages: LockedPackages) -> Result<LockedPackages, ErrorBody>;
}

/// What is known of one server.
#[derive(Debug, Clone, Copy)]
pub struct Pinned<'a> {
    /// Who knows it; `None` for a server that is only tried.
    pub pins: Option<&'a dyn Pins>,
    /// The server's name there.
    pub server: &'a str,
}

impl Pinned<'_> {
    pub(super) fn locked(self, request: &Request) -> Result<Option<LockedPackages>, NotInstalled> {
        let locked = self.pins.map(|pins| pins.locked(self.server, &request.locked_name()));
        let locked = locked.transpose().map_err(NotInstalled::refused)?.flatten();
        if let Some(packages) = &locked {
            packages.check_fits(request)?;
        }
        Ok(locked)
    }

    pub(super) fn keep(self, packages: LockedPackages) -> Result<LockedPackages, NotInstalled> {
        match self.pins {
            Some(pins) => pins.keep(self.server, packages).map_err(NotInstalled::refused),
            None => Ok(packages),
        }
    }
}

/// Why a package is not there.
#[derive(Debug)]
pub enum NotInstalled {
    /// It cannot be installed; the reason is the rest of a sentence about the server.
    Failed(String),
    /// It may not be installed.
    Refused(Box<ErrorBody>),
}

impl NotInstalled {
    fn refused(error: ErrorBody) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl From<String> for NotInstalled {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}
