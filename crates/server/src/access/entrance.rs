//! The entrance: who may come in, how they prove who they are, and what they see of the exports
//! then.
//!
//! Invariant: a connection sees nothing of the exports by the rules of another one.

use std::ffi::OsString;
use std::sync::Arc;

use dafs_filer::{Holder, Principal};
use dafs_files::caller::{Asker, View};
use dafs_store::{ExportTerms, Store};
use dafs_types::{AuthType, Credentials, Entropy, Moment, limits};

use crate::access::authorize::{AccessRules, PeerFacts, Refused, Verdict};
use crate::access::failures::Line;
use crate::access::gss::Kerberos;
use crate::access::logins::Logins;
use crate::access::passwords::PasswordFile;
use crate::access::users::Users;
use crate::config::ServerConfig;

/// What the server needs to let somebody in.
pub(crate) struct Entrance {
    rules: AccessRules,
    export_names: Vec<OsString>,
    passwords: Arc<PasswordFile>,
    kerberos: Option<Arc<Kerberos>>,
    /// The store as it is, for connections that have not logged in.
    whole_view: Arc<View>,
    /// The store as clients see it, by the terms that they have in common.
    views: Vec<(Vec<ExportTerms>, Arc<View>)>,
    /// The longest request without a ticket.
    request_bytes: u32,
    /// Whether frames have a checksum.
    crc: bool,
    /// Passwords and tokens that are to be checked.
    logins: Logins,
    /// What sessions are named with.
    entropy: Box<dyn Entropy + Send>,
}

impl Entrance {
    pub fn new(
        config: &ServerConfig,
        store: &Arc<dyn Store>,
        passwords: Arc<PasswordFile>,
        kerberos: Option<Arc<Kerberos>>,
        entropy: Box<dyn Entropy + Send>,
    ) -> Self {
        Self {
            rules: config.access.clone(),
            export_names: store.export_names(),
            passwords,
            kerberos,
            whole_view: View::whole(store.clone()),
            views: Vec::new(),
            request_bytes: config.sessions.messages.request_bytes_max.max(CONNECT_BYTES),
            crc: config.crc,
            logins: Logins::default(),
            entropy,
        }
    }

    /// Passwords and tokens that are to be checked, and names that are to be looked up.
    pub fn logins(&mut self) -> &mut Logins {
        &mut self.logins
    }

    /// What sessions are named with.
    pub fn entropy(&mut self) -> &mut (dyn Entropy + Send) {
        &mut *self.entropy
    }

    /// Whether the log may have another line about somebody whose connection is refused.
    pub fn may_tell(&mut self, holder: Holder, now: Moment) -> bool {
        self.logins.may_tell(Line::Connection, holder, now)
    }

    /// Whether a peer may connect at all.
    pub fn may_come(&self, peer: &PeerFacts) -> Result<(), Refused> {
        self.rules.may_come(peer)
    }

    /// What the rules say of a peer that has proved who it is.
    pub fn judge(
        &self,
        peer: &PeerFacts,
        who: &Principal,
        how: AuthType,
    ) -> Result<Verdict, Refused> {
        self.rules.judge(peer, who, how, &self.export_names)
    }

    /// Somebody who has not logged in, or whose connection is gone.
    pub fn stranger(&self) -> Asker {
        Asker::new(Credentials::nobody(), &self.whole_view)
    }

    /// The store on these terms; those who have them in common share it.
    pub fn view(&mut self, terms: Vec<ExportTerms>) -> Arc<View> {
        if let Some((_, view)) = self.views.iter().find(|(other, _)| *other == terms) {
            return view.clone();
        }
        let view = View::new(&self.whole_view.store, &terms);
        if self.views.len() < VIEWS_MAX {
            self.views.push((terms, view.clone()));
        }
        view
    }

    /// Passwords, to be compared where that may take its time.
    pub fn passwords(&self) -> Arc<PasswordFile> {
        self.passwords.clone()
    }

    /// Users by name.
    pub fn users(&self) -> Users {
        Users::new(self.passwords.clone())
    }

    /// Kerberos, if it is served.
    pub fn kerberos(&self) -> Option<Arc<Kerberos>> {
        self.kerberos.clone()
    }

    /// Room for a request, with tickets where they may come. What is not used is never touched.
    pub fn request_bytes(&self, is_local: bool) -> u32 {
        match &self.kerberos {
            Some(kerberos) if !is_local => self.request_bytes.max(kerberos.request_bytes_max()),
            Some(_) | None => self.request_bytes,
        }
    }

    /// Whether frames have a checksum.
    pub fn crc(&self) -> bool {
        self.crc
    }
}

const CONNECT_BYTES: u32 = limits::CONNECT_MESSAGE_BYTES as u32;
/// Most sets of terms that are kept to be shared; rules that make more are rare.
const VIEWS_MAX: usize = 256;
