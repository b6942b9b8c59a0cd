//! Reading entries: by name, as a list, by search, for programs, and for the official API.

pub(crate) mod content;
pub(crate) mod discover;
pub(crate) mod entry;
pub(crate) mod entry_cache;
pub(crate) mod list;
pub(crate) mod name;
pub(crate) mod official;
pub(crate) mod resolve;
pub(crate) mod server;
pub(crate) mod server_entry;
pub(crate) mod version;
