//! Chains on their way out.
//!
//! Invariant: from a chain's first member to its last nothing else is sent in its session
//! (draft 4.3.3): while one is open, [`Credits`](crate::credits::Credits) gives its credits to
//! members alone, and whatever else asks for one waits behind it. A chain that is longer than
//! the credits there are goes on as its first members are answered.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use dafs_dat::Gather;
use dafs_wire::{ChainFlags, seal};

use crate::buffer::Registered;
use crate::core::{Core, Pending, SessionState};
use crate::error::{ClientError, Result};
use crate::waiters::Ticket;

/// A chain that is not all sent.
pub(crate) struct QueuedChain {
    /// The messages of all members, one behind the other.
    pub octets: Vec<u8>,
    pub members: Vec<QueuedMember>,
    /// Members sent.
    pub sent: usize,
}

/// One of its members.
pub(crate) struct QueuedMember {
    /// Where its message is.
    pub message: Range<usize>,
    pub flags: ChainFlags,
    pub ticket: Ticket,
    /// Kept until the answer is there.
    pub buffer: Option<Rc<Registered>>,
}

/// What a stream waits for that carries a member.
pub(crate) struct Member {
    pub ticket: Ticket,
    buffer: Option<Rc<Registered>>,
}

impl Member {
    /// Its session ended while the server may have been at work on its memory.
    pub fn note_exposed(&self) {
        if let Some(buffer) = &self.buffer {
            buffer.note_exposed();
        }
    }
}

/// The chains of a session that are not all sent. Only the first may be open.
#[derive(Default)]
pub(crate) struct ChainQueue(VecDeque<QueuedChain>);

impl ChainQueue {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Some members of the first are sent, and not all.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.front().is_some_and(|chain| chain.sent > 0)
    }

    /// The tickets of all that was not sent.
    pub fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        self.0.into_iter().flat_map(|chain| {
            chain.members.into_iter().skip(chain.sent).map(|member| member.ticket)
        })
    }
}

impl SessionState {
    /// Whether a chain is what must be sent next.
    #[inline]
    pub fn owes_a_chain(&self) -> bool {
        !self.chains.is_empty() && (self.calls.is_empty() || self.chains.is_open())
    }
}

impl Core {
    /// Takes a chain in, and sends what there are credits for.
    pub fn start_chain(&mut self, index: usize, chain: QueuedChain) -> Result<()> {
        self.check_open(index)?;
        self.sessions[index].chains.0.push_back(chain);
        if self.sessions[index].owes_a_chain() {
            self.send_chains(index);
        }
        Ok(())
    }

    /// Sends members as long as there are credits. True if it was all of them.
    pub fn send_chains(&mut self, index: usize) -> bool {
        while let Some(mut chain) = self.sessions[index].chains.0.pop_front() {
            if !self.send_members(index, &mut chain) {
                self.sessions[index].chains.0.push_front(chain);
                return false;
            }
        }
        true
    }

    /// Sends the members of a chain. False if there are not credits enough for the rest.
    fn send_members(&mut self, index: usize, chain: &mut QueuedChain) -> bool {
        while let Some(member) = chain.members.get_mut(chain.sent) {
            let session = &mut self.sessions[index];
            let Some((stream, sequence)) = session.credits.take_for_member() else { return false };
            let message = &mut chain.octets[member.message.clone()];
            message[10..12].copy_from_slice(&member.flags.0.to_ne_bytes());
            message[12..14].copy_from_slice(&stream.0.to_ne_bytes());
            message[14..16].copy_from_slice(&sequence.0.to_ne_bytes());
            if session.checksums {
                seal(message, &[]);
            }
            session.credits.hold(member.flags.contains(ChainFlags::FORWARD));
            let pending = Member { ticket: member.ticket, buffer: member.buffer.take() };
            chain.sent += 1;
            self.post(index, stream, Pending::Member(pending), &[Gather::Bytes(message)]);
            if chain.sent == chain.members.len() {
                // The answers come together, where nothing keeps the server from it: one is
                // what is waited for.
                let endpoint = self.sessions[index].endpoint;
                self.interface.expect(endpoint, &[], 0);
            }
            if let Err(error) = self.check_open(index) {
                self.end_unsent(chain, &error);
                return true;
            }
        }
        true
    }

    /// The session ended while a chain was being sent.
    fn end_unsent(&mut self, chain: &mut QueuedChain, error: &ClientError) {
        for member in chain.members.drain(..).skip(chain.sent) {
            self.replies.put(member.ticket, Err(error.clone()));
        }
    }
}
