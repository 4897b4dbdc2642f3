//! Authentication by Kerberos: manages the server's keys, checks clients' tokens, and maps
//! principals to users (draft 3.1.1.1.1, 6.2.2; `docs/decisions/0012-kerberos.md`).
//!
//! Invariants:
//! - Tokens are checked and users are looked up on pool threads, never by the reactor.
//! - A principal has the rights of a user only if the configured map or the host's rules name that
//!   user. A principal maps to user 0 only if [`KerberosConfig::superuser`] is set.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dafs_gss::{
    Acceptor, Context, GssError, GssUnavailable, KERBEROS_OID, Library, NameError, Principal,
    Reason, Service, ServiceOptions, Step,
};
use dafs_types::{ClientId, Credentials, ExposedSecret, SessionId, Status, check_secret};
use dafs_wire::limits::TOKEN_BYTES_MAX;
use dafs_wire::messages::{AuthMethod, GssService};

use crate::access::users::Users;

/// Settings for authentication by Kerberos.
#[derive(Clone, Debug)]
pub struct KerberosConfig {
    /// The name of the service, its keytab, and its replay cache.
    pub service: ServiceOptions,
    /// Maps principals (`alice@REALM`) to names of local users. This map takes precedence over the
    /// host's rules.
    pub users: BTreeMap<String, String>,
    /// True if principals that are not in `users` are mapped by the rules of `krb5.conf`
    /// (`auth_to_local`). If `krb5.conf` has no such rules, the principal `alice` of the default
    /// realm maps to the user `alice`.
    pub host_rules: bool,
    /// True if a principal may map to user 0 of this host.
    pub superuser: bool,
    /// The longest token that is accepted over TCP, in bytes, at most
    /// [`dafs_wire::limits::TOKEN_BYTES_MAX`]. Each connection reserves memory for requests of this
    /// length.
    pub token_bytes_max: u32,
    /// True if the server requires that a token is bound to the session that the token
    /// authenticates.
    pub binding_required: bool,
}

impl Default for KerberosConfig {
    fn default() -> Self {
        Self {
            service: ServiceOptions::default(),
            users: BTreeMap::new(),
            host_rules: true,
            superuser: false,
            token_bytes_max: TOKEN_BYTES_DEFAULT,
            binding_required: false,
        }
    }
}

/// The reason why authentication by Kerberos is not available.
#[derive(Debug, thiserror::Error)]
pub enum KerberosError {
    /// The Kerberos library is not installed on this host.
    #[error("Kerberos is configured, but this host has no Kerberos library")]
    Library {
        /// The library that is missing and the package that contains it.
        source: GssUnavailable,
    },
    /// Other users can read or change the service's keys.
    #[error("the keytab {} is not safe to use", path.display())]
    Exposed {
        /// The keytab file.
        path: PathBuf,
        /// The users other than the server's user that have access to the keytab.
        source: ExposedSecret,
    },
    /// The Kerberos library cannot use the service's keys.
    #[error(
        "the service's keys cannot be used; `klist -k KEYTAB` shows what a keytab has, and \
         `kadmin ktadd -k KEYTAB dafs/HOST` (for NFS clients nfs/HOST) adds to it"
    )]
    Keys {
        /// The error from the Kerberos library.
        source: GssError,
    },
}

/// The Kerberos service, ready for clients.
#[derive(Debug)]
pub(crate) struct Kerberos {
    library: Arc<Library>,
    service: Arc<Service>,
    /// The keys for NFS clients. `None` if the server does not serve them by Kerberos.
    nfs: Option<Arc<Service>>,
    config: KerberosConfig,
    users: Users,
}

/// A job for the worker pool that checks a client's token.
pub(crate) struct TokenJob {
    pub kerberos: Arc<Kerberos>,
    pub acceptor: Acceptor,
    pub token: Box<[u8]>,
}

/// The result of checking a token.
pub(crate) enum TokenOutcome {
    /// The mechanism needs another token from the client.
    Continue { acceptor: Box<Acceptor>, token: Vec<u8> },
    /// The client has authenticated. `who` is the user that its principal maps to.
    Done { context: Box<Context>, token: Vec<u8>, who: Result<Credentials, Unmapped> },
    /// The token was invalid, so the client is not authenticated.
    Failed(GssError),
    /// The check panicked.
    Panicked,
}

/// The reason why a principal maps to no user. The text goes to the server's log and says what to
/// do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unmapped {
    #[error(
        "no rule maps the principal to a user; add it to the users of [kerberos], or to \
         auth_to_local in krb5.conf"
    )]
    NoRule,
    #[error("it maps to user {0}, who is neither in the password file nor known to this host")]
    NoUser(String),
    #[error("it maps to {0}, who is user 0; set `allow-root` of [kerberos] to admit user 0")]
    Superuser(String),
    #[error("the rules of krb5.conf cannot be read: {0}")]
    Rules(GssError),
    #[error("the token is not bound to its session, which `require-binding` requires")]
    Unbound,
}

