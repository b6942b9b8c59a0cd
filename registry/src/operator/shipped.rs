//! The catalog that ships with PML, compiled in.

use crate::entries::server_entry::CatalogServer;

/// The files of `registry/catalog/`; its README explains how they are created.
const FILES: &[&str] = &[
    include_str!("../../catalog/context7.json"),
    include_str!("../../catalog/everything.json"),
    include_str!("../../catalog/fetch.json"),
    include_str!("../../catalog/filesystem.json"),
    include_str!("../../catalog/git.json"),
    include_str!("../../catalog/memory.json"),
    include_str!("../../catalog/sequential-thinking.json"),
    include_str!("../../catalog/shell.json"),
    include_str!("../../catalog/time.json"),
    include_str!("../../catalog/web.json"),
];

/// Returns the shipped servers other than the gateway's native tools; seed them together with those.
pub fn shipped_catalog() -> Vec<CatalogServer> {
    FILES
        .iter()
        .map(|text| serde_json::from_str(text).expect("the catalog is read by a test"))
        .collect()
}
