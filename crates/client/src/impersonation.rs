//! Impersonation: requests executed with another user's credentials, as the server allows its
//! trusted clients (draft 3.1.1, 6.2.8).
//!
//! Invariant: an impersonating session names the user in each of its requests, except requests that
//! transfer data through an open file or close it: the open belongs to the client itself, and the
//! user's access was checked by the OPEN.
//!
//! A restarted server forgets registered credentials and assigns new handles to them. So a stored
//! request carries, instead of the handle, a number that this library assigns; the number is in the
//! header field that the draft leaves to the sender (`analyzer`), and the current handle is filled
//! in when the request is sent. The number takes the upper 24 bits of the field; the lower 40 bits
//! are the session's label ([`crate::Label`]).

use std::num::NonZeroU64;

use dafs_types::{ClientId, CredHandle};
use dafs_wire::Request;
use dafs_wire::messages::{CredentialData, RegisterCred};

use crate::label::Label;

/// Credentials registered with the server. They are valid only in the session that registered them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisteredCredentials(pub(crate) NonZeroU64);

/// A user whose credentials a trusted client's requests can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActFor<'a> {
    /// A user name as the server knows it.
    User(&'a str),
    /// POSIX user and group ids.
    Id {
        /// The numeric user id.
        uid: u32,
        /// The numeric primary group id.
        gid: u32,
        /// The numeric ids of the supplementary groups.
        groups: &'a [u32],
    },
    /// A Kerberos principal such as `alice@EXAMPLE.ORG`.
    Principal(&'a str),
    /// The server's default user, which is unprivileged.
    Default,
}

/// An owned copy of [`ActFor`].
#[derive(Debug)]
pub(crate) enum Impersonated {
    User(String),
    Id { uid: u32, gid: u32, groups: Vec<u32> },
    Principal(String),
    Default,
}

impl From<ActFor<'_>> for Impersonated {
    fn from(whom: ActFor<'_>) -> Self {
        match whom {
            ActFor::User(name) => Self::User(name.to_owned()),
            ActFor::Id { uid, gid, groups } => Self::Id { uid, gid, groups: groups.to_vec() },
            ActFor::Principal(name) => Self::Principal(name.to_owned()),
            ActFor::Default => Self::Default,
        }
    }
}

impl Impersonated {
    /// Returns the REGISTER_CRED request for this user.
    pub(crate) fn request(&self) -> Request<'_> {
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

/// The credentials that a session has registered.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Vec<Registration>);

#[derive(Debug)]
struct Registration {
    number: RegisteredCredentials,
    whom: Impersonated,
    handle: CredHandle,
    /// The client id that was valid when the server assigned `handle`.
    client: ClientId,
}

impl Registrations {
    /// Records credentials to which the server has assigned `handle`.
    pub(crate) fn add(
        &mut self,
        number: RegisteredCredentials,
        whom: Impersonated,
        handle: CredHandle,
        client: ClientId,
    ) {
        self.0.push(Registration { number, whom, handle, client });
    }

    /// Removes credentials that are no longer registered with the server.
    pub(crate) fn remove(&mut self, number: RegisteredCredentials) {
        self.0.retain(|registration| registration.number != number);
    }

    /// Returns true if credentials with this number are registered.
    pub(crate) fn has(&self, number: RegisteredCredentials) -> bool {
        self.0.iter().any(|registration| registration.number == number)
    }

    /// Writes the current credential handle into an encoded request that impersonates a user.
    #[inline]
    pub(crate) fn fill_in_handle(&self, message: &mut [u8]) {
        if let Some(whom) = acting_in(message) {
            self.write_handle(message, whom);
        }
    }

    #[cold]
    fn write_handle(&self, message: &mut [u8], whom: RegisteredCredentials) {
        message[HANDLE_AT..HANDLE_AT + 4].copy_from_slice(&self.handle(whom).0.to_le_bytes());
    }

    /// Returns the server's current handle for these credentials.
    pub(crate) fn handle(&self, whom: RegisteredCredentials) -> CredHandle {
        let known = self.0.iter().find(|registration| registration.number == whom);
        known.map_or(INVALID_HANDLE, |registration| registration.handle)
    }

    /// Returns the indexes of the credentials that were registered under a client id other than
    /// `client` and must therefore be registered again.
    pub(crate) fn unknown_to(&self, client: ClientId) -> Vec<usize> {
        let is_unknown = |&place: &usize| self.0[place].client != client;
        (0..self.0.len()).filter(is_unknown).collect()
    }

    /// Calls `ask` with the request that registers the credentials at index `place`.
    pub(crate) fn ask_for<T>(
        &self,
        place: usize,
        ask: impl FnOnce(&Request<'_>) -> T,
    ) -> Option<T> {
        self.0.get(place).map(|registration| ask(&registration.whom.request()))
    }

    /// Records the handle from the server's reply for the credentials at index `place`; `None` if
    /// the server no longer knows the user.
    pub(crate) fn note(&mut self, place: usize, handle: Option<CredHandle>, client: ClientId) {
        if let Some(registration) = self.0.get_mut(place) {
            (registration.handle, registration.client) = (handle.unwrap_or(INVALID_HANDLE), client);
        }
    }
}

/// Returns the bits of the header's `analyzer` field that name the credentials of a request.
#[inline]
pub(crate) fn acting_bits(whom: Option<RegisteredCredentials>) -> u64 {
    whom.map_or(0, |RegisteredCredentials(number)| number.get() << Label::BITS)
}

/// Reads the credentials number from an encoded request.
#[inline]
pub(crate) fn acting_in(message: &[u8]) -> Option<RegisteredCredentials> {
    let bytes = message.get(LABEL_AT..LABEL_AT + 8)?;
    let number = u64::from_ne_bytes(bytes.try_into().ok()?) >> Label::BITS;
    NonZeroU64::new(number).map(RegisteredCredentials)
}

/// The largest credentials number that fits in the `analyzer` bits above the label.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> Label::BITS;

/// The offset in a request header of the field that contains the label and the credentials number.
const LABEL_AT: usize = 16;

const HANDLE_AT: usize = 28;

/// A handle that no server assigns, so that requests with it are refused.
const INVALID_HANDLE: CredHandle = CredHandle(u32::MAX);
