//! Admits requests, and accounts for replies.
//!
//! Invariant: a request holds its credit and stream from `admit` to `finish`, whether it is
//! executed or refused. A usual request takes only one branch here; all special cases are handled
//! in separate functions.

use dafs_filer::Filer;
use dafs_types::{CredHandle, Moment, Status, StreamId};

use super::{Phase, Sessions};
use crate::chain::ChainState;
use crate::{
    Admitted, BreakReason, ChainFlags, ChainPlace, ChannelId, Grant, Refusal, RequestClass,
    RequestHead,
};

impl Sessions {
    /// Admits a request: marks its credit and stream as used, renews the lease, and checks that the
    /// request is allowed in the session's phase.
    ///
    /// # Errors
    /// After [`Refusal::Answer`] the request holds its credit until [`Sessions::finish`]; after
    /// [`Refusal::Break`] the channel accepts no more requests.
    #[inline]
    pub fn admit(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        head: &RequestHead,
        now: Moment,
    ) -> Result<Admitted, Refusal> {
        let taken = match self.hot.get_mut(channel.index()) {
            Some(hot) if hot.generation == channel.generation && hot.phase.listens() => {
                match hot.window.on_request(head.stream, head.desired_credits) {
                    Ok(outstanding) => {
                        hot.last_heard = now;
                        if hot.kept.is_some()
                            && let Some(first) = hot.window.take_expired()
                        {
                            // The client knows that it may not use these streams any more (draft
                            // 5.2.2).
                            self.kept.drop_streams_from(hot.kept, first);
                        }
                        let (kept, place) = (hot.kept, ChainPlace::Alone);
                        let begins_incarnation = hot.phase == Phase::Proven;
                        let admitted = Admitted { outstanding, kept, place, begins_incarnation };
                        let is_usual = hot.phase == Phase::Authenticated
                            && head.is_plain()
                            && hot.chain == ChainState::Closed;
                        if is_usual {
                            return Ok(admitted);
                        }
                        if begins_incarnation && !self.begin_incarnation(filer, channel, now) {
                            Err(Refusal::Break(BreakReason::ChannelClosing))
                        } else {
                            let judged = self.check_unusual(channel, head).map_err(Refusal::Answer);
                            judged.map(|place| Admitted { place, ..admitted })
                        }
                    }
                    Err(reason) => Err(Refusal::Break(reason)),
                }
            }
            _ => Err(Refusal::Break(BreakReason::ChannelClosing)),
        };
        if let Err(refusal) = taken {
            self.note_refusal(channel, refusal);
        }
        taken
    }

    /// Checks a request that is not just an ordinary request of an authenticated session.
    #[cold]
    fn check_unusual(
        &mut self,
        channel: ChannelId,
        head: &RequestHead,
    ) -> Result<ChainPlace, Status> {
        let hot = &mut self.hot[channel.index()];
        let place = hot.chain.admit(head.chain_flags, head.class, head.procedure)?;
        let allowed = hot.phase.allows(head.class);
        let judged = allowed.and_then(|()| self.check_identity(channel, head));
        if judged.is_err() {
            self.hot[channel.index()].chain.break_off();
        }
        judged.map(|()| place)
    }

    /// Records that the channel's last request was damaged, so that it is unknown whether another
    /// member of a chain follows.
    #[cold]
    pub fn mark_chain_unknown(&mut self, channel: ChannelId) {
        if let Some((hot, _)) = self.live(channel) {
            hot.chain = ChainState::Unknown;
        }
    }

    #[cold]
    fn note_refusal(&mut self, channel: ChannelId, refusal: Refusal) {
        match refusal {
            Refusal::Answer(_) => self.counters.requests_refused += 1,
            Refusal::Break(reason) => {
                match reason {
                    BreakReason::CreditsExceeded => self.counters.breaks_credits += 1,
                    BreakReason::StreamOutOfRange | BreakReason::StreamBusy => {
                        self.counters.breaks_stream += 1;
                    }
                    BreakReason::ChannelClosing => self.counters.breaks_closing += 1,
                }
                if let Some((hot, _)) = self.live(channel) {
                    hot.phase = Phase::Condemned;
                }
            }
        }
    }

