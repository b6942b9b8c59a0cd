//! Handles of a tenant's sessions with MCP servers behind the gateway.
//!
//! A handle is the server's own session id, encrypted for one principal, one scope and one server. It needs no table,
//! because every gateway with the master key can decrypt it. For another caller, it is refused like a handle that
//! never existed. During a rotation, the handles of both master keys can be decrypted.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use protocol::Fqdn;

use super::seal::Purpose;
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// The longest session id of a server for which a handle is created.
const MAX_SESSION_ID: usize = 1_024;
/// The longest handle: format, nonce, id and tag in base64.
const MAX_HANDLE: usize = (29 + MAX_SESSION_ID) * 4 / 3 + 4;

impl Registry {
    /// Creates the handle of a server's session for the tenant.
    ///
    /// # Errors
    /// Returns [`RegistryError::NoMasterKey`] without a master key, and
    /// [`RegistryError::Invalid`] for a session id that is too long.
    pub fn seal_session(
        &self,
        tenant: &Tenant,
        server: &Fqdn,
        url: &str,
        session: &str,
    ) -> Result<String, RegistryError> {
        if session.len() > MAX_SESSION_ID {
            let message = format!(
                "the session id has {} bytes; the limit is {MAX_SESSION_ID}",
                session.len()
            );
            return Err(RegistryError::Invalid(message));
        }
        // Any configured key will do, because `open_session` tries all of them.
        let key = self.master_keys.first().ok_or(RegistryError::NoMasterKey)?;
        let key = key.session_key().map_err(|_| RegistryError::NoMasterKey)?;
        let sealed = key.seal(&purpose(tenant, server, url)?, session.as_bytes())?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Returns the server's session id from a handle.
    ///
    /// # Errors
    /// Returns the same [`RegistryError::NotFound`] for a handle of another caller, a handle of another server, and an
    /// invalid one; [`RegistryError::NoMasterKey`] without a master key.
    pub fn open_session(
        &self,
        tenant: &Tenant,
        server: &Fqdn,
        url: &str,
        handle: &str,
    ) -> Result<String, RegistryError> {
        if self.master_keys.is_empty() {
            return Err(RegistryError::NoMasterKey);
        }
        let purpose = purpose(tenant, server, url)?;
        // The length is checked before the decoding, because any client can send a handle.
        let sealed = Some(handle)
            .filter(|handle| handle.len() <= MAX_HANDLE)
            .and_then(|handle| BASE64_URL_SAFE_NO_PAD.decode(handle).ok());
        let session = sealed.and_then(|sealed| {
            let mut keys = self.master_keys.iter().filter_map(|key| key.session_key().ok());
            let opened = keys.find_map(|key| key.open(&purpose, &sealed).ok())?;
            String::from_utf8(opened.to_vec()).ok()
        });
        session.ok_or_else(|| RegistryError::NotFound("session".to_owned()))
    }
}

fn purpose(tenant: &Tenant, server: &Fqdn, url: &str) -> Result<Purpose, RegistryError> {
    let scope = tenant.require_scope()?;
    let server = server.to_string();
    let parts = [scope.org(), scope.project(), tenant.principal_name(), &server, url];
    // The address is included: after a change of the entry, the new address must not receive a
    // session id of the old one.
    Ok(Purpose::new("mcp session", &parts))
}
