//! Admission of requests and sending of responses.
//!
//! Invariant: a request holds its credit and stream from `admit` to `finish`, whether
//! it is carried out or answered with a refusal. The usual request takes one branch
//! here; everything unusual is judged out of line.

use dafs_types::{CredHandle, Moment, Status, StreamId};

use super::{Filer, HotChannel, Phase};
use crate::{
    Admitted, BreakReason, ChainFlags, ChannelId, Grant, Refusal, RequestClass, RequestHead,
};

impl Filer {
    /// Takes a request in: accounts for its credit and stream, renews the lease, and
    /// says whether it is legal in the session's state.
    ///
    /// # Errors
    /// [`Refusal::Answer`] keeps the credit until [`Filer::finish`]; after
    /// [`Refusal::Break`] the channel accepts nothing more.
    #[inline]
    pub fn admit(
        &mut self,
        channel: ChannelId,
        head: &RequestHead,
        now: Moment,
    ) -> Result<Admitted, Refusal> {
        let taken = match self.hot.get_mut(channel.index()) {
            Some(hot) if hot.generation == channel.generation && hot.phase.listens() => {
                match hot.window.take(head.stream, head.desired_nreq) {
                    Ok(outstanding) => {
                        hot.last_heard = now;
                        let admitted = Admitted { outstanding, kept: hot.kept };
                        if hot.phase == Phase::Authenticated && head.is_plain() && !hot.chain_open {
                            return Ok(admitted);
                        }
                        let judged = hot.judge(head);
                        let judged = judged.and_then(|()| self.judge_identity(channel, head));
                        judged.map(|()| admitted).map_err(Refusal::Answer)
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

    /// A response is about to be sent: frees stream and credit and says what credit
    /// target it carries. On an unknown channel the answer is to post nothing.
    #[inline]
    pub fn finish(&mut self, channel: ChannelId, stream: StreamId) -> Grant {
        match self.hot.get_mut(channel.index()) {
            Some(hot) if hot.generation == channel.generation => {
                let is_acting = hot.acting != 0;
                let grant = hot.window.give(stream, &mut self.budget);
                if is_acting {
                    self.end_acting(channel, stream);
                }
                grant
            }
            _ => Grant { target_nreq: 1, receives_to_post: 0 },
        }
    }
}

impl Phase {
    fn listens(self) -> bool {
        !matches!(self, Self::Vacant | Self::Bound | Self::Condemned)
    }
}

impl RequestHead {
    /// Nothing about it needs judging in an authenticated session.
    fn is_plain(&self) -> bool {
        self.class == RequestClass::Ordinary
            && self.chain_flags.0 == 0
            && self.cred_handle == CredHandle(0)
    }
}

impl HotChannel {
    /// Judges what is not an ordinary request of an authenticated session.
    #[cold]
    fn judge(&mut self, head: &RequestHead) -> Result<(), Status> {
        let chain_open = self.chain_open;
        self.chain_open = head.chain_flags.has(ChainFlags::FORWARD);
        judge_chain(head.chain_flags, head.class, chain_open)?;
        self.phase.allows(head.class)
    }
}

impl Phase {
    /// Whether a class of requests is legal here (draft 6.2.1, 6.2.2).
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
            // Whether this client may is judged by who it is.
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
            (Self::Vacant | Self::Bound | Self::Condemned, _) => Err(Status::BadSession),
        }
    }
}

impl ChainFlags {
    const KNOWN: u16 = Self::FORWARD | Self::BACK | Self::SAVE | Self::FILE_HANDLE | Self::STATE_ID;

    /// Whether all of these bits are set.
    #[must_use]
    pub const fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }
}

/// The rules of draft 4.3.1 and 4.3.2. Chains are not served: the first member of a
/// well-formed chain fails with NOTSUPP, and so the rest are broken.
fn judge_chain(flags: ChainFlags, class: RequestClass, chain_open: bool) -> Result<(), Status> {
    let forward = flags.has(ChainFlags::FORWARD);
    let back = flags.has(ChainFlags::BACK);
    let takes = flags.has(ChainFlags::FILE_HANDLE) || flags.has(ChainFlags::STATE_ID);
    let malformed = back != chain_open
        || (takes && !back)
        || (flags.has(ChainFlags::SAVE) && !forward)
        || flags.0 & !ChainFlags::KNOWN != 0
        || ((forward || back) && class != RequestClass::Ordinary);
    if malformed {
        Err(Status::ChainForm)
    } else if back {
        Err(Status::ChainBroken)
    } else if forward {
        Err(Status::NotSupp)
    } else {
        Ok(())
    }
}
