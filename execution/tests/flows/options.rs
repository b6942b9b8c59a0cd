//! The `PML_TEST_*` variables.

/// The options of this run of the tests.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The share of all programs that is tested; 1 in `make soak`.
    pub(crate) scale: f64,
    /// The first seed of generated programs.
    pub(crate) seed: u64,
    /// A part of the names of the programs to test.
    pub(crate) program: Option<String>,
    /// The kind of miss to print examples of, `all`, or `unconfirmed`.
    pub(crate) miss: Option<String>,
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
        }
    }

    /// Whether the program with this name is tested.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.program.as_ref().is_none_or(|part| name.contains(part))
    }

    /// Whether all programs are tested, so that counts can be compared with bounds.
    pub(crate) fn selects_all(&self) -> bool {
        self.program.is_none()
    }

    /// Whether to print examples of a kind of miss.
    pub(crate) fn prints(&self, kind: &str) -> bool {
        self.miss.as_ref().is_some_and(|miss| miss == "all" || miss == kind)
    }
}
