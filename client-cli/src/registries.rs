//! The registries that `.pml.json` lists next to the gateway: which of them has a server of a name.
//!
//! A registry gets names only. What it answers is checked against the name, and never decides where something runs: a
//! server that is taken from one is started here, after the user has approved it.

mod answer;

use std::path::PathBuf;
use std::time::Duration;

use protocol::{ErrorBody, ErrorCode, Scope, ToolId, escape_text};
use reqwest::header::ACCEPT;

use self::answer::{Answer, Wanted};
use crate::capabilities::RegisteredServer;
use crate::gateway::keys::{Gateway, KeyPlace, KeySource};
use crate::gateway::oauth::OauthError;
use crate::http_client::{self, Credential};
use crate::origin::Origin;

/// The time limit of one request. A run waits for every registry before the one that has the server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of an answer in bytes: that of an entry that can be stored.
const ANSWER_LIMIT: usize = 4 * 1024 * 1024;

/// A name that no registry has, because it is reserved.
const PROBE: &str = "mcp";

/// The registries, in the order in which they are asked.
#[derive(Debug, Default)]
pub(crate) struct Registries {
    /// Those before the gateway.
    pub(crate) before: Vec<Registry>,
    /// Those after it.
    pub(crate) after: Vec<Registry>,
    /// The default gateway, if it is listed: without an API key it is a registry like the others.
    default: Option<Registry>,
    /// The gateway, as far as it is known.
    gateway: Option<String>,
}

/// A registry.
#[derive(Debug)]
pub(crate) struct Registry {
    origin: Origin,
    optional: bool,
    gateway: Gateway,
    keys: KeySource,
    http: reqwest::Client,
}

/// The name of a server in a registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerName {
    /// The scope, if the program names it.
    pub(crate) scope: Option<Scope>,
    /// The namespace of its tools.
    pub(crate) namespace: String,
    /// The version, if the program names it.
    pub(crate) version: Option<String>,
}

/// What a registry has under a name.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A server that can start here.
    Server(Box<RegisteredServer>),
    /// Something that cannot be used, and why.
    Unusable(String),
}

/// Why a registry did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The reason, as the rest of a sentence about the registry; escaped.
    pub(crate) reason: String,
    code: ErrorCode,
}

impl ServerName {
    /// Returns the name of the server that has a tool.
    pub(crate) fn of(id: &ToolId) -> Self {
        Self {
            scope: id.scope(),
            namespace: id.namespace().to_owned(),
            version: id.version().map(str::to_owned),
        }
    }

    /// Returns it as it is requested from a registry, without the version.
    pub(crate) fn unversioned(&self) -> String {
        match &self.scope {
            Some(scope) => format!("{scope}.{}", self.namespace),
            None => self.namespace.clone(),
        }
    }

    fn at_version(&self, name: &str) -> String {
        self.version.as_ref().map_or_else(|| name.to_owned(), |version| format!("{name}@{version}"))
    }
}

impl Registries {
    /// Prepares the registries of a list; connects only when needed. The gateway stands where the list has it, else
    /// before all others. `roots` are the folders of the workspace.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the stored keys cannot be read.
    pub(crate) fn new(
        list: impl IntoIterator<Item = (Origin, bool)>,
        gateway: Option<&Gateway>,
        roots: &[PathBuf],
    ) -> Result<Self, ErrorBody> {
        let is_default = gateway.is_some_and(Gateway::is_default);
        let gateway = gateway.map(Gateway::origin);
        let mut registries = Self { gateway, ..Self::default() };
        let mut before = Vec::new();
        let mut after = Vec::new();
        let mut has_gateway = false;
        for (origin, optional) in list {
            if registries.gateway.as_deref() == Some(origin.as_str()) {
                has_gateway = true;
                if is_default {
                    registries.default = Some(Registry::new(origin, optional, roots)?);
                }
                continue;
            }
            let registry = Registry::new(origin, optional, roots)?;
            if has_gateway { after.push(registry) } else { before.push(registry) }
        }
        // Without a place of its own, the gateway comes first.
        (registries.before, registries.after) =
            if has_gateway { (before, after) } else { (Vec::new(), before) };
        Ok(registries)
    }

