//! Answers the requests of the browser.
//!
//! `GET /<link>` shows a question, once. `POST /answer` is its form.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::html::{self, Notice};
use super::{Page, Shared, WRONG_CODES, secret};
use crate::consent::question::Answer;
use crate::consent::question::left_out::LeftOut;

/// The maximum size of a form, in bytes.
const FORM_LIMIT: usize = 4 * 1024;

/// Headers of every response. The page loads nothing, runs no script, and is not shown in a frame.
const HEADERS: [(header::HeaderName, &str); 7] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not `no-referrer`, with which browsers do not say where a form comes from.
    (header::REFERRER_POLICY, "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The requests to the pages of a process.
pub(super) struct Requests {
    shared: Arc<Shared>,
    authority: String,
    origin: String,
}

/// What a form says.
#[derive(Default)]
struct Form {
    secret: String,
    code: String,
    answer: String,
    /// The numbers of the calls that are left out.
    without: Vec<u32>,
}

impl Requests {
    /// Creates them for a server on `authority`.
    pub(super) fn new(shared: Arc<Shared>, authority: String) -> Self {
        let origin = format!("http://{authority}");
        Self { shared, authority, origin }
    }

    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, page) = match self.page(request).await {
            Ok(page) => (StatusCode::OK, page),
            Err((status, notice)) => (status, html::notice(&notice)),
        };
        let mut response = Response::new(Full::new(Bytes::from(page)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
        if let Ok(policy) = HeaderValue::from_str(&html::content_security_policy()) {
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        response
    }

    async fn page(&self, request: Request<Incoming>) -> Result<String, (StatusCode, Notice)> {
        // Another name that leads here is that of an attacker's page (DNS rebinding).
        if only(request.headers(), &header::HOST) != Some(&self.authority) {
            return Err((StatusCode::MISDIRECTED_REQUEST, Notice::Refused));
        }
        match (request.method(), request.uri().path()) {
            // A page that knows the link could only use it up: the browser opens it for nobody but the user.
            (&Method::GET, path) if site(request.headers()).is_none_or(|site| site == b"none") => {
                self.show(path.trim_start_matches('/'))
            }
            (&Method::POST, "/answer") => self.take(request).await,
            (&Method::GET, _) => Err((StatusCode::FORBIDDEN, Notice::Refused)),
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, Notice::Refused)),
        }
    }

    /// Shows the question of a link, which works once.
    fn show(&self, link: &str) -> Result<String, (StatusCode, Notice)> {
        let mut pages = self.shared.lock();
        let page = pages.values_mut().find(|page| page.link.as_deref() == Some(link));
        let page = page.ok_or((StatusCode::NOT_FOUND, Notice::UnknownLink))?;
        page.link = None;
        Ok(page.render(None))
    }

    /// Takes the answer of a form.
    async fn take(&self, request: Request<Incoming>) -> Result<String, (StatusCode, Notice)> {
        let headers = request.headers();
        let is_own = only(headers, &header::ORIGIN) == Some(&self.origin)
            && site(headers).is_none_or(|site| site == b"same-origin");
        if !is_own {
            return Err((StatusCode::FORBIDDEN, Notice::Refused));
        }
        let body = Limited::new(request.into_body(), FORM_LIMIT).collect().await;
        let body = body.map_err(|_| (StatusCode::BAD_REQUEST, Notice::Refused))?.to_bytes();
        let form = Form::parse(&body).ok_or((StatusCode::BAD_REQUEST, Notice::Refused))?;
        let without = LeftOut::of(&form.without);
        let (id, answer) = {
            let mut pages = self.shared.lock();
            let page = pages.values_mut().find(|page| page.form.as_deref() == Some(&form.secret));
            let page = page.ok_or((StatusCode::GONE, Notice::NotOpen))?;
            // Each form answers once.
            page.form = None;
            let answer = match form.answer.as_str() {
                "later" => return Ok(page.render(Some("Nothing was answered. The run waits."))),
                "deny" => Answer::Abort,
                "once" => Answer::Once,
                "always" if page.shown.offers_always => Answer::Always,
                _ => return Err((StatusCode::BAD_REQUEST, Notice::Refused)),
            };
            if form.without.len() >= page.shown.calls.max(1) {
                return Ok(page.render(Some("All calls would be left out. Nothing was answered.")));
            }
            let is_approval = answer != Answer::Abort;
            if is_approval && page.shown.danger.is_some() && form.code.trim() != page.code {
                page.wrong_codes += 1;
                if page.wrong_codes >= WRONG_CODES {
                    return Err((StatusCode::FORBIDDEN, Notice::WrongCodes));
                }
                return Ok(page.render(Some("That is not the code. Nothing was allowed.")));
            }
            (page.shown.workflow_id.clone(), answer)
        };
        if !(self.shared.answers)(&id, answer, without) {
            return Err((StatusCode::GONE, Notice::NotOpen));
        }
        self.shared.lock().remove(&id);
        Ok(html::notice(&Notice::Answered(answer)))
    }
}

impl Page {
    /// Renders the question, with a new secret in its form.
    fn render(&mut self, message: Option<&str>) -> String {
        let secret = secret();
        let code = self.shown.danger.is_some().then_some(&*self.code);
        let page = html::question(&self.shown, code, &secret, message);
        self.form = Some(secret);
        page
    }
}

impl Form {
    /// Parses a form; `None` if a field is repeated or unknown.
    fn parse(body: &[u8]) -> Option<Self> {
        let mut form = Self::default();
        for (name, value) in url::form_urlencoded::parse(body) {
            let field = match &*name {
                "secret" => &mut form.secret,
                "code" => &mut form.code,
                "answer" => &mut form.answer,
                "without" => {
                    form.without.push(value.parse().ok()?);
                    continue;
                }
                _ => return None,
            };
            if !std::mem::replace(field, value.into_owned()).is_empty() {
                return None;
            }
        }
        Some(form)
    }
}

/// Returns what a browser says about the page that made the request (Fetch Metadata); `None` for an old one.
fn site(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get("sec-fetch-site").map(HeaderValue::as_bytes)
}

/// Returns the value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value.to_str().ok()?)
}
