//! The certificate of the gateway's address.

use super::super::report::Report;
use super::super::serve::tls_files;
use crate::config::Serve;
use crate::connections::tls::{EXPIRES_SOON, date, now};

/// Checks the two files, if the gateway is to serve HTTPS.
pub(super) fn check(report: &mut Report, serve: &Serve) {
    let files = match tls_files(serve) {
        Ok(Some(files)) => files,
        Ok(None) => return,
        Err(error) => return report.fail(error.setting, error.reason, error.remedy),
    };
    if files.key_is_open_to_others() {
        let shown = files.key().display();
        report.warn(
            "PML_TLS_KEY_FILE",
            format!("others can read or change the private key in `{shown}`"),
            format!("run `chmod 600 {shown}`; get a new certificate if they may have read it"),
        );
    }
    let pair = match files.load() {
        Ok(pair) => pair,
        Err(error) => return report.fail(error.setting, error.reason, error.remedy),
    };
    let shown = files.certificate().display();
    let until = date(pair.validity.not_after);
    if pair.validity.not_after.saturating_sub(now()) < EXPIRES_SOON {
        report.warn(
            "PML_TLS_CERT_FILE",
            format!("the certificate in `{shown}` expires on {until}"),
            "renew it; a running gateway reads the new files within seconds",
        );
    } else {
        report.ok(
            "PML_TLS_CERT_FILE",
            format!("the certificate in `{shown}` is valid until {until}"),
        );
    }
    for host in serve.hosts().filter(|host| !pair.is_for(host)) {
        report.warn(
            "PML_TLS_CERT_FILE",
            format!("the certificate in `{shown}` is not for `{host}`: clients refuse it there"),
            "get a certificate whose subject alternative names contain it",
        );
    }
    if serve.public_url.as_ref().is_some_and(|url| url.as_str().starts_with("http:")) {
        report.warn(
            "PML_PUBLIC_URL",
            "it begins with `http:`, but the gateway serves HTTPS",
            "write `https://` and a name in the certificate",
        );
    }
}
