//! Replaces the TLS configurations in a build without the feature `tls`.
//!
//! Invariant: no configuration can be created, so code that needs one never runs.

use std::convert::Infallible;
use std::sync::Arc;

use super::{CertificateIdentity, TlsClientFiles, TlsConfigError, TlsServerFiles};

/// The TLS configuration of the accepting side; a build without the feature `tls` cannot create
/// one.
#[derive(Clone, Debug)]
pub struct TlsServer {
    never: Infallible,
}

/// The TLS configuration of the connecting side; a build without the feature `tls` cannot create
/// one.
#[derive(Clone, Debug)]
pub struct TlsClient {
    never: Infallible,
}

/// A server to connect to over TLS; a build without the feature `tls` cannot create one.
#[derive(Clone, Debug)]
pub struct TlsTarget {
    pub(crate) never: Infallible,
}

impl TlsServer {
    /// Returns an error, because this build has no TLS.
    ///
    /// # Errors
    /// Always [`TlsConfigError::NotBuilt`].
    pub fn load(_files: &TlsServerFiles) -> Result<Self, TlsConfigError> {
        Err(TlsConfigError::NotBuilt)
    }

    /// Replaces the loaded files by those of `other`.
    pub fn reload(&self, _other: &Self) {
        match self.never {}
    }

    /// Returns true if connections without TLS are refused.
    pub(crate) fn is_required(&self) -> bool {
        match self.never {}
    }

    /// Returns true if clients can present certificates.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        match self.never {}
    }

    /// Returns the names in this side's own certificate.
    #[must_use]
    pub fn identity(&self) -> Arc<CertificateIdentity> {
        match self.never {}
    }
}

impl TlsClient {
    /// Returns an error, because this build has no TLS.
    ///
    /// # Errors
    /// Always [`TlsConfigError::NotBuilt`].
    pub fn load(_files: &TlsClientFiles) -> Result<Self, TlsConfigError> {
        Err(TlsConfigError::NotBuilt)
    }

    /// Returns the target for a server whose certificate must be for `name`.
    ///
    /// # Errors
    /// No errors, because a client cannot be created.
    pub fn target(&self, _name: &str) -> Result<TlsTarget, TlsConfigError> {
        match self.never {}
    }

    /// Returns the names in this side's own certificate, if it has one.
    #[must_use]
    pub fn identity(&self) -> Option<&CertificateIdentity> {
        match self.never {}
    }
}
