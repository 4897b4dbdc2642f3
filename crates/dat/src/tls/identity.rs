//! The names that a certificate carries.

/// The names in a certificate. Of a peer's they are proved: an authority that was configured
/// vouches for the certificate, and the peer has its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateIdentity {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// Host names among the subject's alternative names, wildcards as they stand.
    pub dns_names: Vec<String>,
    /// URIs among them, such as SPIFFE ids.
    pub uris: Vec<String>,
    /// Mail addresses among them.
    pub emails: Vec<String>,
    /// The last second of its validity, since 1970.
    pub expires_at_s: i64,
}

impl CertificateIdentity {
    /// All names, the common one first.
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
