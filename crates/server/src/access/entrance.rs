//! Admission of clients: who may connect, how they authenticate, and which exports they see.
//!
//! Invariant: no connection sees exports by the rules that hold for another one.

use std::ffi::OsString;
use std::sync::Arc;

use dafs_filer::{Holder, Principal};
use dafs_files::caller::{Identity, View};
use dafs_store::{ExportTerms, Store};
use dafs_types::{AuthType, Credentials, Entropy, Moment, limits};

use crate::access::authorize::{PeerFacts, Refused, Verdict};
use crate::access::failures::LogKind;
use crate::access::gss::Kerberos;
use crate::access::live::Live;
use crate::access::logins::Logins;
use crate::access::passwords::PasswordFile;
use crate::access::users::Users;
use crate::config::ServerConfig;

/// Everything the server needs to admit clients.
pub(crate) struct Entrance {
    live: Live,
    export_names: Vec<OsString>,
    /// True if the configuration allows authentication by password.
    allows_passwords: bool,
    kerberos: Option<Arc<Kerberos>>,
    /// The unrestricted view, for connections that have not logged in.
    whole_view: Arc<View>,
    /// The views of clients. Clients with the same terms share one.
    views: Vec<(Vec<ExportTerms>, Arc<View>)>,
    /// The size of the largest request that carries no ticket, in bytes.
    request_bytes: u32,
    /// True if frames have a checksum.
    crc: bool,
    /// Passwords and tokens to be checked.
    logins: Logins,
    /// The random numbers for ids of sessions.
    entropy: Box<dyn Entropy + Send>,
}

impl Entrance {
    pub(crate) fn new(
        config: &ServerConfig,
        store: &Arc<dyn Store>,
        live: Live,
        kerberos: Option<Arc<Kerberos>>,
        entropy: Box<dyn Entropy + Send>,
    ) -> Self {
        Self {
            live,
            allows_passwords: config.sessions.authentication.text,
            export_names: store.export_names(),
            kerberos,
            whole_view: View::whole(store.clone()),
            views: Vec::new(),
            request_bytes: config.sessions.messages.request_bytes_max.max(CONNECT_BYTES),
            crc: config.crc,
            logins: Logins::default(),
            entropy,
        }
    }

    /// Passwords and tokens to be checked, and names to be looked up.
    pub(crate) fn logins(&mut self) -> &mut Logins {
        &mut self.logins
    }

    /// The random numbers for ids of sessions.
    pub(crate) fn entropy(&mut self) -> &mut (dyn Entropy + Send) {
        &mut *self.entropy
    }

    /// Returns true if the log may take another line about this holder's refused connections.
    pub(crate) fn may_log(&mut self, holder: Holder, now: Moment) -> bool {
        self.logins.may_log(LogKind::Connection, holder, now)
    }

    /// Checks whether a peer may connect.
    pub(crate) fn may_connect(&self, peer: &PeerFacts) -> Result<(), Refused> {
        self.live.rules().may_connect(peer)
    }

    /// Decides by the rules about a client that has authenticated.
    pub(crate) fn judge(
        &self,
        peer: &PeerFacts,
        who: &Principal,
        how: AuthType,
    ) -> Result<Verdict, Refused> {
        self.live.rules().judge(peer, who, how, &self.export_names)
    }

    /// The caller of a connection that has not logged in, or that is gone.
    pub(crate) fn unauthenticated(&self) -> Identity {
        Identity::new(Credentials::nobody(), &self.whole_view)
    }

    /// The view of the store with these terms. Clients with the same terms share one.
    pub(crate) fn view(&mut self, terms: Vec<ExportTerms>) -> Arc<View> {
        if let Some((_, view)) = self.views.iter().find(|(other, _)| *other == terms) {
            return view.clone();
        }
        let view = View::new(&self.whole_view.store, &terms);
        if self.views.len() < VIEWS_MAX {
            self.views.push((terms, view.clone()));
        }
        view
    }

    /// The passwords, for a check on the worker pool.
    pub(crate) fn passwords(&self) -> Arc<PasswordFile> {
        self.live.passwords()
    }

    /// Returns true if a password could be right. Otherwise clients are not asked for one, because
    /// a failed check costs as much as a real one.
    pub(crate) fn offers_passwords(&self) -> bool {
        self.allows_passwords && !self.live.passwords().is_empty()
    }

    /// The users by name.
    pub(crate) fn users(&self) -> Users {
        Users::new(self.live.clone())
    }

    /// The Kerberos service, if there is one.
    pub(crate) fn kerberos(&self) -> Option<Arc<Kerberos>> {
        self.kerberos.clone()
    }

    /// The room for a request in bytes, with tickets where they may come. Unused room costs no
    /// memory, because it is never touched.
    pub(crate) fn request_bytes(&self, is_local: bool) -> u32 {
        match &self.kerberos {
            Some(kerberos) if !is_local => self.request_bytes.max(kerberos.request_bytes_max()),
            Some(_) | None => self.request_bytes,
        }
    }

    /// Returns true if frames have a checksum.
    pub(crate) fn crc(&self) -> bool {
        self.crc
    }
}

const CONNECT_BYTES: u32 = limits::CONNECT_MESSAGE_BYTES as u32;
/// The most views that are kept for sharing. Few rules make so many different terms.
const VIEWS_MAX: usize = 256;
