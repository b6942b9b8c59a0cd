//! Builds the gateway's parts from its settings.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use execution::addresses::{PrivateHosts, Words};
use registry::Registry;
use sandbox::{Pool, PoolConfig, SandboxError};

use crate::admission::exchanges::Exchanges;
use crate::admission::limits::Limits;
use crate::admission::memory::Memory;
use crate::admission::queue::{ProgramQueue, QueueLimits};
use crate::analyser::Analyser;
use crate::config::{Isolation, OauthSettings, Serve, Settings, Switch, address};
use crate::connections::tls::Tls;
use crate::execution::capabilities::MAX_NESTED;
use crate::identity::credentials::Credentials;
use crate::identity::metrics_token::MetricsToken;
use crate::identity::sessions::Sessions;
use crate::identity::tokens::{Claims, Tokens};
use crate::metrics::Metrics;
use crate::state::{Gateway, SharedGateway, Stopping};
use crate::traces::recorder::Recorder;
use crate::upstreams::Upstreams;
use crate::upstreams::stdio::StdioServers;
use crate::upstreams::stdio::store::Store;

/// The words for an upstream at a private address.
pub(in crate::commands) const PRIVATE: Words = Words {
    who: "the gateway",
    remedy: Cow::Borrowed("the operator can allow it with PML_UPSTREAM_PRIVATE_HOSTS"),
};

/// Builds the gateway on an open registry, and starts its threads and child processes.
///
/// # Errors
/// Returns an error when a setting is invalid, or when sealed children cannot be started here.
pub(super) async fn start(
    registry: Registry,
    (settings, serve): (&Settings, &Serve),
    tokens: Option<Tokens>,
    metrics_token: Option<MetricsToken>,
    tls: Option<Arc<Tls>>,
) -> anyhow::Result<SharedGateway> {
    let sessions = Sessions::of(&registry).await.context("cannot create sessions")?;
    let private = PrivateHosts::new(&serve.upstream_private_hosts, PRIVATE)
        .map_err(|wrong| anyhow::anyhow!("PML_UPSTREAM_PRIVATE_HOSTS: {wrong}"))?;
    let metrics = Arc::new(Metrics::new(&crate::http::templates()));
    let memory = Memory::start(Arc::clone(&metrics)).context("threads cannot be started")?;
    let upstreams = Upstreams::new(private, memory.clone(), Arc::clone(&metrics))
        .context("cannot call upstreams from this machine")?;
    // Connections with an outdated secret are closed when secrets change on any gateway.
    upstreams.follow(&registry);
    let store = Store::new(settings.stdio_dir());
    let stdio = StdioServers::new(store, &serve.stdio, memory.clone(), Arc::clone(&metrics));
    let (analyser, sandboxes, nested) =
        children(serve, &metrics).context("programs cannot be sandboxed on this machine")?;
    let limits =
        QueueLimits { running: serve.tenant_programs.into(), waiting: serve.tenant_waiting.into() };
    Ok(SharedGateway::new(Gateway {
        traces: Recorder::start(registry.clone()),
        registry,
        analyser,
        sandboxes,
        nested,
        queue: ProgramQueue::new(limits),
        upstreams,
        stdio: Arc::new(stdio),
        exchanges: Exchanges::new(Arc::clone(&metrics)),
        memory,
        anonymous_read: serve.anonymous_read == Switch::On,
        credentials: Credentials { tokens, sessions },
        limits: Limits::new(serve.rates.clone(), Arc::clone(&metrics)),
        metrics,
        metrics_token,
        tls,
        stopping: Stopping::default(),
    }))
}

/// Starts the sealed children: the analysers, the sandboxes of programs, and those of the capabilities that they call.
fn children(serve: &Serve, metrics: &Arc<Metrics>) -> Result<(Analyser, Pool, Pool), SandboxError> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let default = PoolConfig::default();
    let pool = PoolConfig {
        warm: serve.sandbox_warm.unwrap_or(default.warm),
        // The forks of one process share an address space layout.
        forks: if serve.isolation == Isolation::Strict { 1 } else { default.forks },
        // The gateway runs the programs of several tenants, so long ones make way for short ones.
        make_way: true,
        ..default
    };
    // Every running program can have one running capability per level.
    let nested =
        PoolConfig { warm: pool.warm.min(2), max_running: pool.max_running * MAX_NESTED, ..pool };
    Ok((Analyser::start(cores, Arc::clone(metrics))?, Pool::new(pool)?, Pool::new(nested)?))
}

/// Returns the token verifier, if tokens are accepted.
///
/// # Errors
/// Returns which setting is missing or invalid; an incomplete configuration is refused.
pub(in crate::commands) fn tokens(settings: &OauthSettings) -> anyhow::Result<Option<Tokens>> {
    let named = [&settings.oauth_issuer, &settings.oauth_audience, &settings.oauth_jwks_url];
    let [Some(issuer), Some(audience), Some(jwks_url)] = named else {
        // A client id alone would be published by nobody.
        if named.iter().all(|setting| setting.is_none()) && settings.oauth_cli_client_id.is_none() {
            return Ok(None);
        }
        bail!(
            "set all of PML_OAUTH_ISSUER, PML_OAUTH_AUDIENCE and PML_OAUTH_JWKS_URL, or none of them; PML_OAUTH_CLI_CLIENT_ID needs them"
        );
    };
    let claims = Claims {
        // The texts as configured, because they are compared with the claims exactly.
        issuer: address("PML_OAUTH_ISSUER", issuer)?.0,
        audience: address("PML_OAUTH_AUDIENCE", audience)?.0,
        token_type: settings.oauth_token_type.clone(),
        scope: settings.oauth_scope_claim.clone(),
        principal: settings.oauth_principal_claim.clone(),
        rights: settings.oauth_rights_claim.clone(),
        cli_client_id: settings.oauth_cli_client_id.clone(),
    };
    let (_, jwks_url) = address("PML_OAUTH_JWKS_URL", jwks_url)?;
    let max_age = Duration::from_secs(settings.oauth_keys_max_age.into());
    Tokens::new(claims, jwks_url, max_age)
        .context("could not create the HTTP client for PML_OAUTH_JWKS_URL")
        .map(Some)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        oauth: OauthSettings,
    }

    #[test]
    fn incomplete_oauth_settings_are_refused() {
        let verifier = |flags: &[&str]| {
            let line = Line::parse_from(std::iter::once(&"x").chain(flags));
            tokens(&line.oauth).map(|tokens| tokens.is_some()).map_err(|error| error.to_string())
        };
        assert_eq!(verifier(&[]), Ok(false));
        let refused = verifier(&["--oauth-issuer", "https://id.test"]).unwrap_err();
        assert!(refused.contains("PML_OAUTH_JWKS_URL"), "{refused}");
        let refused = verifier(&["--oauth-cli-client-id", "pml"]).unwrap_err();
        assert!(refused.contains("PML_OAUTH_CLI_CLIENT_ID needs them"), "{refused}");
    }
}
