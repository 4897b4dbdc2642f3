//! A certificate authority for a test, and its certificates in files.
//!
//! Invariant: nothing outlives the authority, and only this user can read the keys.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dafs_dat::{
    ClientCertificates, TlsClient, TlsClientFiles, TlsServer, TlsServerFiles, TlsTarget,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate authority.
pub(crate) struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Each has a unique name. Otherwise one could be mistaken for another with a wrong key.
        let name = directory.path().display().to_string();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let authority = Self { directory, issuer: Issuer::new(params, key) };
        authority.write("authority.pem", &certificate.pem());
        authority
    }

    /// Returns the file of the authority's own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// Issues a certificate with these host names, and its key.
    pub(crate) fn issue(
        &self,
        owner: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, owner);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let certificate = self.write(&format!("{owner}.pem"), &certificate.pem());
        (certificate, self.write(&format!("{owner}.key"), &key.serialize_pem()))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        let mut options = std::fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path
    }

    /// Returns a listening side whose clients must show a certificate of this authority.
    pub(crate) fn server(&self, required: bool) -> TlsServer {
        let owner = self.issue("server", &["localhost", "127.0.0.1"], |_| {});
        server_of(&owner, ClientCertificates::Required(self.file()), required)
    }

    /// Returns a connecting side with a certificate of this authority, for `localhost`.
    pub(crate) fn target(&self) -> TlsTarget {
        let owner = self.issue("client", &["client.example"], |_| {});
        target_of(&self.file(), Some(owner), "localhost")
    }
}

pub(crate) fn server_of(
    (certificate, key): &(PathBuf, PathBuf),
    clients: ClientCertificates,
    required: bool,
) -> TlsServer {
    let (certificate, key) = (certificate.clone(), key.clone());
    TlsServer::load(&TlsServerFiles { certificate, key, clients, required }).unwrap()
}

pub(crate) fn target_of(
    authorities: &Path,
    identity: Option<(PathBuf, PathBuf)>,
    name: &str,
) -> TlsTarget {
    let files = TlsClientFiles::new(authorities).identity(identity);
    TlsClient::load(&files).unwrap().target(name).unwrap()
}
