//! The settings of the export, which have the names that OpenTelemetry gives them.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use url::Url;

/// The variables whose values are secrets. The first of them that is set counts.
pub const NAMES_OF_SECRETS: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// How long spans are gathered before they are sent, unless `OTEL_BSP_SCHEDULE_DELAY` says otherwise.
const DELAY: Duration = Duration::from_secs(5);

/// The most spans that wait, unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise.
const QUEUE: usize = 2_048;

/// The only protocol.
const PROTOCOL: &str = "http/protobuf";

/// The samplers of the library. It would take any other name for the first one, and export everything.
const SAMPLERS: [&str; 6] = [
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
    "always_on",
    "always_off",
    "traceidratio",
];

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {what}")]
pub struct WrongSetting {
    name: &'static str,
    /// Never has the value of a secret.
    what: String,
}

/// Where spans are sent, and how.
pub struct Settings {
    /// The address that receives them.
    pub endpoint: Url,
    /// The headers of the requests. They usually contain a credential.
    pub headers: Vec<(String, String)>,
    pub(super) delay: Duration,
    pub(super) queue: usize,
}

impl Settings {
    /// Reads the settings; `None` if there is no address, or if exporting is turned off.
    ///
    /// # Errors
    /// Returns which setting is wrong.
    pub fn read(
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Option<Self>, WrongSetting> {
        // An empty variable counts as unset, by the specification.
        let set = |name| variable(name).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
        let is = |name, value: &str| set(name).is_some_and(|it| it.eq_ignore_ascii_case(value));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let (name, text, path) = match set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(text) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", text, ""),
            None => match set("OTEL_EXPORTER_OTLP_ENDPOINT") {
                Some(text) => ("OTEL_EXPORTER_OTLP_ENDPOINT", text, "/v1/traces"),
                None => return Ok(None),
            },
        };
        // The address is not shown: it may contain a password.
        let wrong = |what: &str| WrongSetting { name, what: what.to_owned() };
        let base = if path.is_empty() { text.as_str() } else { text.trim_end_matches('/') };
        let endpoint = Url::parse(&format!("{base}{path}"))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let endpoint = endpoint.ok_or_else(|| {
            wrong("not an address; write `http://HOST:4318`, or `https://…` with its path")
        })?;
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            if let Some(protocol) = set(name) {
                if protocol == PROTOCOL {
                    break;
                }
                let what = format!("only `{PROTOCOL}` is supported, usually on port 4318");
                return Err(WrongSetting { name, what });
            }
        }
        // As they are: the library does not trim them.
        let raw = |name| variable(name).filter(|text| !text.is_empty());
        let sampler = raw("OTEL_TRACES_SAMPLER");
        if sampler.as_deref().is_some_and(|sampler| !SAMPLERS.contains(&sampler)) {
            let what = format!("not one of {}", SAMPLERS.join(", "));
            return Err(WrongSetting { name: "OTEL_TRACES_SAMPLER", what });
        }
        if sampler.is_some_and(|sampler| sampler.ends_with("traceidratio")) {
            let ratio = raw("OTEL_TRACES_SAMPLER_ARG").and_then(|text| text.parse::<f64>().ok());
            if !ratio.is_some_and(|ratio| (0.0..=1.0).contains(&ratio)) {
                let what = "not a number from 0 to 1, which the sampler needs".to_owned();
                return Err(WrongSetting { name: "OTEL_TRACES_SAMPLER_ARG", what });
            }
        }
        let headers = NAMES_OF_SECRETS.into_iter().find_map(|name| Some((name, set(name)?)));
        let headers = match headers {
            Some((name, text)) => headers_of(&text).ok_or_else(|| WrongSetting {
                name,
                what: "not a list of headers; write `NAME=VALUE,NAME=VALUE`, with `%` encoding"
                    .to_owned(),
            })?,
            None => Vec::new(),
        };
        let number = |name| {
            let text = set(name);
            let number = text.map(|text| text.parse::<u32>()).transpose();
            number.map_err(|_| WrongSetting { name, what: "not a number".to_owned() })
        };
        let delay = number("OTEL_BSP_SCHEDULE_DELAY")?;
        let queue = number("OTEL_BSP_MAX_QUEUE_SIZE")?;
        Ok(Some(Self {
            endpoint,
            headers,
            delay: delay.map_or(DELAY, |ms| Duration::from_millis(ms.into())),
            // At least one, because a queue of none cannot be created.
            queue: queue
                .map_or(QUEUE, |size| usize::try_from(size).unwrap_or(QUEUE).clamp(1, 1 << 20)),
        }))
    }
}

/// Parses a list of headers, whose values are percent-encoded.
fn headers_of(text: &str) -> Option<Vec<(String, String)>> {
    let members = text.split(',').map(str::trim).filter(|member| !member.is_empty());
    let header = |member: &str| {
        let (name, value) = member.split_once('=')?;
        let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8().ok()?;
        http::HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        http::HeaderValue::from_str(&value).ok()?;
        Some((name.trim().to_owned(), value.into_owned()))
    };
    members.map(header).collect()
}

/// Describes the program that sends spans: as the variables say, else by its own name.
pub(super) fn resource(program: &'static str, version: &'static str) -> Resource {
    let version = [KeyValue::new("service.version", version)];
    let named = Resource::builder().build();
    let name = named.get(&"service.name".into()).map(|name| name.to_string());
    let builder = Resource::builder().with_attributes(version);
    match name {
        Some(name) if !name.starts_with("unknown_service") => builder.build(),
        _ => builder.with_service_name(program).build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::read(variable).map_err(|wrong| wrong.to_string())
    }

    const AT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/");

    #[test]
    fn exporting_is_off_without_an_address() {
        for off in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b")],
            &[AT, ("OTEL_SDK_DISABLED", "TRUE")],
            &[AT, ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            assert!(read(off).unwrap().is_none(), "{off:?}");
        }
        let on = read(&[AT]).unwrap().unwrap();
        assert_eq!(on.endpoint.as_str(), "http://127.0.0.1:4318/v1/traces");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c.example/x");
        assert_eq!(read(&[AT, own]).unwrap().unwrap().endpoint.as_str(), "https://c.example/x");
    }

    #[test]
    fn a_wrong_setting_is_named_without_its_value() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "canary.example"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "file:///canary"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "canary"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=canary%0Ab"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a b=canary"),
            ("OTEL_BSP_SCHEDULE_DELAY", "canary"),
        ] {
            let message = read(&[AT, (name, value)]).err().expect("it is refused");
            assert!(message.starts_with(name) && !message.contains("canary"), "{message}");
        }
        for sampler in ["canary", "ALWAYS_OFF", " always_off", "jaeger_remote"] {
            let message = read(&[AT, ("OTEL_TRACES_SAMPLER", sampler)]).err().unwrap();
            assert!(message.starts_with("OTEL_TRACES_SAMPLER: not one of "), "{message}");
        }
        let ratio = ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
        for argument in ["", "2", "-1", "NaN", "0.1 ", "canary"] {
            let message = read(&[AT, ratio, ("OTEL_TRACES_SAMPLER_ARG", argument)]).err().unwrap();
            assert!(message.starts_with("OTEL_TRACES_SAMPLER_ARG: not a number"), "{message}");
        }
        assert!(read(&[AT, ratio, ("OTEL_TRACES_SAMPLER_ARG", "0.1")]).unwrap().is_some());
    }

    #[test]
    fn headers_are_decoded() {
        let given = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20k%3D, x-team = a ,");
        let headers = read(&[AT, given]).unwrap().unwrap().headers;
        let expected = [("authorization", "Bearer k="), ("x-team", "a")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
