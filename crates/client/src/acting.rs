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
use dafs_wire::messages::{CredentialData, RegisterCred, ReleaseCred};
use dafs_wire::{Request, Response};

use crate::core::{Core, SessionState};
use crate::error::Result;
use crate::label::Label;
use crate::session::Session;
use crate::typed::done;

/// Credentials that the server keeps for this client, for the session that registered them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registered(NonZeroU64);

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

impl Session {
    /// Has the server keep credentials. A server that has restarted is asked for them again
    /// when the session comes back.
    ///
    /// # Errors
    /// NOT_AUTHORIZED unless the client is trusted ([`crate::Identity::trusted`]); RESOURCE
    /// beyond the agreed number; INVAL for nobody the server knows.
    pub fn register_credentials(&self, whom: ActFor<'_>) -> Result<Registered> {
        let whom = Whom::from(whom);
        // A handle counts for the life of the server that gave it.
        let client = self.shared.borrow().sessions[self.index].client;
        let handle = self.call(&whom.request(), |status, response| match response {
            Response::RegisterCred(result) => Ok(result.handle),
            _ => done("REGISTER_CRED", status)
                .and_then(|()| Err(self.protocol_error("REGISTER_CRED"))),
        })?;
        let mut core = self.shared.borrow_mut();
        let number = core.next_registered();
        let session = &mut core.sessions[self.index];
        session.registered.0.push(Registration { number, whom, handle, client });
        Ok(number)
    }

    /// Has the server forget credentials. What was opened with them stays open.
    ///
    /// # Errors
    /// CRHAND_CONFLICT while requests run with them; NO_CREDS if there are none.
    pub fn release_credentials(&self, whom: Registered) -> Result<()> {
        let handle = self.shared.borrow().sessions[self.index].registered.handle(whom);
        let request = Request::ReleaseCred(ReleaseCred { handle });
        self.call(&request, |status, _| done("RELEASE_CRED", status))?;
        let registered = &mut self.shared.borrow_mut().sessions[self.index].registered;
        registered.0.retain(|registration| registration.number != whom);
        Ok(())
    }

    /// The same session, acting for somebody it has registered. Requests for anybody else end
    /// with NO_CREDS.
    #[must_use]
    pub fn acting_for(&self, whom: Registered) -> Session {
        let mut session = self.clone();
        session.acting = Some(whom);
        session
    }
}

/// Somebody to act for, kept.
#[derive(Debug)]
enum Whom {
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
    fn request(&self) -> Request<'_> {
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
    fn handle(&self, whom: Registered) -> CredHandle {
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

impl Core {
    /// A number that none of the credentials has that are registered now.
    fn next_registered(&mut self) -> Registered {
        loop {
            self.last_registered = self.last_registered % NUMBER_MAX + 1;
            let number = Registered(NonZeroU64::MIN.saturating_add(self.last_registered - 1));
            let has =
                |session: &SessionState| session.registered.0.iter().any(|r| r.number == number);
            if !self.sessions.iter().any(has) {
                return number;
            }
        }
    }
}

/// What a request's header has for whom it is to be carried out.
#[inline]
pub(crate) fn label(whom: Option<Registered>) -> u64 {
    whom.map_or(0, |Registered(number)| number.get() << Label::BITS)
}

/// For whom an encoded request is to be carried out.
#[inline]
pub(crate) fn acting_in(message: &[u8]) -> Option<Registered> {
    let octets = message.get(LABEL_AT..LABEL_AT + 8)?;
    let number = u64::from_ne_bytes(octets.try_into().ok()?) >> Label::BITS;
    NonZeroU64::new(number).map(Registered)
}

/// The greatest number of credentials.
const NUMBER_MAX: u64 = u64::MAX >> Label::BITS;
/// Where a request's header has its label and its credentials.
const LABEL_AT: usize = 16;
const HANDLE_AT: usize = 28;
/// A handle that no server gives.
const NOBODYS: CredHandle = CredHandle(u32::MAX);
