//! Requests that wait for an event other than the end of a disk access.
//!
//! Invariants:
//! - A request that waits here has had no effect yet, or is a query without effects.
//! - A request leaves this module when it can continue or its connection ends.

pub(crate) mod fencing;
mod held;
mod result_queries;
mod resuming;
mod searching;

use dafs_dat::EndpointId;
use dafs_filer::{FenceAction, Filer};
use dafs_files::ledger::Ledger;
use dafs_files::outcome::Outcome;

use crate::config::ServerConfig;
use crate::ledger::requests::JournaledRequests;
use crate::reply_to::ReplyTo;
use crate::requests::chain::Chains;
use crate::waiting::fencing::Fencing;
use held::HeldRequests;
use result_queries::ResultQueries;
use searching::Searching;

pub(crate) use result_queries::ResultQuery;
pub(crate) use searching::SearchJob;

/// All requests that wait for an event other than the end of a disk access.
pub(crate) struct Waiting {
    /// Chains, with the requests that wait for earlier members.
    chains: Chains,
    /// Requests that wait until a delegation is returned, or until its holder replies with the
    /// file's attributes.
    held: HeldRequests,
    /// Requests that wait until the store has searched for an object.
    searching: Searching,
    /// Queries for stored results. Each waits until the session that it asks about is idle.
    result_queries: ResultQueries,
    /// Changes of fencing lists that wait for operations of fenced clients.
    fencing: Fencing,
    /// Requests that wait until their intents are durable in the journal, and replies that wait
    /// until their records are durable.
    journaled: JournaledRequests,
}

impl Waiting {
    /// Creates empty tables. `searches` is true if the store may have to search for objects.
    pub(crate) fn new(config: &ServerConfig, searches: bool) -> Self {
        Self {
            chains: Chains::default(),
            held: HeldRequests::default(),
            searching: Searching::new(searches),
            result_queries: ResultQueries::default(),
            fencing: Fencing::new(config),
            journaled: JournaledRequests::new(config.defect),
        }
    }

    /// Returns the chains, with the members that wait for earlier members.
    #[inline]
    pub(crate) fn chains(&mut self) -> &mut Chains {
        &mut self.chains
    }

    /// Returns the number of chains that have not ended.
    pub(crate) fn chain_count(&self) -> usize {
        self.chains.count()
    }

    /// Returns the changes of fencing lists in progress, to modify them.
    #[inline]
    pub(crate) fn fencing(&mut self) -> &mut Fencing {
        &mut self.fencing
    }

    /// Returns the changes of fencing lists in progress.
    pub(crate) fn changes_of_fences(&self) -> &Fencing {
        &self.fencing
    }

    /// Executes one of the filer's requests about a change of a fencing list. If the change has
    /// finished, returns the reply and its destination.
    pub(crate) fn act_on_fence(
        &mut self,
        filer: &mut Filer,
        ledger: &mut Option<Ledger>,
        action: FenceAction,
    ) -> Option<(ReplyTo, Outcome)> {
        self.fencing.act(filer, (ledger, &mut self.journaled), action)
    }

    /// Returns the requests that wait for durable journal records, to modify them.
    #[inline]
    pub(crate) fn journaled(&mut self) -> &mut JournaledRequests {
        &mut self.journaled
    }

    /// Returns the requests that wait for durable journal records.
    pub(crate) fn on_record(&self) -> &JournaledRequests {
        &self.journaled
    }

    /// Returns the number of requests that wait for the return of delegations.
    pub(crate) fn held_count(&self) -> usize {
        self.held.count()
    }

    /// Drops all requests that wait on a connection that has ended. A chain member that is already
    /// in progress finishes, but no later member of its chain starts. Returns the requests that
    /// waited for the return of delegations. They will not be executed.
    pub(crate) fn forget(&mut self, filer: &mut Filer, endpoint: EndpointId) -> Vec<ReplyTo> {
        self.chains.drop_of(endpoint);
        self.held.forget(filer, endpoint)
    }
}
