//! Sends the requests by which a session recovers ([`Question`]).
//!
//! Invariant: the requests of a step are sent in order, and a step begins when all replies of the
//! previous step have arrived.

use dafs_dat::{Gather, coarse_now};
use dafs_gss::Initiator;
use dafs_types::{ClientId, SessionId, Status, StreamId};
use dafs_wire::messages::{CachedResponse, ClientAuth, GssProcedure, SessionOptions};
use dafs_wire::{ByteOrder, Procedure, Request, Response, ResponseHeader, decode_results};

use crate::core::Core;
use crate::ids::SessionKey;
use crate::impersonation::RegisteredCredentials;
use crate::login::tokens::{AuthStep, OPERATION_CHANNEL, token_request};
use crate::opens::Opened;
use crate::recovery::delay::means_delay;
use crate::recovery::progress::{ClaimOutcome, RecoveryProgress, Step};
use crate::recovery::question::Question;
use crate::work::Pending;

impl Core {
    pub(super) fn recovery_progress(&mut self, key: SessionKey) -> Option<&mut RecoveryProgress> {
        self.sessions[key].recovery.as_mut()?.progress.as_deref_mut()
    }

    /// Sends a recovery request. Returns false if there is no credit, or if sending made the
    /// attempt fail.
    pub(super) fn ask(
        &mut self,
        key: SessionKey,
        question: Question,
        request: &Request<'_>,
    ) -> bool {
        self.ask_for(key, None, question, request)
    }

    /// Sends a recovery request with the credentials of an impersonated user.
    fn ask_for(
        &mut self,
        key: SessionKey,
        acting: Option<RegisteredCredentials>,
        question: Question,
        request: &Request<'_>,
    ) -> bool {
        let bytes_max = self.sessions[key].terms.request_bytes_max;
        self.ask_within(key, bytes_max, acting, question, request)
    }

    /// Sends a recovery request of at most `bytes_max` bytes.
    fn ask_within(
        &mut self,
        key: SessionKey,
        bytes_max: u32,
        acting: Option<RegisteredCredentials>,
        question: Question,
        request: &Request<'_>,
    ) -> bool {
        let session = &mut self.sessions[key];
        let Ok(mut message) = session.encode_call(bytes_max, acting, request) else {
            return false;
        };
        let Some((stream, sequence)) = session.in_flight.credits.take_held() else { return false };
        session.stamp(&mut message, stream, sequence);
        let link = (key, session.endpoint);
        if let Some(progress) = self.recovery_progress(key) {
            progress.asked += 1;
        }
        self.post(link, stream, Pending::Recovery(question), &[Gather::Bytes(&message)]);
        self.transport.flush();
        self.recovery_progress(key).is_some_and(|progress| progress.step != Step::Pausing)
    }

    /// Handles the reply to a recovery request.
    pub(crate) fn on_recovery_reply(
        &mut self,
        key: SessionKey,
        question: Question,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let due = coarse_now() + machine.limits.attempt_timeout;
        let Some(progress) = &mut machine.progress else { return };
        progress.asked = progress.asked.saturating_sub(1);
        progress.due = due;
        match question {
            Question::ConnectAuth => return self.on_greeted(key, header, message),
            Question::Connect => return self.on_connect_reply(key, header, message),
            Question::Authenticate => return self.on_auth_reply(key, header, message),
            Question::EndOldSession if means_delay(header.status) => {
                return self.attempt_failed(key, format!("the server replied {}", header.status));
            }
            Question::EndOldSession | Question::Ignore => {}
            Question::Check(number) => self.on_checked(key, number, header.status),
            Question::Fetch(number) => self.on_fetched(key, number, header, message),
            Question::RegisterCredentials(place) => self.on_registered(key, place, header, message),
            Question::Reclaim(number, how) => self.on_claimed(key, number, how, header, message),
            Question::Relock(number, _) => self.on_lock_reply(key, number, header.status),
        }
        self.ask_next(key);
    }

    /// Sends as many recovery requests as there are credits, and goes to the next step when a step
    /// is complete.
    pub(super) fn ask_next(&mut self, key: SessionKey) {
        loop {
            let Some(progress) = self.recovery_progress(key) else { return };
            if let Some(question) = progress.to_ask.front().copied() {
                if !self.put(key, question) {
                    return;
                }
                if let Some(progress) = self.recovery_progress(key) {
                    progress.to_ask.pop_front();
                }
            } else if progress.asked > 0 || progress.must_wait() {
                return;
            } else {
                let step = progress.step;
                match step {
                    Step::Asking => self.begin_registering(key),
                    Step::Registering => self.begin_reclaiming(key),
                    Step::Reclaiming if progress.turn_to_names() => {}
                    Step::Reclaiming => return self.finish(key),
                    Step::Pausing | Step::Connecting | Step::Authenticating => return,
                }
            }
        }
    }

