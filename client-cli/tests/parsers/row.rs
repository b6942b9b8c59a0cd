//! One program and its expected behaviour.

/// A program and its expected behaviour.
pub(crate) struct Row {
    pub(crate) source: &'static str,
    pub(crate) expected: Expected,
}

/// The expected behaviour of a program.
pub(crate) enum Expected {
    /// It runs: the value as JSON, and the tools in the order of the calls.
    Runs { value: &'static str, calls: &'static str },
    /// The analysis refuses it, and so does the engine for the unchanged text.
    BothRefuse,
    /// The analysis refuses it; the engine may accept it.
    Refused,
    /// The analysis accepts it; the engine refuses it before anything runs.
    EngineRefuses,
}

/// A program that calls nothing.
pub(crate) const fn gives(source: &'static str, value: &'static str) -> Row {
    calls(source, value, "")
}

/// A program that calls these tools, in this order.
pub(crate) const fn calls(source: &'static str, value: &'static str, calls: &'static str) -> Row {
    Row { source, expected: Expected::Runs { value, calls } }
}

/// A program that both the analysis and the engine refuse.
pub(crate) const fn both_refuse(source: &'static str) -> Row {
    Row { source, expected: Expected::BothRefuse }
}

/// A program that only the engine's compiler refuses.
pub(crate) const fn engine_refuses(source: &'static str) -> Row {
    Row { source, expected: Expected::EngineRefuses }
}

/// A program that the analysis refuses, whatever the engine does.
pub(crate) const fn refused(source: &'static str) -> Row {
    Row { source, expected: Expected::Refused }
}
