//! TLS 1.3 for connections over TCP: what both sides are told by whoever configures them.
//!
//! `files` reads certificates and keys; `identity` is who a certificate says its owner is.
//! The records themselves are the tcp provider's.
//!
//! Invariant: no version but 1.3 is ever spoken, no session is resumed and no data is early:
//! each connection proves anew who its two ends are, before a byte of it is believed.

mod files;
mod identity;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};

pub use self::files::TlsConfigError;
use self::files::{authorities, certificates, private_key};
pub use self::identity::CertificateIdentity;

/// Files of the side that listens, all PEM.
#[derive(Clone, Debug)]
pub struct TlsServerFiles {
    /// Its certificate, and behind it those that lead to an authority.
    pub certificate: PathBuf,
    /// The certificate's key: readable by its owner alone, or owned by root and readable by
    /// a group.
    pub key: PathBuf,
    /// Which certificates clients show.
    pub clients: ClientCertificates,
    /// Whether clients without TLS are turned away.
    pub required: bool,
}

/// Which certificates clients show to the side that listens.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// None: who a client is, it says otherwise.
    Unasked,
    /// One that an authority of this file vouches for, or none.
    Optional(PathBuf),
    /// One that an authority of this file vouches for.
    Required(PathBuf),
}

/// Files of the side that connects, all PEM.
#[derive(Clone, Debug)]
pub struct TlsClientFiles {
    /// The authorities that vouch for servers.
    pub authorities: PathBuf,
    /// This side's own certificate with those behind it, and its key, for servers that ask.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The side that listens, ready to speak TLS. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsServer {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) required: bool,
    identity: Arc<CertificateIdentity>,
}

/// The side that connects, ready to speak TLS. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    identity: Option<Arc<CertificateIdentity>>,
}

/// A server to be connected to by TLS. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsTarget {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

/// Why a connection by TLS did not come about, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// A connection without TLS was turned away.
    #[error("the server takes TLS connections only")]
    Required,
    /// What listens there answers otherwise than by TLS.
    #[error("the server does not speak TLS")]
    NotSpoken,
    /// The peer's certificate proves nothing, and why.
    #[error("the peer's certificate is refused: {0}")]
    Certificate(String),
    /// The peer ended the connection with this alert.
    #[error("the peer refused the TLS connection: {0}")]
    Refused(String),
    /// The end was not the peer's: somebody may have cut the stream.
    #[error("the TLS connection was cut off without the peer's word")]
    Truncated,
    /// The peer broke TLS's rules, or this side could not keep them.
    #[error("TLS failed: {0}")]
    Protocol(String),
}

impl TlsServer {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// [`TlsConfigError`] with the file and what is wrong with it.
    pub fn load(files: &TlsServerFiles) -> Result<Self, TlsConfigError> {
        let provider = provider();
        let chain = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let identity = Arc::new(identity::of_own(&files.certificate, &chain)?);
        let mismatch = |source| TlsConfigError::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(VERSIONS)
            .map_err(mismatch)?;
        let verifier = |path: &PathBuf| {
            let roots = Arc::new(authorities(path)?);
            Ok(WebPkiClientVerifier::builder_with_provider(roots, provider.clone()))
        };
        let unusable = |path: &PathBuf, what: String| TlsConfigError::Content {
            path: path.clone(),
            what: format!("no authorities for clients: {what}"),
        };
        let builder = match &files.clients {
            ClientCertificates::Unasked => builder.with_no_client_auth(),
            ClientCertificates::Optional(path) => {
                let verifier = verifier(path)?.allow_unauthenticated().build();
                let verifier = verifier.map_err(|error| unusable(path, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            ClientCertificates::Required(path) => {
                let verifier = verifier(path)?.build();
                let verifier = verifier.map_err(|error| unusable(path, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(mismatch)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), required: files.required, identity })
    }

    /// Who this side's own certificate says it is.
    #[must_use]
    pub fn identity(&self) -> &CertificateIdentity {
        &self.identity
    }
}

impl TlsClient {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// [`TlsConfigError`] with the file and what is wrong with it.
    pub fn load(files: &TlsClientFiles) -> Result<Self, TlsConfigError> {
        let roots = authorities(&files.authorities)?;
        let unusable = |error: rustls::Error| TlsConfigError::Content {
            path: files.authorities.clone(),
            what: error.to_string(),
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(unusable)?
            .with_root_certificates(roots);
        let (mut config, identity) = match &files.identity {
            None => (builder.with_no_client_auth(), None),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let identity = Arc::new(identity::of_own(certificate, &chain)?);
                let config = builder.with_client_auth_cert(chain, private_key(key)?);
                let config = config.map_err(|source| TlsConfigError::Pair {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    source,
                })?;
                (config, Some(identity))
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), identity })
    }

    /// The server whose certificate is for `name`: a host name or an address.
    ///
    /// # Errors
    /// [`TlsConfigError::Name`] if no certificate can be for it.
    pub fn target(&self, name: &str) -> Result<TlsTarget, TlsConfigError> {
        let parsed = ServerName::try_from(name.to_owned());
        let name = parsed.map_err(|_| TlsConfigError::Name(name.to_owned()))?;
        Ok(TlsTarget { config: self.config.clone(), name })
    }

    /// Who this side's own certificate says it is, if it has one.
    #[must_use]
    pub fn identity(&self) -> Option<&CertificateIdentity> {
        self.identity.as_deref()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// How a library's error is said to whoever must act on it.
pub(crate) fn failure_of(error: rustls::Error) -> TlsFailure {
    match error {
        rustls::Error::InvalidCertificate(why) => TlsFailure::Certificate(why.to_string()),
        rustls::Error::NoCertificatesPresented => TlsFailure::Certificate("it showed none".into()),
        rustls::Error::AlertReceived(alert) => TlsFailure::Refused(describe(alert)),
        // The library may add to its list.
        other => TlsFailure::Protocol(other.to_string()),
    }
}

/// What the usual alerts mean to somebody who has certificates to mend.
fn describe(alert: rustls::AlertDescription) -> String {
    use rustls::AlertDescription as Alert;
    let what = match alert {
        Alert::CertificateRequired => "it wants a certificate of this side",
        Alert::UnknownCA => "it does not know the authority of this side's certificate",
        Alert::CertificateExpired => "this side's certificate has expired",
        Alert::BadCertificate | Alert::UnsupportedCertificate | Alert::CertificateUnknown => {
            "this side's certificate is of no use there"
        }
        Alert::CertificateRevoked => "this side's certificate was revoked",
        Alert::ProtocolVersion => "it does not speak TLS 1.3",
        Alert::NoApplicationProtocol => "it serves something else on this port",
        _ => return format!("alert {alert:?}"),
    };
    what.into()
}

const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
/// What is spoken inside (ALPN): a server of something else on this port says so at once,
/// and a certificate of ours serves no other protocol's connection.
const PROTOCOL: &[u8] = b"iwarp";
