//! The MCP versions of gateway and CLI, as clients and as servers. Versions are dates, so they compare as strings.

use rmcp::model::ProtocolVersion;
use rmcp::service::ClientLifecycleMode;

/// The version that both programs prefer.
pub const CURRENT: &str = "2026-07-28";

/// The first stateless version: every request is independent, and its headers repeat parts of its body.
const FIRST_STATELESS: &str = "2026-07-28";

/// Returns whether a version is stateless.
pub fn is_stateless(version: &str) -> bool {
    version >= FIRST_STATELESS
}

/// Returns how a client connects: with the current version, or with the handshake of the previous one if the server
/// does not support it.
pub fn lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_version_is_that_of_the_library() {
        assert_eq!(ProtocolVersion::V_2026_07_28.to_string(), CURRENT);
        assert!(is_stateless(CURRENT));
    }

    #[test]
    fn versions_are_stateless_since_2026_07_28() {
        for (version, stateless) in
            [("2025-11-25", false), ("2026-07-28", true), ("2026-12-01", true)]
        {
            assert_eq!(is_stateless(version), stateless, "{version}");
        }
    }
}
