//! RPCSEC_GSS with Kerberos (RFC 2203): contexts of NFS clients, and the protection of calls and
//! replies.
//!
//! Invariants:
//! - Tokens are checked on threads, because the Kerberos library reads files and may ask name
//!   servers. So are long messages, because encryption takes time.
//! - The reply to a call is protected as the call was, by the context of the call.
//! - The memory for tokens and messages that wait for threads is limited.

mod protect;
pub(crate) mod route;
mod workers;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use dafs_dat::Waker;
use dafs_gss::{Acceptor, Context, Protection};
use dafs_nfs_state::GssContexts;
use dafs_nfs_wire::rpc::gss::GssService;
use dafs_types::Credentials;

use crate::access::exports::flavors::Flavor;
use crate::access::gss::Kerberos;

pub(super) use protect::{
    Opened, Refusal, completed, head, is_accepted, open, seal_reply, verifier, within,
};
pub(super) use route::{Route, Seal};
pub(super) use workers::{Accepted, Done, Job, Workers};

/// A user who has authenticated by Kerberos.
#[derive(Debug)]
pub(super) struct GssUser {
    /// The user's principal, in the notation of Kerberos.
    pub principal: Arc<str>,
    /// The credentials of the local user that the principal maps to. If it maps to none, those of
    /// the user `nobody`.
    pub credentials: Credentials,
}

/// A context that is complete.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub context: Arc<Mutex<Context>>,
    pub user: Arc<GssUser>,
}

/// The contexts of all NFS clients, and the threads that check tokens and long messages.
pub(super) struct Gss {
    /// The Kerberos service. `None` if it has no key for NFS.
    pub kerberos: Option<Arc<Kerberos>>,
    pub contexts: GssContexts<Acceptor, Made>,
    pub workers: Workers,
    /// The number of tokens of each host that are being checked.
    checking: HashMap<IpAddr, usize>,
}

impl Gss {
    pub(super) fn new(kerberos: Option<Arc<Kerberos>>, waker: Waker) -> Self {
        Self {
            kerberos: kerberos.filter(|kerberos| kerberos.serves_nfs()),
            contexts: GssContexts::default(),
            workers: Workers::new(waker),
            checking: HashMap::new(),
        }
    }

    /// Starts the check of a token. Returns false if too many are being checked.
    pub(super) fn check_token(&mut self, address: IpAddr, job: Job) -> bool {
        let count = self.checking.entry(address).or_default();
        let is_started = *count < TOKENS_OF_HOST_MAX && self.workers.check(job).is_ok();
        if is_started {
            *count += 1;
        } else if *count == 0 {
            self.checking.remove(&address);
        }
        is_started
    }

    /// Notes that the check of a token has ended.
    pub(super) fn token_checked(&mut self, address: IpAddr) {
        if let Some(count) = self.checking.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.checking.remove(&address);
            }
        }
    }
}

/// Returns the protection that a call asks for.
pub(super) const fn protection_of(service: GssService) -> Protection {
    match service {
        GssService::None => Protection::Authentication,
        GssService::Integrity => Protection::Integrity,
        GssService::Privacy => Protection::Privacy,
    }
}

/// Returns the flavor of a call with this protection.
pub(super) const fn flavor_of(protection: Protection) -> Flavor {
    match protection {
        Protection::Authentication => Flavor::Krb5,
        Protection::Integrity => Flavor::Krb5i,
        Protection::Privacy => Flavor::Krb5p,
    }
}

/// The maximum number of tokens of one host that are being checked.
const TOKENS_OF_HOST_MAX: usize = 64;