impl KerberosConfig {
    /// Checks that the Kerberos library can be loaded and that the keytab has keys of the service.
    /// Returns true if it also has keys for NFS clients. This blocks.
    ///
    /// # Errors
    /// [`KerberosError`] with what is missing.
    pub fn check(&self) -> Result<bool, KerberosError> {
        let (library, _) = self.acquire()?;
        Ok(self.service.name.is_none() || self.acquire_for_nfs(&library).is_some())
    }

    fn acquire(&self) -> Result<(Arc<Library>, Service), KerberosError> {
        let library = Library::load().map_err(|source| KerberosError::Library { source })?;
        if let Some(keytab) = &self.service.keytab {
            check_keytab(keytab)?;
        }
        let service = Service::acquire(&library, &self.service)
            .map_err(|source| KerberosError::Keys { source })?;
        Ok((library, service))
    }

    /// Finds the keys for NFS clients, which name the service `nfs` of the same host.
    fn acquire_for_nfs(&self, library: &Arc<Library>) -> Option<Service> {
        let own = self.service.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let place = own.find(['/', '@']).unwrap_or(own.len());
        let name = format!("{NFS_SERVICE}{}", &own[place..]);
        let options = ServiceOptions { name: name.parse().ok(), ..self.service.clone() };
        let log = |error: &GssError| {
            tracing::info!(%name, %error, "NFS clients cannot use Kerberos, without this key");
        };
        Service::acquire(library, &options).inspect_err(log).ok()
    }
}

impl Kerberos {
    /// Loads the Kerberos library and finds the service's keys. This blocks, so it is called before
    /// the server accepts connections.
    pub(crate) fn start(config: &KerberosConfig, users: Users) -> Result<Self, KerberosError> {
        let (library, service) = config.acquire()?;
        let service = Arc::new(service);
        Ok(Self { library, service, nfs: None, config: config.clone(), users })
    }

    /// Finds the keys for NFS clients. This blocks, so it is called before the server accepts
    /// connections.
    pub(crate) fn serve_nfs(&mut self) {
        self.nfs = match &self.config.service.name {
            Some(_) => self.config.acquire_for_nfs(&self.library).map(Arc::new),
            None => Some(self.service.clone()),
        };
    }

    /// Returns true if NFS clients can authenticate.
    pub(crate) fn serves_nfs(&self) -> bool {
        self.nfs.is_some()
    }

    /// Creates an acceptor for the first token of an NFS client. `None` if there are no keys.
    pub(crate) fn nfs_acceptor(&self) -> Option<Acceptor> {
        self.nfs.clone().map(Acceptor::new)
    }

    /// Returns the credentials of an NFS client's principal. A principal that maps to no user, such
    /// as that of a client's machine, has those of the user `nobody`; the second result is then
    /// true. This may block.
    pub(crate) fn nfs_user(&self, principal: &Principal) -> (Credentials, bool) {
        match self.user(principal) {
            Ok(who) => (who, false),
            Err(why) => {
                let name = principal.as_str();
                tracing::debug!(principal = name, %why, "an NFS client acts as nobody");
                (Credentials::nobody(), true)
            }
        }
    }

    /// Returns the size of the largest request that carries a token, in bytes.
    pub(crate) fn request_bytes_max(&self) -> u32 {
        let token = self.config.token_bytes_max.min(TOKEN_BYTES_MAX as u32);
        (token + REQUEST_REST_BYTES) & !7
    }

    /// Creates an acceptor for a client's first token. If `bound_to` is set, the token must be
    /// bound to that existing session.
    pub(crate) fn acceptor(&self, bound_to: Option<Binding>) -> Acceptor {
        let acceptor = Acceptor::new(self.service.clone());
        match bound_to {
            Some(binding) => acceptor.bound_to(&binding.bytes()),
            None => acceptor,
        }
    }

    /// Returns the credentials of the user that a principal maps to. This may block.
    pub(crate) fn user(&self, principal: &Principal) -> Result<Credentials, Unmapped> {
        let name = match self.config.users.get(principal.as_str()) {
            Some(name) => name.clone(),
            None if self.config.host_rules => {
                let local = self.library.local_name(principal).map_err(Unmapped::Rules)?;
                local.ok_or(Unmapped::NoRule)?
            }
            None => return Err(Unmapped::NoRule),
        };
        let Some(who) = self.users.find(&name) else { return Err(Unmapped::NoUser(name)) };
        if who.is_superuser() && !self.config.superuser {
            return Err(Unmapped::Superuser(name));
        }
        Ok(who)
    }

