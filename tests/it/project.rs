//! The project itself: its documents, layers and dependencies.

mod capsule;
mod criteria;
mod document_blocks;
mod documents;
mod layering;
mod supply_chain;
mod threats;
mod unsafe_code;
