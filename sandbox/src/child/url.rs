//! The native part of the globals `URL` and `URLSearchParams`, as the URL standard defines them.

use url::{Url, form_urlencoded, quirks};

/// Returns the parts of a URL, in the order that the script expects.
fn parts(url: &Url) -> Vec<String> {
    [
        quirks::href(url).to_owned(),
        quirks::origin(url),
        quirks::protocol(url).to_owned(),
        quirks::username(url).to_owned(),
        quirks::password(url).to_owned(),
        quirks::host(url).to_owned(),
        quirks::hostname(url).to_owned(),
        quirks::port(url).to_owned(),
        quirks::pathname(url).to_owned(),
        quirks::search(url).to_owned(),
        quirks::hash(url).to_owned(),
    ]
    .into()
}

/// Returns the parts of `text`, or `None` if it is not a URL.
pub(crate) fn parse(text: String, base: Option<String>) -> Option<Vec<String>> {
    let url = match base {
        Some(base) => Url::parse(&base).ok()?.join(&text),
        None => Url::parse(&text),
    };
    url.ok().as_ref().map(parts)
}

/// Returns the parts of `text` after setting one of them. An invalid value changes nothing.
pub(crate) fn change(text: String, part: String, value: String) -> Option<Vec<String>> {
    let mut url = Url::parse(&text).ok()?;
    // The standard ignores an invalid value of a part; only a whole URL must be valid.
    let _ = match part.as_str() {
        "href" => {
            quirks::set_href(&mut url, &value).ok()?;
            Ok(())
        }
        "protocol" => quirks::set_protocol(&mut url, &value),
        "username" => quirks::set_username(&mut url, &value),
        "password" => quirks::set_password(&mut url, &value),
        "host" => quirks::set_host(&mut url, &value),
        "hostname" => quirks::set_hostname(&mut url, &value),
        "port" => quirks::set_port(&mut url, &value),
        "pathname" => {
            quirks::set_pathname(&mut url, &value);
            Ok(())
        }
        "search" => {
            quirks::set_search(&mut url, &value);
            Ok(())
        }
        "hash" => {
            quirks::set_hash(&mut url, &value);
            Ok(())
        }
        _ => return None,
    };
    Some(parts(&url))
}

/// Parses a query into name-value pairs.
pub(crate) fn parse_query(query: String) -> Vec<Vec<String>> {
    form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| vec![name.into_owned(), value.into_owned()])
        .collect()
}

/// Serializes name-value pairs as a query.
pub(crate) fn format_query(pairs: Vec<Vec<String>>) -> String {
    let mut out = form_urlencoded::Serializer::new(String::new());
    for pair in &pairs {
        if let [name, value] = pair.as_slice() {
            out.append_pair(name, value);
        }
    }
    out.finish()
}
