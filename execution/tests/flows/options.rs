//! What a run of the tests is asked to do, by the environment.

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The part of all programs that is tried; 1 in `make soak`.
    pub(crate) scale: f64,
    /// The first of the seeds of programs by chance.
    pub(crate) seed: u64,
    /// A part of the name of the programs to look at.
    pub(crate) program: Option<String>,
    /// The kind of miss of which examples are shown, `all`, or `unconfirmed`.
    pub(crate) miss: Option<String>,
    /// Whether the list of what rows are known to miss is written.
    pub(crate) writes_known: bool,
}

impl Options {
    pub(crate) fn read() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let scale = variable("PML_TEST_SCALE").and_then(|text| text.parse().ok());
        Self {
            scale: scale.unwrap_or(0.1),
            seed: variable("PML_TEST_SEED").and_then(|text| text.parse().ok()).unwrap_or(1),
            program: variable("PML_TEST_PROGRAM"),
            miss: variable("PML_TEST_MISS"),
            writes_known: variable("PML_TEST_KNOWN").is_some_and(|what| what == "write"),
        }
    }

    /// Whether a program is looked at.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.program.as_ref().is_none_or(|part| name.contains(part))
    }

    /// Whether all programs are looked at, so that counts can be held against bounds.
    pub(crate) fn is_whole(&self) -> bool {
        self.program.is_none()
    }

    /// Whether examples of a kind of miss are shown.
    pub(crate) fn shows(&self, kind: &str) -> bool {
        self.miss.as_ref().is_some_and(|miss| miss == "all" || miss == kind)
    }
}
