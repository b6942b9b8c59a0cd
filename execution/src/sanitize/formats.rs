//! Formats of secrets and of personal data in texts.

use std::sync::LazyLock;

use regex::Regex;

use super::REDACTED;

/// The formats that are removed, as alternatives of one regular expression. `regex` takes linear time for each.
///
/// A format with a group keeps what is in the groups `before` and `after`.
const FORMATS: &[&str] = &[
    // Blocks.
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)",
    r"AGE-SECRET-KEY-1[0-9A-Z]{20,}",
    // Tokens with a structure.
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,3}",
    r"\bpml_[a-z]+_[A-Za-z0-9]{16,}",
    // Clouds.
    r"\b(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|ANPA)[A-Z0-9]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{35}",
    r"\bGOCSPX-[0-9A-Za-z_-]{20,}",
    r"\bya29\.[0-9A-Za-z_-]{20,}",
    r"\b1//0[0-9A-Za-z_-]{30,}",
    r"\b[0-9A-Za-z_~.-]{3}8Q~[0-9A-Za-z_~.-]{30,}",
    r"\bdo[opr]_v1_[a-f0-9]{40,}",
    r"\bdapi[a-f0-9]{32}\b",
    r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{20,}",
    r"\bsbp_[a-f0-9]{30,}",
    r"\bsb_secret_[A-Za-z0-9_-]{20,}",
    r"\bHRKU-[A-Za-z0-9_-]{30,}",
    r"\bhv[sbr]\.[A-Za-z0-9_-]{20,}",
    r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}",
    r"\bfo1_[A-Za-z0-9_-]{30,}|\bFlyV1 fm[0-9]_[A-Za-z0-9+/=,_-]{40,}",
    r"\bv1\.0-[a-f0-9]{24}-[a-f0-9]{100,}",
    r"\brnd_[A-Za-z0-9]{20,}",
    // Code hosting and packages.
    r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\bgl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|agent|oas)-[A-Za-z0-9_.-]{16,}",
    r"\bATBB[A-Za-z0-9]{24,}",
    r"\bATATT3[A-Za-z0-9_=-]{40,}",
    r"\bATCTT3[A-Za-z0-9_=-]{40,}",
    r"\bnpm_[A-Za-z0-9]{36}",
    r"\bpypi-AgE[A-Za-z0-9_-]{40,}",
    r"\brubygems_[a-f0-9]{40,}",
    r"\bcio[A-Za-z0-9]{32}\b",
    r"\bdckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}",
    r"\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}",
    r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{30,}",
    // Models and searches.
    r"\bsk-(?:ant-|proj-|svcacct-|admin-|or-v1-|lf-)?[A-Za-z0-9_-]{20,}",
    r"\bhf_[A-Za-z0-9]{30,}",
    r"\br8_[A-Za-z0-9]{30,}",
    r"\bgsk_[A-Za-z0-9]{30,}",
    r"\bxai-[A-Za-z0-9]{30,}",
    r"\bpplx-[A-Za-z0-9]{30,}",
    r"\btvly-[A-Za-z0-9-]{16,}",
    r"\bfc-[a-f0-9]{32}\b",
    r"\bBSA[A-Za-z0-9_-]{24,}",
    r"\bjina_[A-Za-z0-9_-]{30,}",
    r"\bnvapi-[A-Za-z0-9_-]{40,}",
    // Payments and shops.
    r"\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}",
    r"\bwhsec_[A-Za-z0-9+/=]{20,}",
    r"\bsq0[a-z]{3}-[A-Za-z0-9_-]{20,}",
    r"\baccess_token\$(?:production|sandbox)\$[a-z0-9]{10,}\$[a-f0-9]{32}",
    r"\bshp(?:at|ss|ca|pa|tka)_[a-fA-F0-9]{32}",
    // Messages and mail.
    r"\bxox[abdeoprs]-(?:[A-Za-z0-9]+-)*[A-Za-z0-9.%-]{10,}",
    r"\bxapp-[0-9]-[A-Z0-9]+-[0-9]+-[a-f0-9]{30,}",
    r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]+",
    r"https://(?:canary\.|ptb\.)?discord(?:app)?\.com/api/webhooks/[0-9]+/[A-Za-z0-9_-]+",
    r"\b[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",
    r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{30,}",
    r"\bkey-[a-f0-9]{32}\b",
    r"\b[a-f0-9]{32}-us[0-9]{1,2}\b",
    r"\b(?:AC|SK)[a-f0-9]{32}\b",
    r"\bxkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}",
    r"\bre_[A-Za-z0-9]{8,}_[A-Za-z0-9]{20,}",
    // Work tools and monitoring.
    r"\blin_(?:api|oauth)_[A-Za-z0-9]{30,}",
    r"\b(?:secret|ntn)_[A-Za-z0-9]{40,}",
    r"\bfig[dour]+_[A-Za-z0-9_-]{30,}",
    r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{64}",
    r"\bgl(?:sa|c)_[A-Za-z0-9_+/=]{30,}",
    r"\bNRAK-[A-Z0-9]{27}",
    r"\bsntry[su]_[A-Za-z0-9_+/=-]{30,}",
    r"\bsl\.[A-Za-z0-9_-]{60,}",
    r"\bEAA[A-Za-z0-9]{80,}",
    r"\bEZ(?:AK|TK)[A-Za-z0-9]{50,}",
    r"\bphx_[A-Za-z0-9]{30,}",
    r"\bpat-(?:na1|eu1)-[a-f0-9-]{36}",
    // Keys in addresses and headers.
    r"(?P<before>\b[A-Za-z][A-Za-z0-9+.-]{1,30}://)[^\s/@:]*:[^\s/@]+(?P<after>@)",
    r"(?P<before2>(?i:\b(?:proxy-)?authorization['\x22]?\s*[:=]\s*['\x22]?(?:basic|bearer|token|digest|negotiate|apikey|bot)?\s*))[^\s'\x22]{4,}[^\r\n'\x22]*",
    r"(?P<before3>(?i:\b(?:bearer|basic)\s+))[A-Za-z0-9._~+/=-]{12,}",
    r"(?P<before4>(?i:\b(?:set-)?cookie\s*:\s*))[^\r\n]+",
    r"(?P<before5>(?i:[?&;](?:[a-z0-9_.-]*(?:token|secret|password|passwd|signature|api[_-]?key|access[_-]?key|credential|session[_-]?id)|sig|key|pwd|code|auth|x-amz-[a-z-]*)=))[^&#\s'\x22]+",
    // Assignments: `DB_PASSWORD=…`, `api-key: "…"`, `AccountKey=…`.
    r#"(?P<before6>(?i:\b[a-z0-9_.-]{0,60}(?:password|passwd|passphrase|pwd|secret|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|secret[_-]?key|auth[_-]?token|access[_-]?token|refresh[_-]?token|session[_-]?token|[_-]token|credentials?)['"]?\s*(?:=>|[:=])\s*['"]?))[^\s'",;&]{3,}"#,
    // Personal data.
    r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+\b",
    r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b",
    r"(?:\+[1-9][0-9]{0,2}[ .-]?)(?:\(?[0-9]{1,4}\)?[ .-]?){2,5}[0-9]{2,4}\b",
    r"\([0-9]{3}\) ?[0-9]{3}[ .-][0-9]{4}\b",
];

