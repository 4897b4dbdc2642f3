//! The optional parts of this library, which a build may leave out.
//!
//! Invariant: a call that needs an omitted part fails before it sends anything, with an error that
//! names the feature. Only the features of this crate count, even if another crate of the same
//! program enables the part in a dependency.

/// Returns the error text if this build has no TLS, and otherwise `None`.
pub(crate) fn without_tls() -> Option<String> {
    left_out(cfg!(feature = "tls"), "tls", "TLS")
}

/// Returns the error text if this build has no RDMA by verbs, and otherwise `None`.
pub(crate) fn without_verbs() -> Option<String> {
    left_out(cfg!(feature = "verbs"), "verbs", "RDMA by verbs")
}

/// Returns the error text if this build has no Kerberos, and otherwise `None`.
pub(crate) fn without_kerberos() -> Option<String> {
    left_out(cfg!(feature = "kerberos"), "kerberos", "Kerberos")
}

fn left_out(is_built: bool, feature: &str, part: &str) -> Option<String> {
    let refusal = format!(
        "this program was built without {part}: build it with feature `{feature}` of dafs-client"
    );
    (!is_built).then_some(refusal)
}

#[cfg(test)]
mod tests {
    use crate::{Client, ClientConfig, ClientError, SessionOptions};

    /// Returns the error text of connecting to a location with this scheme where no server listens.
    fn refusal(scheme: &str) -> String {
        let client = Client::new(ClientConfig::default()).unwrap();
        let location = crate::Location::parse(format!("{scheme}://127.0.0.1:1/")).unwrap();
        match client.connect(&location, &SessionOptions::default()) {
            Err(error @ ClientError::Connect { .. }) => error.to_string(),
            other => panic!("nothing listens there: {:?}", other.err()),
        }
    }

    #[test]
    fn a_build_without_tls_names_the_feature_when_tls_is_asked_for() {
        let said = refusal("dafs+tls");
        assert_eq!(said.contains("feature `tls`"), !cfg!(feature = "tls"), "{said}");
    }

    #[test]
    fn a_build_without_verbs_names_the_feature_when_rdma_is_asked_for() {
        let said = refusal("dafs+verbs");
        assert_eq!(said.contains("feature `verbs`"), !cfg!(feature = "verbs"), "{said}");
    }

    #[test]
    fn a_build_without_kerberos_names_the_feature_when_it_is_asked_for() {
        let tickets = crate::Tickets::default();
        let said = tickets.find().map(|_| ()).err().unwrap_or_default();
        assert_eq!(said.contains("feature `kerberos`"), !cfg!(feature = "kerberos"), "{said}");
    }
}
