//! Requests with the API key or the access token.

use protocol::{ErrorBody, ErrorCode};
use reqwest::{RequestBuilder, Response};

use super::Cloud;
use crate::gateway::keys::SignIn;
use crate::gateway::oauth::OauthError;

impl Cloud {
    /// Returns the sign-in with the tokens that were used last; `None` if there is none, or none was used.
    pub(crate) async fn sign_in(&self) -> Option<SignIn> {
        self.keys.current().await
    }

    fn no_token(&self, error: OauthError) -> ErrorBody {
        let OauthError::Unreachable(reason) = error else {
            return error.into_body(&self.gateway.to_string());
        };
        // As if the gateway did not answer: what needs no gateway runs without it.
        ErrorBody::new(
            ErrorCode::GatewayUnreachable,
            format!("the gateway at {} needs a new access token, but {reason}", self.gateway),
        )
    }

    /// Sends a request with the API key or the access token, if there is one.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, ErrorBody> {
        let failed = |error| self.no_token(error);
        let Some(bearer) = self.keys.bearer(None).await.map_err(failed)? else {
            return request.send().await.map_err(|error| self.unreachable(&error));
        };
        let again = if bearer.is_access_token() { request.try_clone() } else { None };
        let sent = request.bearer_auth(bearer.expose()).send().await;
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let Some(again) = again.filter(|_| response.status().as_u16() == 401) else {
            return Ok(response);
        };
        // The issuer may have withdrawn the token, or the clocks differ. A request that is refused with 401 had no
        // effect, so it can be sent again; once.
        match Box::pin(self.keys.bearer(Some(&bearer))).await.map_err(failed)? {
            Some(fresh) if fresh.expose() != bearer.expose() => {
                let sent = Box::pin(again.bearer_auth(fresh.expose()).send()).await;
                sent.map_err(|error| self.unreachable(&error))
            }
            _ => Ok(response),
        }
    }
}
