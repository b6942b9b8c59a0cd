//! Small settings of `.pml.json` whose values have a form of their own.

use std::fmt;
use std::num::NonZeroU16;

use protocol::ToolPattern;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// The version of the file's form, as a number or a text. There is one so far.
#[derive(Debug)]
pub(super) struct Version;

/// The texts for version 1.
const VERSIONS: &[&str] = &["1", "1.0", "1.0.0"];

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VersionText)
    }
}

struct VersionText;

impl VersionText {
    fn known<E: Error>(is_known: bool, shown: &dyn fmt::Display) -> Result<Version, E> {
        // A file of a later form could contain rules that this program does not apply.
        let reason = || {
            format!(
                "version `{shown}` of this file is not known, only 1: write `\"version\": 1`, or update `pml`"
            )
        };
        if is_known { Ok(Version) } else { Err(E::custom(reason())) }
    }
}

impl Visitor<'_> for VersionText {
    type Value = Version;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the version of this file, which is 1")
    }

    fn visit_u64<E: Error>(self, version: u64) -> Result<Version, E> {
        Self::known(version == 1, &version)
    }

    fn visit_i64<E: Error>(self, version: i64) -> Result<Version, E> {
        Self::known(version == 1, &version)
    }

    fn visit_f64<E: Error>(self, version: f64) -> Result<Version, E> {
        // Written as `1.0`.
        Self::known(version == 1.0, &version)
    }

    fn visit_str<E: Error>(self, version: &str) -> Result<Version, E> {
        Self::known(VERSIONS.contains(&version), &version.escape_debug())
    }
}

/// What `pml serve` listens on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) port: Port,
}

/// A port that a program can listen on and a client be told. 0 would be a different one at each start.
#[derive(Debug)]
pub(super) struct Port(pub(super) u16);

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let port = u64::deserialize(deserializer)?;
        let valid = u16::try_from(port).ok().filter(|port| *port != 0);
        let expected = &"a port from 1 to 65535";
        valid.map(Self).ok_or_else(|| D::Error::invalid_value(Unexpected::Unsigned(port), expected))
    }
}

/// How many tools are listed if `curated_limit` is not set.
const CURATED_LIMIT: u16 = 10;

/// The tools that are listed next to the meta-tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExposeTools {
    /// Those that are known here and match one of these.
    Listed(Vec<ToolPattern>),
    /// The capabilities that were added, and those that are used most.
    Curated(Curated),
}

/// A list of tools that `pml` keeps itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Curated {
    /// What is listed.
    mode: ExposeMode,
    /// The maximum number of tools.
    #[serde(default)]
    curated_limit: Option<NonZeroU16>,
}

/// What is listed to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExposeMode {
    /// The meta-tools only.
    Toolkit,
    /// The meta-tools and the curated capabilities.
    Hybrid,
}

impl Curated {
    /// Returns the maximum number of capabilities.
    pub(crate) fn limit(&self) -> usize {
        match self.mode {
            ExposeMode::Toolkit => 0,
            ExposeMode::Hybrid => {
                usize::from(self.curated_limit.map_or(CURATED_LIMIT, NonZeroU16::get))
            }
        }
    }
}

impl Default for ExposeTools {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl ExposeTools {
    /// Returns whether it says something.
    pub(super) fn is_set(&self) -> bool {
        *self != Self::default()
    }

    /// Returns whether it can add a tool to the meta-tools.
    pub(crate) fn can_add(&self) -> bool {
        match self {
            Self::Listed(patterns) => !patterns.is_empty(),
            Self::Curated(curated) => curated.limit() > 0,
        }
    }
}

impl<'de> Deserialize<'de> for ExposeTools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        // Not an untagged enum, whose errors name no field.
        impl<'de> Visitor<'de> for Form {
            type Value = ExposeTools;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tools, or `{ \"mode\": \"hybrid\", \"curated_limit\": N }`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<ExposeTools, A::Error> {
                let listed = Vec::deserialize(SeqAccessDeserializer::new(access));
                listed.map(ExposeTools::Listed)
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<ExposeTools, A::Error> {
                let curated = Curated::deserialize(MapAccessDeserializer::new(access));
                curated.map(ExposeTools::Curated)
            }
        }
        deserializer.deserialize_any(Form)
    }
}