    /// Returns all registries in their order, without a gateway that the user has named.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Registry> {
        self.before.iter().chain(&self.default).chain(&self.after)
    }

    /// Returns whether an origin is one of these, or that of the gateway.
    pub(crate) fn has(&self, origin: &Origin) -> bool {
        self.gateway.as_deref() == Some(origin.as_str())
            || self.all().any(|known| known.origin == *origin)
    }
}

impl Registry {
    fn new(origin: Origin, optional: bool, roots: &[PathBuf]) -> Result<Self, ErrorBody> {
        let invalid = |error: &dyn std::error::Error| {
            ErrorBody::new(ErrorCode::ConfigInvalid, error.to_string())
        };
        let gateway = Gateway::of_registry(&origin).map_err(|error| invalid(&error))?;
        let keys = KeySource::stored(&gateway, roots).map_err(|error| invalid(&error))?;
        let http = http_client::builder(&gateway.join(""), Credential::Sent)
            .map_err(|error| invalid(&error))?
            .timeout(TIMEOUT)
            .build()
            .map_err(|error| invalid(&error))?;
        Ok(Self { origin, optional, gateway, keys, http })
    }

    /// Returns where it is.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns whether it is skipped if it does not answer.
    pub(crate) fn is_optional(&self) -> bool {
        self.optional
    }

    /// Looks for a server; `actions` are the tools of it that a program calls.
    ///
    /// # Errors
    /// Returns why the registry did not answer.
    pub(crate) async fn find(&self, name: &ServerName, actions: &[&str]) -> Result<Found, Failure> {
        let wanted = Wanted { origin: &self.origin, name };
        let server = name.unversioned();
        let (status, body) = self.fetch(&name.at_version(&server)).await?;
        match wanted.server(status, &body).map_err(Failure::bad)? {
            Answer::Nothing => {}
            Answer::Found(found) => return Ok(found),
        }
        // A capability has only the name of the tool. Without this question, the next registry would be asked about a
        // name that this one has.
        for action in actions {
            let (status, body) =
                self.fetch(&name.at_version(&format!("{server}:{action}"))).await?;
            match wanted.tool(status, &body).map_err(Failure::bad)? {
                Answer::Nothing => {}
                Answer::Found(found) => return Ok(found),
            }
        }
        Ok(Found::Nothing)
    }

    /// Checks whether it answers; returns the place of the key that it was sent, if there is one.
    ///
    /// # Errors
    /// Returns why it does not.
    pub(crate) async fn probe(&self) -> Result<Option<KeyPlace>, Failure> {
        match self.fetch(PROBE).await? {
            (404, _) => Ok(self.keys.find().await.login.as_ref().map(|(_, place)| place.clone())),
            (status, _) => {
                Err(Failure::bad(format!("HTTP status {status} for a name that is reserved")))
            }
        }
    }

    /// Returns the error for a failure, about what was looked for.
    pub(crate) fn error(&self, failure: &Failure, what: &str) -> ErrorBody {
        let origin = &self.origin;
        let message = format!(
            "the registry {origin} of `.pml.json` {}, so it is not known whether it has {what}",
            failure.reason
        );
        let mut error = ErrorBody::new(failure.code, message);
        error.hint = format!(
            "To skip it when it does not answer, write {{ \"url\": \"{origin}\", \"optional\": true }} in `registries`."
        );
        error
    }

