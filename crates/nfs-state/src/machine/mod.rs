//! The complete state of NFSv4.1: the tables of clients, sessions, callbacks and state ids in one
//! structure.
//!
//! Invariant: a session, a callback and a state id exist only as long as the record of the client
//! that they belong to.

mod callbacks;
mod create;
mod restore;
mod sequence;
mod states;
mod upkeep;

use std::collections::VecDeque;

use dafs_types::Moment;

pub use callbacks::CallbackToSend;
pub use create::{BoundConnection, CreateSession, CreateSessionOutcome};
pub use sequence::{Admitted, RequestKey, SequenceAsk, SequenceReply, Sequenced, status_flags};
pub use upkeep::Notice;

use crate::Nfs4Error;
use crate::callbacks::Callbacks;
use crate::clients::{Clients, ExchangeId, Exchanged};
use crate::limits::StateConfig;
use crate::peer::Caller;
use crate::sessions::Sessions;
use crate::state_ids::States;

/// The state of all clients of NFSv4.1 and their sessions.
#[derive(Debug)]
pub struct NfsState {
    pub(crate) config: StateConfig,
    pub(crate) clients: Clients,
    pub(crate) sessions: Sessions,
    pub(crate) callbacks: Callbacks,
    pub(crate) states: States,
    notices: VecDeque<Notice>,
}

impl NfsState {
    /// Creates the state of a server without clients.
    #[must_use]
    pub fn new(config: StateConfig) -> Self {
        Self {
            config,
            clients: Clients::new(config),
            sessions: Sessions::new(config),
            callbacks: Callbacks::new(),
            states: States::new(config.epoch),
            notices: VecDeque::new(),
        }
    }

    /// Returns the table of clients.
    #[must_use]
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Returns the table of sessions.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Handles EXCHANGE_ID.
    ///
    /// # Errors
    /// The errors of [`Clients::exchange_id`].
    pub fn exchange_id(
        &mut self,
        ask: &ExchangeId<'_>,
        caller: &Caller<'_>,
        now: Moment,
    ) -> Result<Exchanged, Nfs4Error> {
        let result = self.clients.exchange_id(ask, caller, now);
        self.end_clients();
        result
    }
}
