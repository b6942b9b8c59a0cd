//! The arguments of `pml login`.

use clap::Args;

/// Arguments of `pml login`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pml login --url https://gw.acme.example              asks for an API key
  pml login --url https://gw.acme.example < key.txt    reads it from a file
  pml login --browser                                  signs in at the gateway's issuer")]
pub(crate) struct Login {
    /// Sign in at the issuer that the gateway names, with a browser on this or another device.
    #[arg(long)]
    pub(crate) browser: bool,
    /// The client id of `pml` at the issuer. Default: the one that the gateway names.
    #[arg(long, value_name = "ID", requires = "browser")]
    pub(crate) client_id: Option<String>,
    /// Only show the page's address; open no browser.
    #[arg(long, requires = "browser")]
    pub(crate) no_open: bool,
}