    /// Sends the recovery request `question`. Returns false if it cannot be sent now.
    fn put(&mut self, key: SessionKey, question: Question) -> bool {
        let Some(machine) = &self.sessions[key].recovery else { return false };
        let (Some(session), Some(progress)) = (machine.session, &machine.progress) else {
            return false;
        };
        match question {
            Question::Fetch(number) | Question::Check(number) => {
                let Some(interrupted) = progress.interrupted.get(number) else { return true };
                let about = CachedResponse {
                    session,
                    stream: interrupted.stream,
                    sequence: interrupted.sequence,
                    procedure: interrupted.procedure.number(),
                };
                let request = match question {
                    Question::Check(_) => Request::CheckResponse(about),
                    _ => Request::FetchResponse(about),
                };
                self.ask(key, question, &request)
            }
            Question::EndOldSession => {
                let about = CachedResponse {
                    session,
                    stream: StreamId(0),
                    sequence: dafs_types::SequenceNumber(0),
                    procedure: Procedure::Null.number(),
                };
                self.ask(key, question, &Request::CheckResponse(about))
            }
            Question::RegisterCredentials(place) => {
                let registered = std::mem::take(&mut self.sessions[key].standing.registered);
                let asked = registered.ask_for(place, |request| self.ask(key, question, request));
                self.sessions[key].standing.registered = registered;
                asked.unwrap_or(true)
            }
            Question::Reclaim(number, how) => {
                let Some(claim) = progress.claims.get(number) else { return true };
                let opened = claim.opened.clone();
                // The OPEN uses the same credentials as the original one.
                let acting = opened.acting();
                let ask = |request: &Request<'_>| self.ask_for(key, acting, question, request);
                let asked = opened.reclaim(how, ask);
                if asked.is_none() {
                    self.set_claim_outcome(key, number, ClaimOutcome::Gone);
                }
                asked.unwrap_or(true)
            }
            Question::Relock(number, lock) => {
                let claim = progress.claims.get(number).filter(|claim| claim.outcome.is_none());
                let Some(claim) = claim else { return true };
                let Some(state) = claim.state else { return true };
                let request = Request::Lock(lock.reclaim(claim.opened.handle, state));
                let acting = claim.opened.acting();
                self.ask_for(key, acting, question, &request)
            }
            Question::ConnectAuth
            | Question::Connect
            | Question::Authenticate
            | Question::Ignore => true,
        }
    }

    fn on_greeted(&mut self, key: SessionKey, header: &ResponseHeader, message: &[u8]) {
        let procedure = Procedure::ClientConnectAuth;
        let result = decode_results(ByteOrder::NATIVE, procedure, header, message);
        let result = match (header.status, result) {
            (Status::Ok, Ok(Response::ClientConnectAuth(result))) => result,
            (Status::Ok, _) => {
                return self.attempt_failed(key, "an invalid reply".into());
            }
            (status, _) => return self.on_login_refused(key, status),
        };
        if let Some(identity) = &mut self.sessions[key].standing.identity {
            identity.trusted = result.trusted;
        }
        if self.accept_session(key, &result.options, result.session, result.client) {
            self.begin_asking(key);
        }
    }

    /// Handles the reply to CLIENT_CONNECT, after which the client must authenticate.
    fn on_connect_reply(&mut self, key: SessionKey, header: &ResponseHeader, message: &[u8]) {
        let result = decode_results(ByteOrder::NATIVE, Procedure::ClientConnect, header, message);
        let result = match (header.status, result) {
            (Status::Ok, Ok(Response::ClientConnect(result))) => result,
            (Status::Ok, _) => {
                return self.attempt_failed(key, "an invalid reply".into());
            }
            (status, _) => return self.on_login_refused(key, status),
        };
        let session = &self.sessions[key];
        let Some(prover) = session.standing.prover.clone() else { return };
        if !self.accept_session(key, &result.options, result.session, result.client) {
            return;
        }
        match prover.begin(self.sessions[key].binding(OPERATION_CHANNEL)) {
            Ok((party, token)) => self.prove(key, GssProcedure::Init, party, &token),
            Err(unproved) => self.attempt_failed(key, unproved.reason),
        }
    }

