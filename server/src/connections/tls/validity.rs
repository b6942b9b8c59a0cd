//! When a certificate is valid (RFC 5280, 4.1.2.5).

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode as _, Reader as _, SliceReader, Tag, Tagged as _};

/// The first and the last second of a certificate, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

impl Validity {
    /// Reads the validity of a certificate in DER form.
    ///
    /// # Errors
    /// Returns an error when it is not a certificate.
    pub(super) fn of(certificate: &[u8]) -> der::Result<Self> {
        let certificate = AnyRef::from_der(certificate)?;
        let to_be_signed = AnyRef::decode(&mut inside(certificate)?)?;
        let mut fields = inside(to_be_signed)?;
        // The version is optional, and the only field with this tag.
        let first = AnyRef::decode(&mut fields)?;
        if first.tag().is_context_specific() {
            // The serial number.
            AnyRef::decode(&mut fields)?;
        }
        // The algorithm of the signature, and the issuer.
        AnyRef::decode(&mut fields)?;
        AnyRef::decode(&mut fields)?;
        let mut times = inside(AnyRef::decode(&mut fields)?)?;
        let validity = Self { not_before: time(&mut times)?, not_after: time(&mut times)? };
        times.finish(validity)
    }
}

/// Reads what a sequence contains.
fn inside(sequence: AnyRef<'_>) -> der::Result<SliceReader<'_>> {
    sequence.tag().assert_eq(Tag::Sequence)?;
    SliceReader::new(sequence.value())
}

fn time(times: &mut SliceReader<'_>) -> der::Result<u64> {
    let time = AnyRef::decode(times)?;
    let since_1970 = match time.tag() {
        Tag::UtcTime => time.decode_as::<UtcTime>()?.to_unix_duration(),
        // From 2050 on.
        _ => time.decode_as::<GeneralizedTime>()?.to_unix_duration(),
    };
    Ok(since_1970.as_secs())
}
