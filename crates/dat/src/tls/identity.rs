//! The names that a certificate carries.

/// The names in a certificate. The names of a peer are verified: a configured authority has signed
/// the certificate, and the peer has the certificate's key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateIdentity {
    /// The common name of the subject.
    pub common_name: Option<String>,
    /// The host names among the subject's alternative names. Wildcards are not expanded.
    pub dns_names: Vec<String>,
    /// The URIs among the subject's alternative names, such as SPIFFE ids.
    pub uris: Vec<String>,
    /// The mail addresses among the subject's alternative names.
    pub emails: Vec<String>,
    /// The last second of the certificate's validity, in seconds since 1970.
    pub expires_at_s: i64,
}

impl CertificateIdentity {
    /// Returns all names, the common name first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let alternatives = self.dns_names.iter().chain(&self.uris).chain(&self.emails);
        self.common_name.iter().chain(alternatives).map(String::as_str)
    }
}

impl std::fmt::Display for CertificateIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names = self.names();
        let Some(first) = names.next() else { return f.write_str("a certificate without names") };
        f.write_str(first)?;
        names.try_for_each(|name| write!(f, ", {name}"))
    }
}
