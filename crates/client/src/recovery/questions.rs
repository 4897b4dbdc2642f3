//! What a session that recovers asks, and in which order.
//!
//! Invariant: a question is put when those before it in its step have been put, and a step
//! begins when everything of the one before is answered.

use dafs_dat::coarse_now;
use dafs_gss::Initiator;
use dafs_types::{ClientId, SessionId, Status, StreamId};
use dafs_wire::messages::{CachedResponse, ClientAuth, GssProcedure, SessionOptions};
use dafs_wire::{ByteOrder, Procedure, Request, Response, ResponseHeader, decode_results};

use super::rescue::{Outcome, Question, Rescue, Step};
use crate::core::{Core, Pending};
use crate::login::{OPERATION_CHANNEL, Outlook, token_request};

impl Core {
    pub(super) fn rescue(&mut self, index: usize) -> Option<&mut Rescue> {
        self.sessions[index].keeper.as_mut()?.rescue.as_deref_mut()
    }

    /// Sends a request of the recovery's own. False if there is no credit just now, or the
    /// attempt has failed over it.
    pub(super) fn ask(&mut self, index: usize, question: Question, request: &Request<'_>) -> bool {
        let Ok(mut message) = self.encode_call(index, request) else { return false };
        let session = &mut self.sessions[index];
        let Some((stream, sequence)) = session.credits.take_held() else { return false };
        session.stamp(&mut message, stream, sequence);
        if let Some(rescue) = self.rescue(index) {
            rescue.asked += 1;
        }
        self.post(index, stream, Pending::Rescue(question), &[dafs_dat::Gather::Bytes(&message)]);
        self.interface.flush();
        self.rescue(index).is_some_and(|rescue| rescue.step != Step::Pausing)
    }

    /// A question of the recovery's was answered.
    pub fn on_rescued(
        &mut self,
        index: usize,
        question: Question,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let due = coarse_now() + keeper.recovery.attempt_timeout;
        let Some(rescue) = &mut keeper.rescue else { return };
        rescue.asked = rescue.asked.saturating_sub(1);
        rescue.due = due;
        match question {
            Question::Greet => return self.on_greeted(index, header, message),
            Question::Meet => return self.on_met(index, header, message),
            Question::Prove => return self.on_proved(index, header, message),
            Question::Part if super::is_put_off(header.status) => {
                return self.attempt_failed(index, format!("it answered {}", header.status));
            }
            Question::Part | Question::Tidy => {}
            Question::Check(number) => self.on_checked(index, number, header.status),
            Question::Fetch(number) => self.on_fetched(index, number, header, message),
            Question::Enlist(place) => self.on_enlisted(index, place, header, message),
            Question::Reclaim(number, how) => self.on_claimed(index, number, how, header, message),
            Question::Relock(number, _) => self.on_relocked(index, number, header.status),
        }
        self.go_on(index);
    }

    /// Asks what is to be asked, as far as there are credits; then the next step.
    pub(super) fn go_on(&mut self, index: usize) {
        loop {
            let Some(rescue) = self.rescue(index) else { return };
            if let Some(question) = rescue.to_ask.front().copied() {
                if !self.put(index, question) {
                    return;
                }
                if let Some(rescue) = self.rescue(index) {
                    rescue.to_ask.pop_front();
                }
            } else if rescue.asked > 0 || rescue.must_wait() {
                return;
            } else {
                let step = rescue.step;
                match step {
                    Step::Asking => self.begin_enlisting(index),
                    Step::Enlisting => self.begin_reclaiming(index),
                    Step::Reclaiming if rescue.turn_to_names() => {}
                    Step::Reclaiming => return self.finish(index),
                    Step::Pausing | Step::Connecting | Step::Greeting => return,
                }
            }
        }
    }

