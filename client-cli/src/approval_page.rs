//! The page on which a person answers a question in a browser.
//!
//! The `pml` whose run waits serves it on 127.0.0.1, and has the browser open it. The link is told to nobody else, above
//! all not to the agent, and works once. The page has no script and no cookie: its form has a secret of its own, so a
//! request of another page, or of the agent, cannot answer.

mod connections;
mod html;
mod requests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::browser::Browser;
use crate::consent::question::left_out::LeftOut;
use crate::consent::question::{Answer, code};

/// The maximum number of wrong codes; after them, the page no longer answers.
const WRONG_CODES: u32 = 3;

/// A question as the page shows it.
pub(crate) struct Shown {
    /// The id of the question.
    pub(crate) workflow_id: String,
    /// The text that all channels show, with the workspace.
    pub(crate) text: String,
    /// Why it is dangerous, if it is: then a code has to be retyped.
    pub(crate) danger: Option<String>,
    /// Whether the tool can be allowed permanently.
    pub(crate) offers_always: bool,
    /// For a list of calls: their number. Some can be left out.
    pub(crate) calls: usize,
    /// A picture of the program, as SVG.
    pub(crate) picture: Option<String>,
}

/// Whether the page of a question can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The browser was started to show it.
    Now,
    /// The browser was started to show it earlier.
    Before,
    /// It cannot: there is no browser, or too many codes were wrong.
    Unusable,
}

/// Takes an answer, and the calls that it leaves out; returns whether the question was still open.
pub(crate) type Answers = Box<dyn Fn(&str, Answer, LeftOut) -> bool + Send + Sync>;

/// The pages of a process.
pub(crate) struct ApprovalPages {
    browser: Browser,
    shared: Arc<Shared>,
    /// The server, once there is a first page.
    server: OnceCell<Server>,
}

struct Server {
    /// `127.0.0.1` and its port.
    authority: String,
    _stop: DropGuard,
}

struct Shared {
    answers: Answers,
    pages: Mutex<HashMap<String, Page>>,
}

/// The page of a question that may still be open.
struct Page {
    shown: Shown,
    /// What the link has to contain; `None` once it was opened.
    link: Option<String>,
    /// What the form has to contain; `None` until the link was opened.
    form: Option<String>,
    /// What the person has to retype.
    code: String,
    wrong_codes: u32,
}

impl ApprovalPages {
    /// Creates the pages of a process, which `browser` opens.
    pub(crate) fn new(browser: Browser, answers: Answers) -> Self {
        let shared = Arc::new(Shared { answers, pages: Mutex::default() });
        Self { browser, shared, server: OnceCell::new() }
    }

    /// Has the browser open the page of a question, unless it did already; returns whether the page can be used.
    pub(crate) async fn open(&self, id: &str, show: impl FnOnce() -> Shown + Send) -> Opened {
        let Some(command) = self.browser.command() else { return Opened::Unusable };
        let server = match self.server.get_or_try_init(|| self.serve()).await {
            Ok(server) => server,
            Err(error) => {
                tracing::warn!(%error, "The page for approvals cannot be served");
                return Opened::Unusable;
            }
        };
        let link = secret();
        match self.shared.lock().entry(id.to_owned()) {
            Entry::Occupied(known) if known.get().wrong_codes < WRONG_CODES => {
                return Opened::Before;
            }
            Entry::Occupied(_) => return Opened::Unusable,
            Entry::Vacant(free) => free.insert(Page {
                shown: show(),
                link: Some(link.clone()),
                form: None,
                code: code(),
                wrong_codes: 0,
            }),
        };
        let opened = command.open(&format!("http://{}/{link}", server.authority));
        if let Err(error) = opened {
            tracing::warn!(%error, "The browser cannot be started");
            self.close(id);
            return Opened::Unusable;
        }
        Opened::Now
    }

    /// Removes the page of a question that is no longer open.
    pub(crate) fn close(&self, workflow_id: &str) {
        self.shared.lock().remove(workflow_id);
    }

    /// Starts the server, on a free port.
    async fn serve(&self) -> Result<Server, std::io::Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let authority = listener.local_addr()?.to_string();
        let stop = CancellationToken::new();
        let requests = requests::Requests::new(Arc::clone(&self.shared), authority.clone());
        tokio::spawn(connections::serve(listener, Arc::new(requests), stop.clone()));
        Ok(Server { authority, _stop: stop.drop_guard() })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns 256 random bits, for a URL.
fn secret() -> String {
    let mut bits = [0_u8; 32];
    getrandom::fill(&mut bits).expect("the kernel provides random bytes");
    BASE64_URL_SAFE_NO_PAD.encode(bits)
}