    /// Returns the credit target that the channel's next reply will probably contain.
    /// [`Sessions::finish`] may still choose another.
    #[must_use]
    #[inline]
    pub fn likely_target(&self, channel: ChannelId) -> u16 {
        match self.hot.get(channel.index()) {
            Some(hot) if hot.generation == channel.generation => hot.window.target(),
            _ => 1,
        }
    }

    /// Counts a reply that is about to be sent: frees the stream and the credit, and returns the
    /// credit target for the reply's header. For an unknown channel, the returned grant is zero.
    #[inline]
    pub fn finish(&mut self, channel: ChannelId, stream: StreamId) -> Grant {
        match self.hot.get_mut(channel.index()) {
            Some(hot) if hot.generation == channel.generation => {
                let is_acting = hot.acting != 0;
                let grant = hot.window.on_reply(stream, &mut self.budget);
                if is_acting {
                    self.end_acting(channel, stream);
                }
                grant
            }
            _ => Grant { target_credits: 1, receives_to_post: 0 },
        }
    }
}

impl Phase {
    /// Returns true if the channel has an authenticated session that may send requests.
    pub(super) fn has_session(self) -> bool {
        matches!(self, Self::Proven | Self::Authenticated)
    }

    fn listens(self) -> bool {
        !matches!(self, Self::Vacant | Self::Bound | Self::Condemned)
    }
}

impl RequestHead {
    /// Returns true if the request needs no special check in an authenticated session.
    fn is_plain(&self) -> bool {
        self.class == RequestClass::Ordinary
            && self.chain_flags.0 == 0
            && self.cred_handle == CredHandle(0)
    }
}

impl Phase {
    /// Checks that requests of this class are allowed in this phase (draft 6.2.1, 6.2.2).
    fn allows(self, class: RequestClass) -> Result<(), Status> {
        use RequestClass as Class;
        match (self, class) {
            (Self::Opened, Class::Connect | Class::Bind)
            | (Self::Connected, Class::Authenticate)
            | (Self::Connected | Self::Verifying, Class::SecurityInfo | Class::Disconnect)
            | (
                Self::Authenticated,
                Class::SecurityInfo | Class::Disconnect | Class::Special | Class::Ordinary,
            )
            // `check_identity` checks whether this client may send the request.
            | (Self::Authenticated, Class::Authenticate | Class::Credential)
            | (
                Self::Lapsed,
                Class::SecurityInfo | Class::Disconnect | Class::Authenticate,
            ) => Ok(()),
            (Self::Opened, Class::Authenticate | Class::SecurityInfo | Class::Disconnect)
            | (Self::Connected | Self::Verifying, Class::Connect | Class::Bind)
            | (Self::Authenticated | Self::Lapsed, Class::Connect | Class::Bind)
            | (Self::Verifying, Class::Authenticate) => Err(Status::IllegalState),
            (
                Self::Opened | Self::Connected | Self::Verifying | Self::Lapsed,
                Class::Credential | Class::Special | Class::Ordinary,
            ) => Err(Status::NotAuthenticated),
            // `Proven` is not expected here, because it becomes `Authenticated` before its request
            // is checked.
            (Self::Vacant | Self::Bound | Self::Proven | Self::Condemned, _) => {
                Err(Status::BadSession)
            }
        }
    }
}

impl ChainFlags {
    pub(crate) const KNOWN: u16 =
        Self::FORWARD | Self::BACK | Self::SAVE | Self::FILE_HANDLE | Self::STATE_ID;

    /// Returns true if all bits of `bits` are set in the flags.
    #[must_use]
    pub const fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }
}
