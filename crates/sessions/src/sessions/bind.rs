//! CONNECT_BIND, which adds channels to a session (draft 3.1.2.1, 6.2.5).
//!
//! Invariant: a session has at most one channel of each kind. All its channels are authenticated as
//! the session's principal, and end with the session.

use dafs_filer::Principal;
use dafs_types::{Moment, SessionId, Status};

use super::{Phase, Sessions};
use crate::{AuthDecision, AuthRequest, ChannelId, ChannelKind, PROTOCOL_VERSION, Verified};

/// The arguments of a CONNECT_BIND request.
#[derive(Clone, Copy, Debug)]
pub struct BindArguments<'a> {
    /// The version from the message header.
    pub protocol_version: u32,
    /// The id of the session to which the channel is to be bound.
    pub session: SessionId,
    /// The purpose of the channel.
    pub kind: ChannelKind,
    /// The proof that the peer is the session's principal.
    pub proof: AuthRequest<'a>,
}

impl Sessions {
    /// Handles the first step of CONNECT_BIND; [`Sessions::finish_bind`] is the second step.
    ///
    /// The status of a rejection is: ILLEGAL_PROT for another protocol version; INVAL if the
    /// connection was opened for another purpose; UNKNOWN_SESSION; ILLEGAL_STATE if the session
    /// already has such a channel or has not authenticated; NOTSUPP if no such channel was
    /// negotiated; NOT_AUTHORIZED for another principal.
    pub fn begin_bind(&mut self, channel: ChannelId, bind: &BindArguments<'_>) -> AuthDecision {
        match self.try_bind(channel, bind) {
            Ok(decision) => decision,
            Err(status) => {
                self.counters.connects_refused += 1;
                AuthDecision::Reject(status)
            }
        }
    }

    fn try_bind(
        &mut self,
        channel: ChannelId,
        bind: &BindArguments<'_>,
    ) -> Result<AuthDecision, Status> {
        if bind.protocol_version != PROTOCOL_VERSION {
            return Err(Status::IllegalProt);
        }
        let cold = self.cold(channel).ok_or(Status::IllegalState)?;
        if cold.description.kind != bind.kind || bind.kind == ChannelKind::Operation {
            return Err(Status::Inval);
        }
        let is_next = matches!(bind.proof, AuthRequest::Gss { is_first: false });
        if self.hot[channel.index()].phase != Phase::Opened || is_next && !cold.awaits_token {
            return Err(Status::IllegalState);
        }
        let (claim, decision) = self.determine_proof(&cold.peer, bind.proof)?;
        let operation = self.may_bind(bind, claim.as_ref())?;
        let (hot, cold) = self.live(channel).ok_or(Status::IllegalState)?;
        cold.awaits_token = false;
        cold.binding = Some(operation);
        cold.claim = claim;
        hot.phase = Phase::Verifying;
        Ok(decision)
    }

    /// Checks whether a channel may be bound. Returns the operation channel of the session.
    fn may_bind(
        &self,
        bind: &BindArguments<'_>,
        claim: Option<&Principal>,
    ) -> Result<ChannelId, Status> {
        let &index = self.by_id.get(&bind.session).ok_or(Status::UnknownSession)?;
        let hot = self.hot.get(index as usize).ok_or(Status::UnknownSession)?;
        let operation = ChannelId { index, generation: hot.generation };
        let cold = self.cold(operation).ok_or(Status::UnknownSession)?;
        let session = cold.session.as_ref().ok_or(Status::UnknownSession)?;
        if !hot.phase.has_session() {
            return Err(Status::IllegalState);
        }
        let (was_agreed, present) = match bind.kind {
            ChannelKind::Operation => (0, None),
            ChannelKind::BackControl => {
                (session.granted.use_back_control_channel, session.back_control)
            }
            ChannelKind::RdmaRead => (session.granted.use_rdma_read_channel, session.rdma_read),
        };
        if was_agreed == 0 {
            Err(Status::NotSupp)
        } else if present.is_some() {
            Err(Status::IllegalState)
        } else if claim.is_some() && session.principal.as_ref() != claim {
            Err(Status::NotAuthorized)
        } else {
            Ok(operation)
        }
    }