    /// Sends CLIENT_AUTH with a token.
    fn prove(&mut self, key: SessionKey, procedure: GssProcedure, party: Initiator, token: &[u8]) {
        let room = self.sessions[key].terms.token_bytes_max;
        let authentication = match token_request(procedure, token, room) {
            Ok(authentication) => authentication,
            Err(unproved) => return self.attempt_failed(key, unproved.reason),
        };
        let Some(progress) = self.recovery_progress(key) else { return };
        progress.party = Some(party);
        // Only this request needs a longer limit: the receives for all other requests are small.
        let request = Request::ClientAuth(ClientAuth { authentication });
        self.ask_within(key, room, None, Question::Authenticate, &request);
    }

    /// Handles the reply to a token. Any failure ends only this attempt, because a fresh ticket may
    /// solve the problem.
    fn on_auth_reply(&mut self, key: SessionKey, header: &ResponseHeader, message: &[u8]) {
        let results = decode_results(ByteOrder::NATIVE, Procedure::ClientAuth, header, message);
        let result = match &results {
            Ok(Response::ClientAuth(result)) => Some(result),
            _ => None,
        };
        let party = self.recovery_progress(key).and_then(|progress| progress.party.take());
        let prover = self.sessions[key].standing.prover.clone();
        let (Some(party), Some(prover)) = (party, prover) else { return };
        let theirs = result.map(|result| &result.authentication);
        match prover.process_reply(party, header.status, theirs) {
            Ok(AuthStep::Token(party, token)) => {
                self.prove(key, GssProcedure::Continue, party, &token);
            }
            Ok(AuthStep::Proved(context)) => {
                let trusted = result.is_some_and(|result| result.trusted);
                self.sessions[key].note_proof(&context, trusted);
                self.begin_asking(key);
            }
            Err(unproved) => self.attempt_failed(key, unproved.reason),
        }
    }

    /// Applies the parameters of the new session. Returns false if the session is unusable.
    fn accept_session(
        &mut self,
        key: SessionKey,
        granted: &SessionOptions,
        id: SessionId,
        client: ClientId,
    ) -> bool {
        let session = &mut self.sessions[key];
        (session.standing.session, session.standing.client) = (id, client);
        if let Err(error) = self.apply(key, granted) {
            self.attempt_failed(key, error.in_full());
            return false;
        }
        if !granted.response_cache {
            // The remaining questions need the results that the server kept.
            self.end_recovery(key, "the server no longer keeps results");
            return false;
        }
        true
    }

    /// Starts to ask the server for the outcomes of interrupted requests, after the server has
    /// accepted the client.
    fn begin_asking(&mut self, key: SessionKey) {
        let (id, client) =
            (self.sessions[key].standing.session, self.sessions[key].standing.client);
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let is_restarted = machine.client != client;
        let Some(progress) = &mut machine.progress else { return };
        (progress.session, progress.client) = (Some(id), client);
        progress.begin_step(Step::Asking, machine.limits.attempt_timeout);
        if is_restarted {
            self.restart_additional(key);
        }
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        if is_restarted {
            machine.opens.all().for_each(Opened::note_restart);
            self.complete_closes(key);
        }
        if let Some(progress) = self.recovery_progress(key) {
            let open = (0..progress.interrupted.len())
                .filter(|&number| progress.interrupted[number].is_open());
            progress.to_ask = open.map(Question::Fetch).collect();
            if progress.to_ask.is_empty() {
                progress.to_ask.push_back(Question::EndOldSession);
            }
        }
        self.ask_next(key);
    }

    /// Handles a reply in which the server refuses this client's identity.
    fn on_login_refused(&mut self, key: SessionKey, status: Status) {
        let reason = format!("the server refused this client: {status}");
        match status {
            Status::Access | Status::Perm | Status::NotAuthorized | Status::WrongSec => {
                self.end_recovery(key, &reason);
            }
            _ => self.attempt_failed(key, reason),
        }
    }

    fn end_recovery(&mut self, key: SessionKey, reason: &str) {
        self.transport.close(self.sessions[key].endpoint);
        let reason = match self.recovery_progress(key) {
            Some(progress) => format!("{}; then {reason}", progress.reason),
            None => reason.to_owned(),
        };
        self.give_up_for_good(key, reason);
    }
}
