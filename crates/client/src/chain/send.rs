//! Sends chains and handles their replies.
//!
//! Invariants:
//!
//! - Between a chain's first member and its last, no other request is sent in its session (draft
//!   4.3.3). While a chain is open, [`Credits`](crate::credits::Credits) gives credits only to its
//!   members, and all other requests wait.
//! - A chain that needs more credits than are available continues when the replies to its first
//!   members arrive.
//! - Replies are kept until all have arrived, so that the chain can be resumed after a lost
//!   connection (`recovery/chains.rs`).

use dafs_dat::Forecast;
use dafs_wire::{OPEN_ANSWER_BYTES as OPEN_BYTES, Procedure, ResponseHeader};

use crate::chain::work::{ChainWork, Member, SharedChain, Stamping};
use crate::core::Core;
use crate::credits::ReservedFor;
use crate::error::Result;
use crate::ids::SessionKey;
use crate::transfer::ANSWER_BYTES;
use crate::work::Pending;

impl Core {
    /// Queues a chain and sends the members for which there are credits.
    pub(crate) fn start_chain(&mut self, key: SessionKey, chain: &SharedChain) -> Result<()> {
        self.sessions.open_mut(key)?.note_changes();
        let id = self.sinks.next_id();
        if !chain.borrow_mut().begin(id) {
            chain.borrow_mut().end();
            return Ok(());
        }
        let has_channels = self.sessions[key].role.has_channels();
        let key = if has_channels { self.channel_for_chain(key, chain) } else { key };
        let in_flight = &mut self.sessions[key].in_flight;
        in_flight.chains.push_back(chain.clone());
        if in_flight.owes_a_chain() {
            self.send_chains(key);
        }
        let outstanding = self.sessions[key].in_flight.credits.outstanding();
        if usize::from(outstanding) == chain.borrow().members.len() {
            self.transport.interface_mut().await_alone(false);
        }
        Ok(())
    }

    /// Sends members of queued chains while there are credits. Returns true if all members were
    /// sent.
    pub(crate) fn send_chains(&mut self, key: SessionKey) -> bool {
        while let Some(chain) = self.sessions[key].in_flight.chains.first().cloned() {
            if !self.send_members(key, &chain) {
                return false;
            }
            // If the connection was lost while sending, the chain has been removed already.
            self.sessions[key].in_flight.chains.remove_first(&chain);
        }
        true
    }

    /// Sends the remaining members of one chain. Returns false if there are too few credits.
    fn send_members(&mut self, key: SessionKey, shared: &SharedChain) -> bool {
        // In a chain that was partly sent, or that is being resumed, some members may already have
        // replies.
        let is_fresh = shared.borrow().is_fresh();
        loop {
            let mut chain = shared.borrow_mut();
            let Some(number) = chain.due() else { return true };
            let session = &mut self.sessions[key];
            let taken = session.in_flight.credits.take_for_member();
            let Some((stream, sequence)) = taken else { return false };
            let stamping = Stamping {
                opens: session.recovery.as_ref().map(|machine| machine.opens()),
                registered: &session.standing.registered,
                checksums: session.terms.checksums,
            };
            let is_last = chain.stamp(number, stream, sequence, &stamping);
            session.in_flight.credits.hold(if is_last {
                ReservedFor::Any
            } else {
                ReservedFor::Members
            });
            let message = &chain.bytes[chain.members[number].message.clone()];
            let posted = self.transport.post_renamed(session, message);
            // If posting loses the connection, recovery borrows the chain to resume it.
            drop(chain);
            let member = Member { chain: shared.clone(), number };
            self.note_posted(key, stream, Pending::Member(member), posted);
            if is_last {
                self.foretell(key, &shared.borrow(), is_fresh);
                return true;
            }
        }
    }

    /// Announces to the transport which replies to expect for a chain. Normally the server sends
    /// the replies together, so that the client waits for only one arrival.
    fn foretell(&mut self, key: SessionKey, chain: &ChainWork, is_fresh: bool) {
        let endpoint = self.sessions[key].endpoint;
        let found = match &chain.members[..] {
            [read, behind @ ..] if read.reads_directly() => Some((0, read, behind.len())),
            [open, read, behind @ ..]
                if open.procedure == Procedure::Open && read.reads_directly() =>
            {
                Some((OPEN_ANSWER_BYTES, read, behind.len()))
            }
            _ => None,
        };
        let found = found.filter(|_| is_fresh);
        let known = found.and_then(|(before, read, behind)| {
            Some((before, read.asked.slice.as_ref()?, u32::try_from(behind).ok()?))
        });
        let Some((before, slice, behind)) = known else {
            return self.transport.interface_mut().expect(endpoint, &Forecast::answer(&[], 0));
        };
        let (offset, length) = (slice.offset as u64, slice.length);
        let interface = self.transport.interface_mut();
        let writes = [interface.remote(endpoint, &slice.buffer.region, offset, length)];
        let forecast = Forecast { before, writes: &writes, message: ANSWER_BYTES, behind };
        interface.expect(endpoint, &forecast);
    }

    /// Handles the reply to a member of a chain.
    pub(crate) fn on_member(
        &mut self,
        key: SessionKey,
        member: &Member,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let session = &mut self.sessions[key];
        session.note_progress();
        let status = Some(header.status);
        if member.chain.borrow_mut().note_answer(member.number, status, Ok(message)) {
            self.end_chain(key, &member.chain);
        }
    }

    /// Ends a chain whose members all have replies.
    pub(crate) fn end_chain(&mut self, key: SessionKey, shared: &SharedChain) {
        if self.defer_chain(key, shared) {
            return;
        }
        if let Some(first) = self.sessions[key].role.first() {
            self.hand_over_opens(first, key, shared);
        }
        let mut chain = shared.borrow_mut();
        if let Some(machine) = &mut self.sessions[key].recovery {
            chain.note(machine.opens_mut());
        }
        chain.end();
    }
}

/// The size in bytes of an OPEN reply without a delegation.
const OPEN_ANSWER_BYTES: u32 = OPEN_BYTES as u32;
