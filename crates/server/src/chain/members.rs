//! Members of chains: taken in, begun, ended.

use dafs_dat::EndpointId;
use dafs_filer::{Admitted, ChainPlace, KeptSession};
use dafs_types::Status;
use dafs_wire::{ByteOrder, RequestHeader, Response};

use super::Waiting;
use crate::reactor::Reactor;
use crate::reply_to::{ChainId, ReplyTo};
use crate::respond::ReplyStatus;

impl Reactor {
    /// A member of a chain has come.
    pub(crate) fn take_member(
        &mut self,
        mut answer: ReplyTo,
        admitted: &Admitted,
        order: ByteOrder,
        header: &RequestHeader,
        message: &mut [u8],
    ) {
        let kept = admitted.kept;
        let Some(chain) = self.chain_for(answer.endpoint, admitted.place) else {
            // The filer keeps the same account.
            return self.fail(answer, Status::ChainBroken);
        };
        // In place: it was written just now, and a copy would wait for that.
        answer.chain = chain;
        if self.chains.is_busy(chain) {
            // The one before may be a transfer that waits for others to be moved with.
            self.settle();
        }
        if !self.chains.is_busy(chain) {
            self.carry_out_member(answer, kept, order, header, message);
        } else if !self.chains.wait(answer, kept, message) {
            self.chains.break_off(answer);
            self.fail(answer, Status::Resource);
        }
    }

    /// The chain a member belongs to.
    fn chain_for(&mut self, endpoint: EndpointId, place: ChainPlace) -> Option<ChainId> {
        let channel = self.channels.get_mut(endpoint)?;
        match place {
            ChainPlace::Alone => None,
            ChainPlace::First => {
                let chain = self.chains.make(endpoint);
                channel.open_chain = chain;
                Some(chain)
            }
            ChainPlace::Middle => Some(channel.open_chain).filter(|chain| chain.is_some()),
            ChainPlace::Last => {
                let chain = std::mem::replace(&mut channel.open_chain, ChainId::NONE);
                Some(chain).filter(|chain| chain.is_some())
            }
        }
    }

    /// A request was refused before its place was of any matter: if its channel has a chain to
    /// which members could come, none will.
    #[cold]
    pub(crate) fn end_open_chain(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.channels.get_mut(endpoint) {
            let chain = std::mem::replace(&mut channel.open_chain, ChainId::NONE);
            self.chains.note_whole(chain);
            self.chains.free_if_over(chain);
        }
    }

    #[inline(never)]
    fn carry_out_member(
        &mut self,
        answer: ReplyTo,
        kept: KeptSession,
        order: ByteOrder,
        header: &RequestHeader,
        message: &mut [u8],
    ) {
        match self.chains.begin(answer, header, message) {
            Ok(()) => self.carry(answer, kept, order, header, message),
            Err(status) => self.fail(answer, status),
        }
    }

    /// A member's answer is made. It ends with it, unless the journal must have
    /// something first.
    #[inline(never)]
    pub(crate) fn note_member(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        response: &Response<'_>,
    ) {
        self.chains.note(answer, told.status, response);
        if !told.may_wait(answer) {
            self.end_member(answer);
        }
    }

    /// A member's answer could not be made, and a failure is sent instead.
    #[cold]
    pub(crate) fn break_chain(&mut self, answer: ReplyTo) {
        self.chains.break_off(answer);
    }

    /// A member is over: the next one may begin.
    #[inline]
    pub(crate) fn end_member(&mut self, answer: ReplyTo) {
        if answer.chain.is_some() {
            self.chains.end(answer);
        }
    }

    /// Begins every member that waits for nothing any more. Called between events: a member
    /// that ends within another's end would pile them up on the stack.
    #[inline]
    pub(crate) fn push_chains(&mut self) {
        while let Some(chain) = self.chains.ready.pop_front() {
            self.begin_next(chain);
            self.follow_up();
            if self.chains.ready.is_empty() {
                // What was begun may be a transfer that waits for others to be moved with.
                self.settle();
            }
        }
    }

    fn begin_next(&mut self, chain: ChainId) {
        let Some(Waiting { answer, kept, mut message }) = self.chains.next(chain) else { return };
        let Some(order) = self.order_of(answer.endpoint) else { return };
        match RequestHeader::decode(order, &message) {
            Ok(header) => self.carry_out_member(answer, kept, order, &header, &mut message),
            // It was decoded when it came.
            Err(error) => self.fail(answer, error.status()),
        }
    }

    /// A connection is gone: so are its chains. Members under way come to their end alone.
    pub(crate) fn drop_chains(&mut self, endpoint: EndpointId) {
        self.chains.drop_of(endpoint);
    }
}
