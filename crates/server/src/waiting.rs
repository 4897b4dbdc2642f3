//! Requests that wait for something other than the disk.
//!
//! Invariants:
//! - A request that waits here has had no effect yet, or it only asks for information.
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

/// All waiting requests.
pub(crate) struct Waiting {
    /// Requests that wait for earlier members of their chain.
    chains: Chains,
    /// Requests that wait for the return of a delegation or a reply of its holder.
    held: HeldRequests,
    /// Requests that wait for the search for an object.
    searching: Searching,
    /// Requests that wait for a session to become idle.
    result_queries: ResultQueries,
    /// Changes of fencing lists that wait for operations of fenced clients.
    fencing: Fencing,
    /// Requests that wait for durable journal records.
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

    /// Chains, and members of them that wait for earlier members.
    #[inline]
    pub(crate) fn chains(&mut self) -> &mut Chains {
        &mut self.chains
    }

    /// The number of chains with members in progress or still to come.
    pub(crate) fn chain_count(&self) -> usize {
        self.chains.count()
    }

    /// Changes of fencing lists.
    #[inline]
    pub(crate) fn fencing(&mut self) -> &mut Fencing {
        &mut self.fencing
    }

    /// The same without the right to change them.
    pub(crate) fn changes_of_fences(&self) -> &Fencing {
        &self.fencing
    }

    /// Carries out one of the filer's requests about a change of a fencing list. If the change has
    /// finished, returns the reply to send and where to send it.
    pub(crate) fn act_on_fence(
        &mut self,
        filer: &mut Filer,
        ledger: &mut Option<Ledger>,
        action: FenceAction,
    ) -> Option<(ReplyTo, Outcome)> {
        self.fencing.act(filer, (ledger, &mut self.journaled), action)
    }

    /// Requests that wait for durable journal records.
    #[inline]
    pub(crate) fn journaled(&mut self) -> &mut JournaledRequests {
        &mut self.journaled
    }

    /// The same without the right to change them.
    pub(crate) fn on_record(&self) -> &JournaledRequests {
        &self.journaled
    }

    /// The number of requests that wait for delegations.
    pub(crate) fn held_count(&self) -> usize {
        self.held.count()
    }

    /// Drops everything that waits on a connection that has ended. Members of chains that are
    /// already in progress finish alone. Returns the requests that waited for delegations, which
    /// will not be executed.
    pub(crate) fn forget(&mut self, filer: &mut Filer, endpoint: EndpointId) -> Vec<ReplyTo> {
        self.chains.drop_of(endpoint);
        self.held.forget(filer, endpoint)
    }
}