    /// Returns the credentials of the user with a name that a trusted client has registered. `None`
    /// if there is no such user. This may block.
    pub(crate) fn user_named(&self, name: &[u8]) -> Option<Credentials> {
        let text = std::str::from_utf8(name).ok()?;
        let parsed: Result<Principal, NameError> = Principal::new(text);
        let found = self.user(&parsed.ok()?);
        found
            .inspect_err(|why| tracing::warn!(principal = text, %why, "credentials not registered"))
            .ok()
    }

    fn judge(&self, context: &Context) -> Result<Credentials, Unmapped> {
        if self.config.binding_required && !context.is_bound() {
            return Err(Unmapped::Unbound);
        }
        self.user(context.peer())
    }
}

/// Checks that no other user can read or change the keytab. A missing file is accepted here,
/// because the library reports it.
fn check_keytab(path: &Path) -> Result<(), KerberosError> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let user = rustix::process::geteuid().as_raw();
    check_secret(metadata.uid(), metadata.mode(), user)
        .map_err(|source| KerberosError::Exposed { path: path.into(), source })
}

impl TokenJob {
    /// Checks the token. This may block, so a pool thread calls it.
    pub(crate) fn run(self) -> TokenOutcome {
        let Self { kerberos, acceptor, token } = self;
        match acceptor.step(&token) {
            Ok(Step::Continue { party, token }) => {
                TokenOutcome::Continue { acceptor: Box::new(party), token }
            }
            Ok(Step::Done { context, token }) => {
                let who = kerberos.judge(&context);
                let token = token.unwrap_or_default();
                TokenOutcome::Done { context: Box::new(context), token, who }
            }
            Err(error) => TokenOutcome::Failed(error),
        }
    }
}

/// The session and channel to which a token is bound. The token does not authenticate any other
/// session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub session: SessionId,
    pub client: ClientId,
    /// The type of the channel that the token is for; 0 is the operation channel.
    pub channel: u8,
}

impl Binding {
    /// Returns the encoded binding, of which both the client and the server compute a hash
    /// (`docs/decisions/0012-kerberos.md`).
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = b"dafs1".to_vec();
        bytes.extend_from_slice(&self.session.0.to_le_bytes());
        bytes.extend_from_slice(&self.client.0.to_le_bytes());
        bytes.push(self.channel);
        bytes
    }
}

/// Returns the entry for Kerberos in the results of SECINFO.
pub(crate) fn method() -> AuthMethod<'static> {
    let service = GssService::Authentication;
    AuthMethod::Gss { oid: KERBEROS_OID, quality: 0, service }
}

/// Returns the reply's status for the reason why a token was refused.
pub(crate) fn status_of(reason: Reason) -> Status {
    match reason {
        Reason::MechanismUnknown => Status::NotSupp,
        Reason::TokenTooLong | Reason::TokenDefective => Status::Inval,
        // The server is at fault. The details go only to the log.
        Reason::CredentialMissing | Reason::ReplayCacheUnusable => Status::ServerFault,
        Reason::Replayed
        | Reason::OutOfOrder
        | Reason::Expired
        | Reason::NotYetValid
        | Reason::ClockSkew
        | Reason::WrongService
        | Reason::KeyMissing
        | Reason::WrongKey
        | Reason::Altered
        | Reason::ClientRefused
        | Reason::ClientUnknown
        | Reason::ServiceUnknown
        | Reason::PolicyRefused
        | Reason::CentreUnreachable
        | Reason::BindingsDiffer
        | Reason::NotMutual
        | Reason::ServerUnproven
        | Reason::Anonymous
        | Reason::NameMalformed
        | Reason::NotProtected
        | Reason::Other => Status::NotAuthorized,
    }
}

/// The name of the service in the tickets of NFS clients.
const NFS_SERVICE: &str = "nfs";

/// The GSS-API major status `GSS_S_COMPLETE`.
pub(crate) const COMPLETE: u32 = 0;
/// The GSS-API major status `GSS_S_CONTINUE_NEEDED`.
pub(crate) const CONTINUE_NEEDED: u32 = 1;
/// The GSS-API major status `GSS_S_FAILURE`.
pub(crate) const FAILURE: u32 = 13 << 16;
/// The GSS-API major status `GSS_S_UNAUTHORIZED`: the client has proved its identity but may not
/// connect.
pub(crate) const UNAUTHORIZED: u32 = 15 << 16;

/// The default limit of a token's length, in bytes. A ticket that lists all groups of a large
/// organisation has up to 12,000 bytes (MaxTokenSize of Windows before 2012). Later versions of
/// Windows allow 48,000 bytes, but such tickets are rare.
const TOKEN_BYTES_DEFAULT: u32 = 15 * 1024;
/// The number of bytes that a request with a token reserves for everything except the token.
const REQUEST_REST_BYTES: u32 = 1024;

/// The longest finite lifetime of a context. A context with a longer lifetime is treated as
/// unlimited, so that it ends only with its session.
pub(crate) const LIFETIME_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
