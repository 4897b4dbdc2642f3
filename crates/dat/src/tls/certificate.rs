//! The identity of a certificate's owner.
//!
//! Invariant: a name is kept only in the form that an authority signed, and only if it is text
//! without control characters, so that people can read it. Names that are left out do not identify
//! the peer.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::files::content;
use super::{CertificateIdentity, TlsConfigError};

impl CertificateIdentity {
    /// Returns the names in a DER certificate, or `None` if it cannot be parsed.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let mut identity = Self {
            common_name: certificate
                .subject()
                .iter_common_name()
                .next()
                .and_then(|name| readable(name.as_str().ok()?)),
            expires_at_s: certificate.validity().not_after.timestamp(),
            ..Self::default()
        };
        // A certificate that has this extension twice does not pass verification.
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        let names = alternatives.iter().flat_map(|names| &names.value.general_names);
        for name in names.take(NAMES_MAX) {
            let (list, name) = match name {
                GeneralName::DNSName(name) => (&mut identity.dns_names, name),
                GeneralName::URI(name) => (&mut identity.uris, name),
                GeneralName::RFC822Name(name) => (&mut identity.emails, name),
                // Other kinds of names are not needed.
                _ => continue,
            };
            list.extend(readable(name));
        }
        Some(identity)
    }
}

/// Returns the identity in this side's own certificate, the first certificate in its file.
pub(super) fn of_own(
    path: &Path,
    chain: &[CertificateDer<'_>],
) -> Result<CertificateIdentity, TlsConfigError> {
    let first = chain.first().and_then(|certificate| CertificateIdentity::of(certificate));
    first.ok_or_else(|| content(path, "the first certificate is malformed"))
}

fn readable(name: &str) -> Option<String> {
    let is_readable = !name.is_empty() && !name.contains(char::is_control);
    is_readable.then(|| name.to_owned())
}

/// The maximum number of names read from one certificate: more than real certificates have.
const NAMES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn names_are_told_by_their_kind() {
        let mut params = CertificateParams::new(vec!["box.example".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ann");
        let uri = SanType::URI("spiffe://example/ann".try_into().unwrap());
        let email = SanType::Rfc822Name("ann@example.org".try_into().unwrap());
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        params.subject_alt_names.extend([uri, email, address]);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let identity = CertificateIdentity::of(certificate.der()).unwrap();
        assert_eq!(identity.common_name.as_deref(), Some("ann"));
        assert_eq!(identity.dns_names, ["box.example"]);
        assert_eq!(identity.uris, ["spiffe://example/ann"]);
        assert_eq!(identity.emails, ["ann@example.org"]);
        assert!(identity.expires_at_s > 0);
        let text = identity.to_string();
        assert_eq!(text, "ann, box.example, spiffe://example/ann, ann@example.org");
    }

    #[test]
    fn what_nobody_can_read_is_no_name() {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ann\u{0}.example");
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let identity = CertificateIdentity::of(certificate.der()).unwrap();
        assert_eq!(identity.common_name, None);
    }

    #[test]
    fn any_bytes_are_a_certificate_or_none() {
        assert_eq!(CertificateIdentity::of(b""), None);
        assert_eq!(CertificateIdentity::of(&[0x30; 300]), None);
        let certificate = CertificateParams::new(vec!["a".into()]).unwrap();
        let certificate = certificate.self_signed(&KeyPair::generate().unwrap()).unwrap();
        for end in 0..certificate.der().len() {
            assert_eq!(CertificateIdentity::of(&certificate.der()[..end]), None);
        }
    }
}
