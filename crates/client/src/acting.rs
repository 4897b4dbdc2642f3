//! Acting for others, as a trusted client may (draft 3.1.1, 6.2.8).
//!
//! Invariant: a session that acts for somebody names them in each of its requests but those
//! that move data through an open file or close it: an open is the client's own, and what may
//! be done with it was judged when it was made.
//!
//! A server that has restarted knows no credentials, and gives other handles for them. So a
//! request has a number of the library's own in its header, in the field that is the sender's
//! (`analyzer`), and the handle of the moment is put in when it is sent. The number takes the
//! field's upper 24 bits; the lower 40 are the session's label ([`crate::Label`]).

use std::num::NonZeroU64;

use dafs_types::{ClientId, CredHandle};
use dafs_wire::Request;
use dafs_wire::messages::{CredentialData, RegisterCred};

use crate::label::Label;

/// Credentials that the server keeps for this client, for the session that registered them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registered(pub(crate) NonZeroU64);

/// Somebody to act for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActFor<'a> {
    /// A user, by the name the server knows.
    User(&'a str),
    /// POSIX numbers.
    Id {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Supplementary groups.
        groups: &'a [u32],
    },
    /// A principal of Kerberos.
    Principal(&'a str),
    /// Whomever the server takes for nobody.
    Default,
}

/// Somebody to act for, kept.
#[derive(Debug)]
pub(crate) enum Whom {
    User(String),
    Id { uid: u32, gid: u32, groups: Vec<u32> },
    Principal(String),
    Default,
}

impl From<ActFor<'_>> for Whom {
    fn from(whom: ActFor<'_>) -> Self {
        match whom {
            ActFor::User(name) => Self::User(name.to_owned()),
            ActFor::Id { uid, gid, groups } => Self::Id { uid, gid, groups: groups.to_vec() },
            ActFor::Principal(name) => Self::Principal(name.to_owned()),
            ActFor::Default => Self::Default,
        }
    }
}

impl Whom {
    /// How a server is asked to keep them.
    pub fn request(&self) -> Request<'_> {
        let credentials = match self {
            Self::User(name) => CredentialData::Name(name),
            Self::Id { uid, gid, groups } => {
                CredentialData::Id { uid: *uid, gid: *gid, groups: groups.as_slice().into() }
            }
            Self::Principal(name) => CredentialData::Gss(name.as_bytes()),
            Self::Default => CredentialData::Default,
        };
        Request::RegisterCred(RegisterCred { credentials })
    }
}

/// What a session has registered.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Vec<Registration>);

#[derive(Debug)]
struct Registration {
    number: Registered,
    whom: Whom,
    handle: CredHandle,
    /// What the server called the client that the handle was given to.
    client: ClientId,
}

impl Registrations {
    /// The server keeps these, and has given a handle for them.
    pub fn add(&mut self, number: Registered, whom: Whom, handle: CredHandle, client: ClientId) {
        self.0.push(Registration { number, whom, handle, client });
    }

    /// The server has forgotten these.
    pub fn remove(&mut self, number: Registered) {
        self.0.retain(|registration| registration.number != number);
    }

    /// Whether credentials of this number are registered.
    pub fn has(&self, number: Registered) -> bool {
        self.0.iter().any(|registration| registration.number == number)
    }

    /// Names in a message whom it is to be carried out for, if that is not the client.
    #[inline]
    pub fn name_in(&self, message: &mut [u8]) {
        if let Some(whom) = acting_in(message) {
            self.write_name(message, whom);
        }
    }

    #[cold]
    fn write_name(&self, message: &mut [u8], whom: Registered) {
        message[HANDLE_AT..HANDLE_AT + 4].copy_from_slice(&self.handle(whom).0.to_le_bytes());
    }

    /// What the server calls them now.
    pub fn handle(&self, whom: Registered) -> CredHandle {
        let known = self.0.iter().find(|registration| registration.number == whom);
        known.map_or(NOBODYS, |registration| registration.handle)
    }

    /// Those that the server, which knows the client by this name, has not been asked for.
    pub fn unknown_to(&self, client: ClientId) -> Vec<usize> {
        let is_unknown = |&place: &usize| self.0[place].client != client;
        (0..self.0.len()).filter(is_unknown).collect()
    }

    /// Asks for one anew.
    pub fn ask_for<T>(&self, place: usize, ask: impl FnOnce(&Request<'_>) -> T) -> Option<T> {
        self.0.get(place).map(|registration| ask(&registration.whom.request()))
    }

    /// The server has answered; it gives no handle for whom it does not know any more.
    pub fn note(&mut self, place: usize, handle: Option<CredHandle>, client: ClientId) {
        if let Some(registration) = self.0.get_mut(place) {
            (registration.handle, registration.client) = (handle.unwrap_or(NOBODYS), client);
        }
    }
}

/// What a request's header has for whom it is to be carried out.
#[inline]
pub(crate) fn acting_bits(whom: Option<Registered>) -> u64 {
    whom.map_or(0, |Registered(number)| number.get() << Label::BITS)
}

/// For whom an encoded request is to be carried out.
#[inline]
pub(crate) fn acting_in(message: &[u8]) -> Option<Registered> {
    let bytes = message.get(LABEL_AT..LABEL_AT + 8)?;
    let number = u64::from_ne_bytes(bytes.try_into().ok()?) >> Label::BITS;
    NonZeroU64::new(number).map(Registered)
}

/// The greatest number of credentials.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> Label::BITS;

/// Where a request's header has its label and its credentials.
const LABEL_AT: usize = 16;

const HANDLE_AT: usize = 28;

/// A handle that no server gives.
const NOBODYS: CredHandle = CredHandle(u32::MAX);
