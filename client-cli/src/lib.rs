//! client-cli
