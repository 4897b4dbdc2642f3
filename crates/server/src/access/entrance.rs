//! Admits clients: decides who may connect, how clients authenticate, and which exports they see.
//!
//! Invariant: the exports that a connection sees depend only on the rules for its own client.

use std::ffi::OsString;
use std::sync::Arc;

use dafs_filer::{Holder, Principal};
use dafs_files::caller::{Identity, View};
use dafs_store::{ExportTerms, Store};
use dafs_types::{AuthType, Credentials, Entropy, FileHandle, Moment, limits};

use crate::access::authorize::{AccessRules, PeerFacts, Refused, Verdict};
use crate::access::exports::flavors::Flavor;
use crate::access::exports::rules::NfsPeer;
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
    export_paths: Vec<OsString>,
    /// True if the configuration allows authentication by password.
    allows_passwords: bool,
    kerberos: Option<Arc<Kerberos>>,
    /// The view of all exports. A connection uses it until its client logs in.
    whole_view: Arc<View>,
    /// The views of clients, each with its terms of access. Clients with equal terms share a view.
    views: Vec<(Vec<ExportTerms>, Arc<View>)>,
    /// The size of the largest request without a Kerberos ticket, in bytes.
    request_bytes: u32,
    /// True if iWARP frames carry a CRC.
    crc: bool,
    /// The passwords and tokens that wait for a check.
    logins: Logins,
    /// The source of random numbers for session ids.
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
            export_paths: store.export_paths(),
            kerberos,
            whole_view: View::whole(store.clone()),
            views: Vec::new(),
            request_bytes: config.sessions.messages.request_bytes_max.max(CONNECT_BYTES),
            crc: config.crc,
            logins: Logins::default(),
            entropy,
        }
    }

    /// The queues of password and token checks and of name lookups.
    pub(crate) fn logins(&mut self) -> &mut Logins {
        &mut self.logins
    }

    /// Returns the source of random numbers for session ids.
    pub(crate) fn entropy(&mut self) -> &mut (dyn Entropy + Send) {
        &mut *self.entropy
    }

    /// Returns true if another line about refused connections of this holder (a local user or an
    /// address) may be logged.
    pub(crate) fn may_log(&mut self, holder: Holder, now: Moment) -> bool {
        self.logins.may_log(LogKind::Connection, holder, now)
    }

    /// Checks whether the rules could admit a peer that has not authenticated yet.
    pub(crate) fn may_connect(&self, peer: &PeerFacts) -> Result<(), Refused> {
        self.live.rules().may_connect(peer)
    }

    /// Returns the access rules in force.
    pub(crate) fn rules(&self) -> Arc<AccessRules> {
        self.live.rules()
    }

    /// Applies the access rules to a client that has authenticated.
    pub(crate) fn judge(
        &self,
        peer: &PeerFacts,
        who: &Principal,
        how: AuthType,
    ) -> Result<Verdict, Refused> {
        self.live.rules().judge(peer, who, how, &self.export_names)
    }

    /// Applies the access rules to an NFS client. Returns the terms of each export.
    pub(crate) fn judge_nfs(&self, peer: &NfsPeer) -> Result<Vec<ExportTerms>, Refused> {
        self.live.rules().judge_nfs(peer, &self.export_names)
    }

    /// Returns true if an NFS client does not see the exports at a path only because TLS does not
    /// protect its connection. `component` is the first component of the path.
    pub(crate) fn hides(&self, component: &[u8], peer: &NfsPeer) -> bool {
        self.live.rules().nfs.hides(&self.export_names, component, peer)
    }

    /// Returns the flavors with which an NFS client may use the export of a handle, the preferred
    /// flavor first.
    pub(crate) fn flavors_of(&mut self, peer: &NfsPeer, handle: &FileHandle) -> Vec<Flavor> {
        let mut found = Vec::new();
        for flavor in Flavor::ALL {
            let principal = peer.principal.clone().filter(|_| flavor != Flavor::Sys);
            let peer = NfsPeer { flavor: Some(flavor), principal, ..peer.clone() };
            if let Ok(terms) = self.judge_nfs(&peer)
                && self.view(terms).store.shows(handle)
            {
                found.push(flavor);
            }
        }
        let rules = self.rules();
        found.sort_by_key(|flavor| rules.nfs.preference(*flavor));
        found
    }

    /// Returns the view of everything that an NFS client may see with any flavor. `None` if it may
    /// see nothing.
    pub(crate) fn nfs_view(&mut self, peer: &NfsPeer) -> Option<Arc<View>> {
        let peer = NfsPeer { flavor: None, ..peer.clone() };
        let terms = self.judge_nfs(&peer).ok()?;
        Some(self.view(terms))
    }

    /// Returns the names of the exports, with the paths by which NFS clients mount them.
    pub(crate) fn exports(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.export_names.iter().zip(&self.export_paths)
    }

    /// Returns the identity of a connection that has not logged in or has ended.
    pub(crate) fn unauthenticated(&self) -> Identity {
        Identity::new(Credentials::nobody(), &self.whole_view)
    }

    /// Returns the view of the store under these terms of access. Clients with equal terms share a
    /// view.
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

    /// Returns the current password file, to check a password on the worker pool.
    pub(crate) fn passwords(&self) -> Arc<PasswordFile> {
        self.live.passwords()
    }

    /// Returns true if clients may authenticate by password and the password file has users.
    /// Otherwise clients are not asked for a password, because each check is costly.
    pub(crate) fn offers_passwords(&self) -> bool {
        self.allows_passwords && !self.live.passwords().is_empty()
    }

    /// Returns the sources that map user names to credentials.
    pub(crate) fn users(&self) -> Users {
        Users::new(self.live.clone())
    }

    /// Returns the Kerberos service. `None` if the server does not offer Kerberos.
    pub(crate) fn kerberos(&self) -> Option<Arc<Kerberos>> {
        self.kerberos.clone()
    }

    /// Returns the number of bytes to reserve for each request. If the client may send a Kerberos
    /// ticket, the ticket is included. Reserved bytes that no request uses need no physical memory,
    /// because they are never touched.
    pub(crate) fn request_bytes(&self, is_local: bool) -> u32 {
        match &self.kerberos {
            Some(kerberos) if !is_local => self.request_bytes.max(kerberos.request_bytes_max()),
            Some(_) | None => self.request_bytes,
        }
    }

    /// Returns true if iWARP frames carry a CRC.
    pub(crate) fn crc(&self) -> bool {
        self.crc
    }
}

const CONNECT_BYTES: u32 = limits::CONNECT_MESSAGE_BYTES as u32;
/// The maximum number of views that are kept for clients with equal terms. Few servers have rules
/// that produce this many different terms.
const VIEWS_MAX: usize = 256;
