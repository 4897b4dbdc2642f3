//! The part of the configuration that can change while the server runs: access rules and users'
//! passwords.
//!
//! Invariant: a reader always gets the rules and passwords of one version. A reload that fails
//! changes nothing.

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use dafs_store::Store;
use dafs_types::names::shown;

use crate::access::authorize::AccessRules;
use crate::access::exports::describe::describe;
use crate::access::one_time::OneTimeUser;
use crate::access::passwords::{PasswordError, PasswordFile};
use crate::config::{ServerConfig, ServerError};

/// The access rules and users in force, shared by the reactors, the login threads and
/// [`Reloader`]s.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    current: Arc<RwLock<LiveVersion>>,
}

/// Access rules and users that were read together and checked. [`Reloader::apply`] puts them into
/// force.
#[derive(Clone, Debug, Default)]
pub struct LiveVersion {
    rules: Arc<AccessRules>,
    passwords: Arc<PasswordFile>,
}

impl Live {
    /// Creates the first version of the rules and users.
    pub(crate) fn new(rules: AccessRules, passwords: PasswordFile) -> Self {
        let version = LiveVersion { rules: Arc::new(rules), passwords: Arc::new(passwords) };
        Self { current: Arc::new(RwLock::new(version)) }
    }

    /// Returns the current access rules.
    pub(crate) fn rules(&self) -> Arc<AccessRules> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).rules.clone()
    }

    /// Returns the current users and their password hashes.
    pub(crate) fn passwords(&self) -> Arc<PasswordFile> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).passwords.clone()
    }

    fn replace(&self, version: LiveVersion) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = version;
    }
}

/// A handle that replaces the access rules and passwords of a running server.
#[derive(Clone)]
pub struct Reloader {
    live: Live,
    store: Arc<dyn Store>,
    one_time_user: Option<OneTimeUser>,
    /// True if the server was started with rules that let clients act for other users.
    has_trusted: bool,
    /// True if NFS clients can authenticate by Kerberos.
    is_kerberized: bool,
}

impl Reloader {
    pub(crate) fn new(
        live: Live,
        store: Arc<dyn Store>,
        config: &ServerConfig,
        is_kerberized: bool,
    ) -> Self {
        Self {
            live,
            store,
            one_time_user: config.one_time_user.clone(),
            has_trusted: !config.access.trusted.is_empty(),
            is_kerberized,
        }
    }

    /// Reads a password file, and checks the users and the new rules. The running server does not
    /// change until [`Reloader::apply`].
    ///
    /// # Errors
    /// [`ServerError`] if the file cannot be used, a rule names an export that is not served, or
    /// the change needs a restart.
    pub fn read(
        &self,
        rules: AccessRules,
        password_file: Option<&Path>,
    ) -> Result<LiveVersion, ServerError> {
        if !rules.trusted.is_empty() && !self.has_trusted {
            return Err(ServerError::NeedsRestart("the first client that may act for others"));
        }
        check_access(&rules, &*self.store, self.is_kerberized)?;
        let passwords = read_passwords(password_file, self.one_time_user.clone())?;
        Ok(LiveVersion { rules: Arc::new(rules), passwords: Arc::new(passwords) })
    }

    /// Describes the rules in force for the NFS client at an address, or all rules for NFS clients
    /// if there is no address: a line for each export and entry. May block, because it may look up
    /// the name of the client.
    #[must_use]
    pub fn describe_nfs(&self, client: Option<IpAddr>) -> Vec<String> {
        let (names, paths) = (self.store.export_names(), self.store.export_paths());
        describe(&self.live.rules(), (&names, &paths), client)
    }

    /// Puts rules and users into force for new connections and new logins. Open sessions keep the
    /// rights that they have.
    pub fn apply(&self, version: LiveVersion) {
        self.live.replace(version);
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

/// Reads the users of a password file, if there is one, and adds the one-time user.
pub(crate) fn read_passwords(
    file: Option<&Path>,
    one_time_user: Option<OneTimeUser>,
) -> Result<PasswordFile, PasswordError> {
    let users = file.map(PasswordFile::load).transpose()?.unwrap_or_default();
    Ok(users.with_one_time(one_time_user))
}

/// Checks that each export named in the rules exists and that the store supports the terms.
/// `is_kerberized` is true if NFS clients can authenticate by Kerberos.
pub(crate) fn check_access(
    access: &AccessRules,
    store: &dyn Store,
    is_kerberized: bool,
) -> Result<(), ServerError> {
    access.nfs.check_kerberos(is_kerberized).map_err(ServerError::Access)?;
    let names = store.export_names();
    if let Some(rules) =
        access.exports.iter().find(|rules| names.iter().all(|name| *name != *rules.name))
    {
        let there: Vec<_> = names.iter().map(|name| shown(name.as_bytes())).collect();
        let (name, there) = (&rules.name, there.join(", "));
        let text = format!(
            "rules for an export {name:?}, which is not exported; the exports are: {there}"
        );
        return Err(ServerError::Access(text));
    }
    let partial = access.exports.iter().flat_map(|rules| {
        std::iter::once(&rules.terms).chain(rules.clients.iter().map(|(_, terms)| terms))
    });
    if store.on_terms(&[]).is_none() && partial.into_iter().any(|terms| terms.read_only.is_some()) {
        let text = "a store in memory cannot be read-only; remove read-only".to_owned();
        return Err(ServerError::Access(text));
    }
    Ok(())
}