    /// Finishes CONNECT_BIND. `verified` is the result of the server's check. Returns the operation
    /// channel of the session. The new channel lasts as long as its session, even if the proof that
    /// was given for the channel expires earlier.
    ///
    /// # Errors
    /// The status for the reply: the status in `verified`; NOT_AUTHORIZED if the principal is not
    /// the session's; UNKNOWN_SESSION if the session has ended since the first step; ILLEGAL_STATE
    /// if another channel was bound meanwhile.
    pub fn finish_bind(
        &mut self,
        channel: ChannelId,
        verified: Result<Verified, Status>,
        now: Moment,
    ) -> Result<ChannelId, Status> {
        let outcome = self.bind(channel, verified);
        match outcome {
            Ok(_) => {
                let (hot, _) = self.live(channel).ok_or(Status::IllegalState)?;
                hot.phase = Phase::Bound;
                hot.last_heard = now;
                self.settle_share(channel);
                self.authenticated_count += 1;
            }
            Err(status) => self.authentication_failed(channel, status),
        }
        outcome
    }

    fn bind(
        &mut self,
        channel: ChannelId,
        verified: Result<Verified, Status>,
    ) -> Result<ChannelId, Status> {
        let verified = verified?;
        let (hot, cold) = self.live(channel).ok_or(Status::IllegalState)?;
        let (Phase::Verifying, Some(operation)) = (hot.phase, cold.binding) else {
            return Err(Status::IllegalState);
        };
        let kind = cold.description.kind;
        let principal = verified.principal.or_else(|| cold.claim.take());
        let (_, owner) = self.live(operation).ok_or(Status::UnknownSession)?;
        let session = owner.session.as_mut().ok_or(Status::UnknownSession)?;
        if principal.is_none() || session.principal != principal {
            return Err(Status::NotAuthorized);
        }
        let place = match kind {
            ChannelKind::Operation => return Err(Status::IllegalState),
            ChannelKind::BackControl => &mut session.back_control,
            ChannelKind::RdmaRead => &mut session.rdma_read,
        };
        if place.is_some() {
            return Err(Status::IllegalState);
        }
        *place = Some(channel);
        if let Some((_, cold)) = self.live(channel) {
            cold.credentials = Some(verified.who);
        }
        Ok(operation)
    }

    /// Returns the back-control channel of an operation channel's session. `None` if there is none.
    #[must_use]
    pub fn back_control(&self, operation: ChannelId) -> Option<ChannelId> {
        self.cold(operation)?.session.as_ref()?.back_control
    }

    /// Returns the operation channel to whose session a channel is bound, and the purpose of the
    /// bound channel. `None` if the channel is not bound.
    #[must_use]
    pub fn bound_to(&self, channel: ChannelId) -> Option<(ChannelId, ChannelKind)> {
        let cold = self.cold(channel)?;
        let is_bound = self.hot[channel.index()].phase == Phase::Bound;
        Some((cold.binding.filter(|_| is_bound)?, cold.description.kind))
    }

    /// Marks the bound channels of a session that has ended as channels that the server must close.
    pub(super) fn orphan(&mut self, channels: [Option<ChannelId>; 2]) {
        for channel in channels.into_iter().flatten() {
            if let Some((hot, _)) = self.live(channel) {
                hot.phase = Phase::Condemned;
                self.orphans.push(channel);
            }
        }
    }

    /// Removes a bound channel that has ended from its session, which continues without it.
    pub(super) fn unbind(&mut self, channel: ChannelId, operation: ChannelId) {
        if let Some((_, cold)) = self.live(operation)
            && let Some(session) = &mut cold.session
        {
            for place in [&mut session.back_control, &mut session.rdma_read] {
                if *place == Some(channel) {
                    *place = None;
                }
            }
        }
    }

    /// Removes and returns the channels whose session has ended since the last call. The server
    /// must close them.
    pub fn take_orphaned_channels(&mut self) -> Vec<ChannelId> {
        std::mem::take(&mut self.orphans)
    }
}