/// The groups whose text is kept.
const KEPT: &[&str] = &["before", "before2", "before3", "before4", "before5", "before6"];

static SECRETS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern: Vec<String> = FORMATS.iter().map(|format| format!("(?:{format})")).collect();
    Regex::new(&pattern.join("|")).expect("the formats are valid regular expressions")
});

/// Digits in groups, as on a card or in an account number.
static GROUPS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{2,4}){3,8}\b|\b[0-9](?:[ -]?[0-9]){12,18}\b")
        .expect("it is a valid regular expression")
});

/// Removes what looks like a secret or personal data from a text.
pub(super) fn clean_text(text: &str) -> String {
    let clean = SECRETS.replace_all(text, |found: &regex::Captures<'_>| {
        let kept = |name: &&str| found.name(name).map(|group| group.as_str());
        let before = KEPT.iter().find_map(kept).unwrap_or_default();
        let after = found.name("after").map_or("", |group| group.as_str());
        format!("{before}{REDACTED}{after}")
    });
    let clean = GROUPS.replace_all(&clean, |found: &regex::Captures<'_>| {
        let text = &found[0];
        if is_card(text) || is_iban(text) { REDACTED.to_owned() } else { text.to_owned() }
    });
    clean.into_owned()
}

/// Returns whether a text is the number of a payment card: issuer, length and check digit (ISO/IEC 7812).
pub(super) fn is_card(text: &str) -> bool {
    let separators = |c: char| matches!(c, ' ' | '-');
    let digits: Vec<u32> =
        text.chars().filter(|c| !separators(*c)).map_while(|c| c.to_digit(10)).collect();
    if digits.len() != text.chars().filter(|c| !separators(*c)).count() {
        return false;
    }
    let start = |count: usize| digits.iter().take(count).fold(0, |sum, digit| sum * 10 + digit);
    let is_issued = match digits.len() {
        // Times in milliseconds have 13 digits, so Visa's old length is left out.
        14 => start(2) == 36 || start(2) == 38 || (300..=305).contains(&start(3)),
        15 => matches!(start(2), 34 | 37),
        16 => {
            start(1) == 4
                || (51..=55).contains(&start(2))
                || (2221..=2720).contains(&start(4))
                || start(4) == 6011
                || start(2) == 65
                || (3528..=3589).contains(&start(4))
        }
        19 => start(1) == 4 || start(2) == 62,
        _ => false,
    };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match place % 2 {
            0 => *digit,
            _ if *digit > 4 => 2 * digit - 9,
            _ => 2 * digit,
        })
        .sum();
    is_issued && sum.is_multiple_of(10)
}

/// Returns whether a text is an International Bank Account Number (ISO 13616): its check digits are right.
fn is_iban(text: &str) -> bool {
    let compact: Vec<char> = text.chars().filter(|c| *c != ' ').collect();
    if !(15..=34).contains(&compact.len()) || !compact[0].is_ascii_alphabetic() {
        return false;
    }
    let rest = compact[4..].iter().chain(&compact[..4]).try_fold(0_u32, |rest, c| {
        let value = c.to_digit(36)?;
        Some((rest * if value > 9 { 100 } else { 10 } + value) % 97)
    });
    rest == Some(1)
}
