//! The TLS configurations of both sides, loaded from files.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};

use super::certificate::of_own;
use super::files::{authorities, certificates, private_key};
use super::{
    CertificateIdentity, ClientCertificates, TlsClientFiles, TlsConfigError, TlsFailure,
    TlsServerFiles,
};

/// The loaded TLS configuration of the accepting side. Cheap to clone. All clones use the same
/// certificate and key, which [`TlsServer::reload`] replaces while connections are open.
#[derive(Clone, Debug)]
pub struct TlsServer {
    current: Arc<RwLock<Arc<Loaded>>>,
}

/// The contents of one set of TLS files.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Arc<ServerConfig>,
    /// The same configuration for connections that carry records of ONC RPC.
    pub(crate) rpc: Arc<ServerConfig>,
    /// True if clients can present certificates.
    asks_clients: bool,
    /// True if connections without TLS are refused.
    required: bool,
    identity: Arc<CertificateIdentity>,
}

/// The loaded TLS configuration of the connecting side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    identity: Option<Arc<CertificateIdentity>>,
}

/// The TLS configuration for one server, with the server's name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsTarget {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl TlsServer {
    /// Reads and checks all files.
    ///
    /// # Errors
    /// [`TlsConfigError`] with the file and a description of the error.
    pub fn load(files: &TlsServerFiles) -> Result<Self, TlsConfigError> {
        let loaded = Arc::new(Loaded::load(files)?);
        Ok(Self { current: Arc::new(RwLock::new(loaded)) })
    }

    /// Replaces the certificate, the key and the client authorities by those of `other`. New
    /// connections of every clone use them; open connections keep those that they began with.
    pub fn reload(&self, other: &Self) {
        let new = other.current();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Returns the configuration that a new connection uses.
    pub(crate) fn current(&self) -> Arc<Loaded> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if connections without TLS are refused.
    pub(crate) fn is_required(&self) -> bool {
        self.current().required
    }

    /// Returns true if clients can present certificates, because there are authorities for them.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.current().asks_clients
    }

    /// Returns the names in this side's own current certificate.
    #[must_use]
    pub fn identity(&self) -> Arc<CertificateIdentity> {
        self.current().identity.clone()
    }
}

impl Loaded {
    fn load(files: &TlsServerFiles) -> Result<Self, TlsConfigError> {
        let provider = provider();
        let chain = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let identity = Arc::new(of_own(&files.certificate, &chain)?);
        let mismatch = |source: rustls::Error| TlsConfigError::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source: Box::new(source),
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
            what: format!("it has no usable authorities for clients: {what}"),
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
        let mut rpc = config.clone();
        rpc.alpn_protocols = vec![RPC_PROTOCOL.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            rpc: Arc::new(rpc),
            asks_clients: !matches!(files.clients, ClientCertificates::Unasked),
            required: files.required,
            identity,
        })
    }
}

impl TlsClient {
    /// Reads and checks all files.
    ///
    /// # Errors
    /// [`TlsConfigError`] with the file and a description of the error.
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
                let identity = Arc::new(of_own(certificate, &chain)?);
                let config = builder.with_client_auth_cert(chain, private_key(key)?);
                let config = config.map_err(|source| TlsConfigError::Pair {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    source: Box::new(source),
                })?;
                (config, Some(identity))
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), identity })
    }

    /// Returns the target for a server whose certificate must be for `name`, a host name or an IP
    /// address.
    ///
    /// # Errors
    /// [`TlsConfigError::Name`] if no certificate can match the name.
    pub fn target(&self, name: &str) -> Result<TlsTarget, TlsConfigError> {
        let parsed = ServerName::try_from(name.to_owned());
        let name = parsed.map_err(|_| TlsConfigError::Name(name.to_owned()))?;
        Ok(TlsTarget { config: self.config.clone(), name })
    }

    /// Returns the names in this side's own certificate, if it has one.
    #[must_use]
    pub fn identity(&self) -> Option<&CertificateIdentity> {
        self.identity.as_deref()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Converts an error of the TLS library to one that gives advice to the user.
pub(crate) fn failure_of(error: rustls::Error) -> TlsFailure {
    match error {
        rustls::Error::InvalidCertificate(why) => TlsFailure::Certificate(why.to_string()),
        rustls::Error::NoCertificatesPresented => {
            TlsFailure::Certificate("the peer showed none".into())
        }
        rustls::Error::AlertReceived(alert) => TlsFailure::Refused(describe(alert)),
        // A later version of the library may have more kinds of errors.
        other => TlsFailure::Protocol(other.to_string()),
    }
}

/// Describes the usual alerts for an administrator who must fix the certificates.
fn describe(alert: rustls::AlertDescription) -> String {
    use rustls::AlertDescription as Alert;
    let what = match alert {
        Alert::CertificateRequired => "it requires a certificate of this side",
        Alert::UnknownCA => "it does not know the authority of this side's certificate",
        Alert::CertificateExpired => "this side's certificate has expired",
        Alert::BadCertificate | Alert::UnsupportedCertificate | Alert::CertificateUnknown => {
            "it does not accept this side's certificate"
        }
        Alert::CertificateRevoked => "this side's certificate was revoked",
        Alert::ProtocolVersion => "it does not speak TLS 1.3",
        Alert::NoApplicationProtocol => "another service is on this port",
        _ => return format!("alert {alert:?}"),
    };
    what.into()
}

const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
/// The application protocol (ALPN). A server of another protocol on this port reports an error
/// immediately, and a certificate of this server cannot be misused for connections of another
/// protocol.
const PROTOCOL: &[u8] = b"iwarp";
/// The application protocol of connections that carry records of ONC RPC (RFC 9289 section 8.2).
const RPC_PROTOCOL: &[u8] = b"sunrpc";
