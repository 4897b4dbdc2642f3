//! Requests that wait for somebody or something else than the disk: each until its turn comes.
//!
//! Invariant: what waits here has had no effect yet, or is a question that changes nothing; when
//! its turn comes, or its connection ends, it is not here any more.

pub(crate) mod fencing;
mod going_on;
mod held;
mod questions;
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
use questions::Questions;
use searching::Searching;

pub(crate) use questions::Query;
pub(crate) use searching::SearchJob;

/// Everything that waits.
pub(crate) struct Waiting {
    /// For members of the same chain.
    chains: Chains,
    /// For a delegation to come back, or for what its holder says.
    held: HeldRequests,
    /// For an object to be looked for.
    searching: Searching,
    /// For a session to come to rest.
    questions: Questions,
    /// For those to end whom a fencing list leaves out.
    fencing: Fencing,
    /// For records to be durable.
    journaled: JournaledRequests,
}

impl Waiting {
    /// Nothing waits yet. Whether the store will ever have to search is known by now.
    pub fn new(config: &ServerConfig, searches: bool) -> Self {
        Self {
            chains: Chains::default(),
            held: HeldRequests::default(),
            searching: Searching::new(searches),
            questions: Questions::default(),
            fencing: Fencing::new(config),
            journaled: JournaledRequests::new(config.defect),
        }
    }

    /// Chains, and members of them that wait for those before them.
    #[inline]
    pub fn chains(&mut self) -> &mut Chains {
        &mut self.chains
    }

    /// Chains of which members are under way or to come.
    pub fn chain_count(&self) -> usize {
        self.chains.count()
    }

    /// Changes of fencing lists.
    #[inline]
    pub fn fencing(&mut self) -> &mut Fencing {
        &mut self.fencing
    }

    /// The same, to be looked at.
    pub fn changes_of_fences(&self) -> &Fencing {
        &self.fencing
    }

    /// Does what the filer wants done about a change of a fencing list. Who is to be told what, if
    /// it has come to its end.
    pub fn act_on_fence(
        &mut self,
        filer: &mut Filer,
        ledger: &mut Option<Ledger>,
        action: FenceAction,
    ) -> Option<(ReplyTo, Outcome)> {
        self.fencing.act(filer, (ledger, &mut self.journaled), action)
    }

    /// What waits for records to be durable.
    #[inline]
    pub fn journaled(&mut self) -> &mut JournaledRequests {
        &mut self.journaled
    }

    /// The same, to be looked at.
    pub fn on_record(&self) -> &JournaledRequests {
        &self.journaled
    }

    /// Requests that wait for delegations.
    pub fn held_count(&self) -> usize {
        self.held.count()
    }

    /// A connection is gone, and so is what waits on it; members of chains that are under way come
    /// to their end alone. What waited for delegations: nobody will carry it out.
    pub fn forget(&mut self, filer: &mut Filer, endpoint: EndpointId) -> Vec<ReplyTo> {
        self.chains.drop_of(endpoint);
        self.held.forget(filer, endpoint)
    }
}
