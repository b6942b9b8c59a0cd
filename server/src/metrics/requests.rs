//! HTTP requests, by route.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::MatchedPath;
use axum::http::{Method, StatusCode};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry,
};

use super::label::family;
use super::{SECONDS, registered};

/// The methods that are distinguished, and the word for all others.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"];
/// The classes of answers. A request is `aborted` if its client leaves before the answer begins.
const STATUSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "aborted"];
/// The index of `aborted`.
const ABORTED: usize = STATUSES.len() - 1;
/// The route of paths that match no route, and of routes without a template of their own.
const NONE: usize = 0;

/// Counts HTTP requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Requests(Arc<Shared>);

struct Shared {
    /// By the router's template: an index of `routes`.
    known: HashMap<String, usize>,
    /// The templates' labels and counters.
    routes: Vec<(String, [Slot; METHODS.len()])>,
    counts: IntCounterVec,
    durations: HistogramVec,
    in_progress: IntGauge,
}

/// The counters of one route and method. They are created at the first such request, because most pairs never occur.
#[derive(Default)]
struct Slot {
    statuses: [OnceLock<IntCounter>; STATUSES.len()],
    duration: OnceLock<Histogram>,
}

impl Requests {
    /// Creates the counters of these routes.
    pub(super) fn new(registry: &Registry, templates: &[String]) -> Self {
        let counts = family(
            registry,
            "pml_http_requests_total",
            "HTTP requests, by method, route template and class of the status.",
            &["method", "route", "status"],
        );
        let options = HistogramOpts::new(
            "pml_http_request_duration_seconds",
            "The time from the head of a request to the head of its answer.",
        );
        let durations = HistogramVec::new(options.buckets(SECONDS.to_vec()), &["method", "route"])
            .expect("the name and labels are valid");
        let in_progress = IntGauge::new(
            "pml_http_requests_in_progress",
            "HTTP requests whose answer has not begun.",
        );
        let mut routes = vec![("none".to_owned(), <[Slot; METHODS.len()]>::default())];
        let mut known = HashMap::new();
        for template in templates {
            // A route may have several methods.
            if known.contains_key(template) {
                continue;
            }
            for spelling in spellings(template) {
                known.entry(spelling).or_insert(routes.len());
            }
            routes.push((template.clone(), Default::default()));
        }
        Self(Arc::new(Shared {
            known,
            routes,
            counts,
            durations: registered(registry, durations),
            in_progress: registered(registry, in_progress.expect("the name is valid")),
        }))
    }

    /// Begins to count a request. Dropping the returned value counts it as aborted.
    pub(crate) fn begin(&self, method: &Method, route: Option<&MatchedPath>) -> RequestCount {
        self.0.in_progress.inc();
        let route = route.and_then(|path| self.0.known.get(path.as_str())).copied();
        RequestCount {
            shared: Arc::clone(&self.0),
            route: route.unwrap_or(NONE),
            method: method_index(method),
            began: Instant::now(),
            status: ABORTED,
        }
    }
}

/// A request in progress.
pub(crate) struct RequestCount {
    shared: Arc<Shared>,
    route: usize,
    method: usize,
    began: Instant,
    status: usize,
}

impl RequestCount {
    /// Counts the request with the status of its answer.
    pub(crate) fn answered(mut self, status: StatusCode) {
        // A `StatusCode` is from 100 to 999.
        self.status = usize::from(status.as_u16() / 100 - 1).min(ABORTED - 1);
    }
}

impl Drop for RequestCount {
    fn drop(&mut self) {
        let Shared { routes, counts, durations, in_progress, .. } = &*self.shared;
        let (route, methods) = &routes[self.route];
        let (slot, method) = (&methods[self.method], METHODS[self.method]);
        let count = || counts.with_label_values(&[method, route, STATUSES[self.status]]);
        slot.statuses[self.status].get_or_init(count).inc();
        let duration = slot.duration.get_or_init(|| durations.with_label_values(&[method, route]));
        duration.observe(self.began.elapsed().as_secs_f64());
        in_progress.dec();
    }
}

fn method_index(method: &Method) -> usize {
    let other = METHODS.len() - 1;
    METHODS[..other].iter().position(|known| *known == method.as_str()).unwrap_or(other)
}

/// Returns the templates that are counted as this one: the official registry's API has its routes in two versions, each
/// also with a slash at the end.
fn spellings(template: &str) -> Vec<String> {
    let mut all = vec![template.to_owned()];
    if template.contains("/v0.1/") {
        let old = template.replace("/v0.1/", "/v0/");
        all.extend([format!("{template}/"), format!("{old}/"), old]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_and_statuses_are_a_closed_set() {
        let registry = Registry::new();
        let requests = Requests::new(&registry, &["/mcp".to_owned(), "/mcp".to_owned()]);
        for method in ["GET", "POST", "BREW", "get", "PROPFIND"] {
            let begin = || requests.begin(&method.parse().unwrap(), None);
            begin().answered(StatusCode::from_u16(999).unwrap());
            begin().answered(StatusCode::OK);
            drop(begin());
        }
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let line = |method: &str, status: &str| {
            format!(
                "pml_http_requests_total{{method=\"{method}\",route=\"none\",status=\"{status}\"}}"
            )
        };
        for (method, count) in [("GET", 1), ("POST", 1), ("other", 3)] {
            for status in ["2xx", "5xx", "aborted"] {
                let line = format!("{} {count}\n", line(method, status));
                assert!(text.contains(&line), "{line}{text}");
            }
        }
        assert_eq!(text.matches("pml_http_requests_total{").count(), 9, "{text}");
        assert!(text.contains("pml_http_requests_in_progress 0\n"), "{text}");
        assert!(!text.contains("BREW"), "{text}");
    }

    #[test]
    fn old_spellings_are_counted_as_their_route() {
        let list = "/v0.1/servers".to_owned();
        assert_eq!(
            spellings(&list),
            ["/v0.1/servers", "/v0.1/servers/", "/v0/servers/", "/v0/servers"]
        );
        assert_eq!(spellings("/mcp"), ["/mcp"]);
    }
}
