//! Moves transfers to the first channel if their additional channel cannot reconnect.
//!
//! Invariant: a transfer moves only after the server has replied, over the first channel, that no
//! request of the old session is running any more and whether the transfer was executed. So no
//! transfer is lost or executed twice.

use dafs_dat::coarse_now;
use dafs_types::SequenceNumber;
use dafs_types::StreamId;
use dafs_wire::messages::{CachedResponse, DiscardResponses};
use dafs_wire::{ByteOrder, Procedure, Request, ResponseHeader};

use crate::channels::{Role, TakeoverQuestion};
use crate::core::Core;
use crate::error::ClientError;
use crate::ids::SessionKey;
use crate::recovery::interrupted::{Fate, InterruptedRequest};
use crate::sizes::LOOK_PERIOD;
use crate::work::Work;

impl Core {
    /// Gives up an additional channel that cannot reconnect. Returns false if the first channel
    /// cannot take over its transfers.
    pub(super) fn give_up_channel(&mut self, key: SessionKey) -> bool {
        let Some(first) = self.sessions[key].role.first() else { return false };
        if self.sessions.open(first).is_err() {
            return false;
        }
        let session = &mut self.sessions[key];
        self.transport.close(session.endpoint);
        session.in_flight.begin_again(session.terms.wanted_credits);
        let Some(machine) = &mut session.recovery else { return false };
        let (Some(old), Some(progress)) = (machine.session, &mut machine.progress) else {
            return false;
        };
        progress.break_off("the channel was given up".into(), coarse_now() + LOOK_PERIOD);
        let mut questions: Vec<(Option<usize>, Request<'static>)> = Vec::new();
        for (number, interrupted) in progress.interrupted.iter().enumerate() {
            if interrupted.is_open() {
                let about = CachedResponse {
                    session: old,
                    stream: interrupted.stream,
                    sequence: interrupted.sequence,
                    procedure: interrupted.procedure.number(),
                };
                questions.push((Some(number), Request::FetchResponse(about)));
            }
        }
        if questions.is_empty() {
            let (stream, sequence) = (StreamId(0), SequenceNumber(0));
            let procedure = Procedure::Null.number();
            let about = CachedResponse { session: old, stream, sequence, procedure };
            questions.push((None, Request::CheckResponse(about)));
        }
        let mut asked = Vec::new();
        for (number, request) in questions {
            let Ok(ticket) = self.start_call(first, None, &request) else { return false };
            asked.push(TakeoverQuestion { number, ticket: Some(ticket) });
        }
        self.transport.flush();
        if let Role::Additional(additional) = &mut self.sessions[key].role {
            additional.questions = asked;
        }
        self.sessions.note_timer();
        true
    }

    /// Checks whether the server has replied to all queries about a channel that was given up, and
    /// then moves the channel's transfers.
    pub(crate) fn check_takeover(&mut self, key: SessionKey) {
        let Role::Additional(additional) = &mut self.sessions[key].role else { return };
        if additional.questions.is_empty() {
            return;
        }
        let first = additional.first;
        let mut answers = Vec::new();
        for question in &mut additional.questions {
            let Some(ticket) = question.ticket else { continue };
            if let Some(answer) = self.sinks.replies.take(ticket) {
                question.ticket = None;
                answers.push((question.number, answer));
            }
        }
        let is_over = additional.questions.iter().all(|question| question.ticket.is_none());
        let client = self.sessions.get(first).map(|session| session.standing.client);
        if let (Some(progress), Some(client)) = (self.recovery_progress(key), client) {
            // The replies come from the server incarnation of the first channel.
            progress.client = client;
        }
        for (number, answer) in answers {
            let (Some(number), Ok(message)) = (number, answer) else { continue };
            if let Ok(header) = ResponseHeader::decode(ByteOrder::NATIVE, &message) {
                self.on_fetched(key, number, &header, &message);
            }
        }
        if is_over {
            self.finish_takeover(key);
        }
    }

    /// Moves the transfers that were not executed into the first channel's queue, before all later
    /// requests.
    fn finish_takeover(&mut self, key: SessionKey) {
        let Some(first) = self.sessions[key].role.first() else { return };
        if self.sessions.open(first).is_err() {
            // The first channel has ended, which ends this channel too.
            return;
        }
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let Some(progress) = machine.progress.take() else { return };
        let old = machine.session.take();
        let client = machine.client;
        let delayed = machine.take_delayed().into_iter().map(|delayed| delayed.work);
        let mut works: Vec<Work> = delayed.chain(session.in_flight.end().1).collect();
        let what = || "a request whose stored result is invalid".into();
        for InterruptedRequest { work, fate, .. } in progress.interrupted {
            match (work, fate) {
                (Some(work), Fate::NotDone) => works.push(work),
                // The chain of this member is run again from its start.
                (Some(Work::Member(_)), Fate::Opened(_)) => {}
                (Some(work), Fate::Unknown | Fate::Opened(_)) => {
                    self.fail(work, &ClientError::OutcomeUnknown { what: what() });
                }
                (None, _) => {}
            }
        }
        works.extend(progress.chains.into_iter().map(Work::Chain));
        works.sort_by_key(Work::id);
        let is_restarted = self.sessions[first].standing.client != client;
        self.sessions[first].role.replace(key, first);
        for work in works {
            match work {
                Work::Transfer(transfer) if transfer.is_cancelled => {
                    self.complete(&transfer, Err(ClientError::Cancelled));
                }
                Work::Transfer(mut transfer) => {
                    transfer.move_to_first_channel();
                    self.sessions[first].in_flight.push_transfer(transfer);
                }
                Work::Chain(chain) => self.move_chain(first, &chain, is_restarted),
                // The remaining members are sent as one chain.
                Work::Member(_) => {}
                call @ Work::Call(_) => self.fail(call, &ClientError::Cancelled),
            }
        }
        self.end_session(key, "the channel was given up".into());
        for session in progress.left.into_iter().chain(progress.session).chain(old) {
            // The server may discard results that are no longer needed.
            let _ = self.send_ignoring_reply(
                first,
                &Request::DiscardResponses(DiscardResponses { session }),
            );
        }
        self.pump(first);
        self.transport.flush();
    }
}

impl Role {
    /// Returns true if the channel was given up and the server has not yet replied to all queries
    /// about its requests.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self, Self::Additional(additional) if !additional.questions.is_empty())
    }
}
