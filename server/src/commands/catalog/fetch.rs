//! Reads all pages of another registry, or fails; limited in pages, servers, bytes and time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use registry::{ReadServer, read_page};
use reqwest::Url;

use crate::http_client;

/// The largest page, in bytes.
const PAGE_LIMIT: usize = 8 * 1024 * 1024;
/// The maximum number of bytes of all pages, or of a file.
const TOTAL_LIMIT: usize = 256 * 1024 * 1024;
/// The maximum number of pages.
const PAGES: usize = 5_000;
/// The maximum number of servers and versions.
const SERVERS: usize = 200_000;
/// The time limit of one page.
const PAGE_TIME: Duration = Duration::from_secs(30);
/// The time limit of the whole import.
const TOTAL_TIME: Duration = Duration::from_secs(30 * 60);

/// Everything that a registry offers.
#[derive(Default)]
pub(super) struct ReadRegistry {
    /// The servers that may go into quarantine.
    pub(super) servers: Vec<ReadServer>,
    /// The reasons of the refusals.
    pub(super) refused: Vec<String>,
    /// The number of pages.
    pub(super) pages: usize,
}

impl ReadRegistry {
    /// Adds a page and returns the cursor of the next one.
    fn take(&mut self, body: &[u8]) -> anyhow::Result<Option<String>> {
        self.pages += 1;
        let number = self.pages;
        let page = read_page(body).map_err(anyhow::Error::msg);
        let page = page.with_context(|| format!("page {number}"))?;
        // A registry that returns empty pages forever would otherwise only be stopped by the limit on pages.
        ensure!(
            page.next_cursor.is_none() || !page.servers.is_empty() || !page.refused.is_empty(),
            "page {number} is empty but announces more pages"
        );
        self.servers.extend(page.servers);
        self.refused.extend(page.refused.into_iter().map(|why| format!("page {number}, {why}")));
        let count = self.servers.len() + self.refused.len();
        ensure!(count <= SERVERS, "there are more than {SERVERS} servers");
        Ok(page.next_cursor)
    }
}

/// Reads all pages of a source.
pub(super) async fn read_all(source: &str) -> anyhow::Result<ReadRegistry> {
    if super::is_url(source)? { from_url(source).await } else { from_file(source) }
}

fn from_file(path: &str) -> anyhow::Result<ReadRegistry> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).with_context(|| format!("`{path}`"))?;
    let mut body = Vec::new();
    // One byte more than the limit shows that the file is larger.
    file.take(TOTAL_LIMIT as u64 + 1)
        .read_to_end(&mut body)
        .with_context(|| format!("`{path}`"))?;
    ensure!(body.len() <= TOTAL_LIMIT, "`{path}` has more than {TOTAL_LIMIT} bytes");
    let mut read = ReadRegistry::default();
    if body.trim_ascii_start().first() == Some(&b'[') {
        let pages: Vec<serde_json::Value> =
            serde_json::from_slice(&body).with_context(|| format!("`{path}`"))?;
        for page in pages {
            read.take(page.to_string().as_bytes())?;
        }
    } else {
        read.take(&body)?;
    }
    Ok(read)
}

async fn from_url(source: &str) -> anyhow::Result<ReadRegistry> {
    let first = servers_url(source)?;
    let client = http_client::for_named(PAGE_TIME).build()?;
    let started = Instant::now();
    let mut read = ReadRegistry::default();
    let (mut seen, mut total) = (HashSet::new(), 0);
    let mut cursor: Option<String> = None;
    loop {
        ensure!(read.pages < PAGES, "there are more than {PAGES} pages");
        ensure!(
            started.elapsed() < TOTAL_TIME,
            "it took longer than {} minutes",
            TOTAL_TIME.as_secs() / 60
        );
        let mut url = first.clone();
        if let Some(cursor) = &cursor {
            url.query_pairs_mut().append_pair("cursor", cursor);
        }
        let body = page(&client, url).await.with_context(|| format!("page {}", read.pages + 1))?;
        total += body.len();
        ensure!(total <= TOTAL_LIMIT, "the pages have more than {TOTAL_LIMIT} bytes in total");
        match read.take(&body)? {
            None => return Ok(read),
            Some(next) => {
                // Cursors in a circle would otherwise be followed up to the limit on pages.
                ensure!(
                    seen.insert(next.clone()),
                    "page {} links back to an earlier page",
                    read.pages
                );
                cursor = Some(next);
            }
        }
    }
}

async fn page(client: &reqwest::Client, url: Url) -> anyhow::Result<Vec<u8>> {
    let mut response = client.get(url).header("accept", "application/json").send().await?;
    let status = response.status();
    if status.is_redirection() {
        bail!("it answers with a redirect ({status}), which is not followed; use the target URL");
    }
    ensure!(status.is_success(), "it answers with {status}");
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        // Counted as it arrives, because `Content-Length` may be missing or wrong.
        ensure!(body.len() + chunk.len() <= PAGE_LIMIT, "it has more than {PAGE_LIMIT} bytes");
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the URL of a registry's list of servers.
fn servers_url(source: &str) -> anyhow::Result<Url> {
    let mut url = Url::parse(source).context("it is not a URL")?;
    let path = url.path().trim_end_matches('/').to_owned();
    let path = if path.ends_with("/servers") { path } else { path + "/v0.1/servers" };
    url.set_path(&path);
    // The largest page of the official API; its default is 30.
    if !url.query_pairs().any(|(name, _)| name == "limit") {
        url.query_pairs_mut().append_pair("limit", "100");
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_the_url_of_the_list() {
        for (source, expected) in [
            ("https://r.example", "https://r.example/v0.1/servers?limit=100"),
            ("https://r.example/", "https://r.example/v0.1/servers?limit=100"),
            ("http://127.0.0.1:9/r/x/", "http://127.0.0.1:9/r/x/v0.1/servers?limit=100"),
            ("https://r.example/v0/servers?limit=5", "https://r.example/v0/servers?limit=5"),
        ] {
            assert_eq!(servers_url(source).unwrap().as_str(), expected);
        }
    }
}