    /// Puts one question. False if that cannot be done now.
    fn put(&mut self, index: usize, question: Question) -> bool {
        let Some(keeper) = &self.sessions[index].keeper else { return false };
        let (Some(session), Some(rescue)) = (keeper.session, &keeper.rescue) else { return false };
        match question {
            Question::Fetch(number) | Question::Check(number) => {
                let Some(stranded) = rescue.stranded.get(number) else { return true };
                let about = CachedResponse {
                    session,
                    stream: stranded.stream,
                    sequence: stranded.sequence,
                    procedure: stranded.procedure.number(),
                };
                let request = match question {
                    Question::Check(_) => Request::CheckResponse(about),
                    _ => Request::FetchResponse(about),
                };
                self.ask(index, question, &request)
            }
            Question::Part => {
                let about = CachedResponse {
                    session,
                    stream: StreamId(0),
                    sequence: dafs_types::SequenceNumber(0),
                    procedure: Procedure::Null.number(),
                };
                self.ask(index, question, &Request::CheckResponse(about))
            }
            Question::Enlist(place) => {
                let registered = std::mem::take(&mut self.sessions[index].registered);
                let asked = registered.ask_for(place, |request| self.ask(index, question, request));
                self.sessions[index].registered = registered;
                asked.unwrap_or(true)
            }
            Question::Reclaim(number, how) => {
                let Some(claim) = rescue.claims.get(number) else { return true };
                let opened = claim.opened.clone();
                // As whom it was opened.
                self.acting = opened.acting();
                let asked = opened.reclaim(how, |request| self.ask(index, question, request));
                self.acting = None;
                if asked.is_none() {
                    self.settle(index, number, Outcome::Gone);
                }
                asked.unwrap_or(true)
            }
            Question::Relock(number, lock) => {
                let claim = rescue.claims.get(number).filter(|claim| claim.outcome.is_none());
                let Some(claim) = claim else { return true };
                let Some(state) = claim.state else { return true };
                let request = Request::Lock(lock.reclaim(claim.opened.handle, state));
                self.acting = claim.opened.acting();
                let asked = self.ask(index, question, &request);
                self.acting = None;
                asked
            }
            Question::Greet | Question::Meet | Question::Prove | Question::Tidy => true,
        }
    }

    fn on_greeted(&mut self, index: usize, header: &ResponseHeader, message: &[u8]) {
        let procedure = Procedure::ClientConnectAuth;
        let result = decode_results(ByteOrder::NATIVE, procedure, header, message);
        let result = match (header.status, result) {
            (Status::Ok, Ok(Response::ClientConnectAuth(result))) => result,
            (Status::Ok, _) => {
                return self.attempt_failed(index, "an answer that makes no sense".into());
            }
            (status, _) => return self.on_turned_away(index, status),
        };
        if let Some(identity) = &mut self.sessions[index].identity {
            identity.trusted = result.trusted;
        }
        if self.enter(index, &result.options, result.session, result.client) {
            self.begin_asking(index);
        }
    }

    /// The server has a session for the client, which has yet to prove itself.
    fn on_met(&mut self, index: usize, header: &ResponseHeader, message: &[u8]) {
        let result = decode_results(ByteOrder::NATIVE, Procedure::ClientConnect, header, message);
        let result = match (header.status, result) {
            (Status::Ok, Ok(Response::ClientConnect(result))) => result,
            (Status::Ok, _) => {
                return self.attempt_failed(index, "an answer that makes no sense".into());
            }
            (status, _) => return self.on_turned_away(index, status),
        };
        let session = &self.sessions[index];
        let Some(prover) = session.prover.clone() else { return };
        if !self.enter(index, &result.options, result.session, result.client) {
            return;
        }
        match prover.begin(self.sessions[index].binding(OPERATION_CHANNEL)) {
            Ok((party, token)) => self.prove(index, GssProcedure::Init, party, &token),
            Err(unproved) => self.attempt_failed(index, unproved.reason),
        }
    }