    /// Returns the status and the body of an answer.
    async fn fetch(&self, name: &str) -> Result<(u16, Vec<u8>), Failure> {
        let url = self.gateway.join(&format!("mcp/{name}"));
        let mut request = self.http.get(url).header(ACCEPT, "application/json");
        if let Some(bearer) =
            self.keys.bearer(None).await.map_err(|error| Failure::no_token(&error))?
        {
            request = request.bearer_auth(bearer.expose());
        }
        let mut response = request.send().await.map_err(|error| Failure::unreachable(&error))?;
        let status = response.status();
        if status.is_redirection() {
            let what = format!(
                "HTTP status {}, a redirect, which is not followed; write the address that it leads to",
                status.as_u16()
            );
            return Err(Failure::bad(what));
        }
        match status.as_u16() {
            200 | 404 | 410 => {}
            401 | 403 => return Err(self.unauthorized().await),
            other => return Err(Failure::bad(format!("HTTP status {other}"))),
        }
        let mut body = Vec::new();
        // Not `bytes()`, which would collect an answer of any size before it could be refused.
        while let Some(chunk) =
            response.chunk().await.map_err(|error| Failure::unreachable(&error))?
        {
            if body.len() + chunk.len() > ANSWER_LIMIT {
                let limit = ANSWER_LIMIT / (1024 * 1024);
                return Err(Failure::bad(format!("more than {limit} MiB")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status.as_u16(), body))
    }

    async fn unauthorized(&self) -> Failure {
        let reason = match &self.keys.find().await.login {
            Some((_, place)) => {
                format!(
                    "does not accept the API key or the sign-in from {}",
                    escape_text(&place.to_string())
                )
            }
            None => format!(
                "needs an API key; `pml login --url {}` stores one, for this registry only",
                self.origin
            ),
        };
        Failure { reason, code: ErrorCode::Unauthorized }
    }
}

impl Failure {
    /// An answer that is not one of a registry.
    fn bad(what: impl AsRef<str>) -> Self {
        let what: String = escape_text(what.as_ref()).chars().take(300).collect();
        let reason = format!("sent an invalid answer: {what}");
        Self { reason, code: ErrorCode::GatewayBadAnswer }
    }

    /// A sign-in without a valid access token.
    fn no_token(error: &OauthError) -> Self {
        let reason = format!("needs a new access token, but {error}");
        Self { reason, code: ErrorCode::Unauthorized }
    }

    fn unreachable(error: &reqwest::Error) -> Self {
        let code = ErrorCode::GatewayUnreachable;
        if error.is_timeout() {
            return Self { reason: format!("did not answer within {} s", TIMEOUT.as_secs()), code };
        }
        // The outermost error only says that the request failed; the innermost one has the cause.
        let mut source: &dyn std::error::Error = error;
        while let Some(inner) = source.source() {
            source = inner;
        }
        let reason = format!("cannot be reached: {}", escape_text(&source.to_string()));
        Self { reason, code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(list: &[&str], gateway: &str) -> (Vec<String>, Vec<String>) {
        let gateway = Gateway::choose(Some(gateway), None, None, None).unwrap();
        let list = list.iter().map(|text| (text.parse().unwrap(), false));
        let registries = Registries::new(list, Some(&gateway), &[]).unwrap();
        let names = |list: &[Registry]| list.iter().map(|one| one.origin.to_string()).collect();
        (names(&registries.before), names(&registries.after))
    }

    #[test]
    fn the_gateway_has_its_place_in_the_list_or_comes_first() {
        let (a, b, gateway) = ("https://a.test", "https://b.test", "https://gw.test");
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (list, before, after) in [
            (&[a, b][..], &[][..], &[a, b][..]),
            (&[a, gateway, b], &[a], &[b]),
            (&[a, b, gateway], &[a, b], &[]),
            (&[gateway, a], &[], &[a]),
            (&[], &[], &[]),
        ] {
            // A gateway may have a path, which a registry does not.
            for address in [gateway, "https://gw.test/pml"] {
                assert_eq!(places(list, address), (owned(before), owned(after)), "{list:?}");
            }
        }
    }

    #[test]
    fn the_default_gateway_is_a_registry_if_it_is_listed() {
        let default = Gateway::choose(None, None, None, None).unwrap();
        let list = |list: &[&str]| {
            let list = list.iter().map(|text| (text.parse().unwrap(), false));
            let registries = Registries::new(list, Some(&default), &[]).unwrap();
            let all: Vec<String> = registries.all().map(|one| one.origin.to_string()).collect();
            (registries.before.len(), all)
        };
        let (a, b) = ("https://a.test", "https://b.test");
        let listed = list(&[a, "https://pml.casys.ai", b]);
        let all = [a, "https://pml.casys.ai", b].map(str::to_owned).to_vec();
        assert_eq!(listed, (1, all));
        assert_eq!(list(&[a]), (0, vec![a.to_owned()]));
    }

    #[test]
    fn a_server_has_the_name_that_its_tool_says() {
        for (id, expected) in [
            ("db:query", "db"),
            ("db:query@1.2.0", "db@1.2.0"),
            ("acme.core.db:query", "acme.core.db"),
            ("acme.core.db:query@1.2.0", "acme.core.db@1.2.0"),
        ] {
            let name = ServerName::of(&id.parse().unwrap());
            assert_eq!(name.at_version(&name.unversioned()), expected);
        }
    }
}
