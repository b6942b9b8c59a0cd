//! A server of a registry.

use std::ops::Deref;

use protocol::RegistryEntry;

use crate::origin::Origin;

/// A server that a registry describes, with the registry. An entry says nothing of where it comes from: two registries can
/// have equal ones.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RegisteredServer {
    /// Its entry.
    pub(crate) entry: RegistryEntry,
    /// The registry; `None` for the gateway.
    pub(crate) registry: Option<Origin>,
}

impl RegisteredServer {
    /// Returns a server of the gateway.
    pub(crate) fn of_gateway(entry: RegistryEntry) -> Self {
        Self { entry, registry: None }
    }
}

impl Deref for RegisteredServer {
    type Target = RegistryEntry;

    fn deref(&self) -> &RegistryEntry {
        &self.entry
    }
}