    /// Sends a token.
    fn prove(&mut self, index: usize, procedure: GssProcedure, party: Initiator, token: &[u8]) {
        let room = self.sessions[index].token_bytes_max;
        let authentication = match token_request(procedure, token, room) {
            Ok(authentication) => authentication,
            Err(unproved) => return self.attempt_failed(index, unproved.reason),
        };
        let Some(rescue) = self.rescue(index) else { return };
        rescue.party = Some(party);
        // For this request alone: the receives of all others are small.
        let usual = std::mem::replace(&mut self.sessions[index].request_bytes_max, room);
        self.ask(index, Question::Prove, &Request::ClientAuth(ClientAuth { authentication }));
        self.sessions[index].request_bytes_max = usual;
    }

    /// The server has looked at the token. Whatever is wrong with it, a fresh ticket may mend.
    fn on_proved(&mut self, index: usize, header: &ResponseHeader, message: &[u8]) {
        let results = decode_results(ByteOrder::NATIVE, Procedure::ClientAuth, header, message);
        let result = match &results {
            Ok(Response::ClientAuth(result)) => Some(result),
            _ => None,
        };
        let party = self.rescue(index).and_then(|rescue| rescue.party.take());
        let prover = self.sessions[index].prover.clone();
        let (Some(party), Some(prover)) = (party, prover) else { return };
        let theirs = result.map(|result| &result.authentication);
        match prover.go_on(party, header.status, theirs) {
            Ok(Outlook::Token(party, token)) => {
                self.prove(index, GssProcedure::Continue, party, &token);
            }
            Ok(Outlook::Proved(context)) => {
                let trusted = result.is_some_and(|result| result.trusted);
                self.sessions[index].note_proof(&context, trusted);
                self.begin_asking(index);
            }
            Err(unproved) => self.attempt_failed(index, unproved.reason),
        }
    }

    /// The server has made a session. False if it is of no use.
    fn enter(
        &mut self,
        index: usize,
        granted: &SessionOptions,
        id: SessionId,
        client: ClientId,
    ) -> bool {
        let session = &mut self.sessions[index];
        (session.id, session.client) = (id, client);
        if let Err(error) = self.apply(index, granted) {
            self.attempt_failed(index, error.to_string());
            return false;
        }
        if !granted.response_cache {
            // What is still to be asked has no answer there.
            self.end_recovery(index, "the server keeps no results any more");
            return false;
        }
        true
    }

    /// The server has let the client in.
    fn begin_asking(&mut self, index: usize) {
        let (id, client) = (self.sessions[index].id, self.sessions[index].client);
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let is_restarted = keeper.client != client;
        let Some(rescue) = &mut keeper.rescue else { return };
        (rescue.session, rescue.client) = (Some(id), client);
        rescue.begin_step(Step::Asking, keeper.recovery.attempt_timeout);
        if is_restarted {
            keeper.opens.all().for_each(crate::opens::Opened::note_restart);
            self.conclude_closes(index);
        }
        if let Some(rescue) = self.rescue(index) {
            let open =
                (0..rescue.stranded.len()).filter(|&number| rescue.stranded[number].is_open());
            rescue.to_ask = open.map(Question::Fetch).collect();
            if rescue.to_ask.is_empty() {
                rescue.to_ask.push_back(Question::Part);
            }
        }
        self.go_on(index);
    }

    /// The server lets the client in no more, or not now.
    fn on_turned_away(&mut self, index: usize, status: Status) {
        let reason = format!("the server refused this client: {status}");
        match status {
            Status::Access | Status::Perm | Status::NotAuthorized | Status::WrongSec => {
                self.end_recovery(index, &reason);
            }
            _ => self.attempt_failed(index, reason),
        }
    }

    fn end_recovery(&mut self, index: usize, reason: &str) {
        self.cut(index);
        let reason = match self.rescue(index) {
            Some(rescue) => format!("{}; then {reason}", rescue.reason),
            None => reason.to_owned(),
        };
        self.give_up_for_good(index, reason);
    }
}
