//! The machine the driver owns.
//!
//! Invariant: every channel slot, client record and open belongs to exactly one of
//! the tables here, and every public call leaves their counts in agreement.

use dafs_types::{
    ClientId, Credentials, Entropy, Moment, RemoveMode, SessionId, ShareAccess, ShareDeny,
    ShareKey, StateId, Status, StreamId,
};

use crate::{
    Admitted, AuthDecision, AuthRequest, Authenticated, ChannelDescription, ChannelEnd, ChannelId,
    ChannelRefusal, Closed, ConfigError, ConnectArguments, ConnectRefusal, ConnectResults,
    Counters, FileKey, FilerConfig, Grant, IoKind, Negotiated, OpenArguments, Opened, PeerIdentity,
    Refusal, RemoveDecision, RequestHead, TickActions,
};

/// Sessions, credits, clients and opens of one file server.
#[derive(Debug)]
pub struct Filer {}

impl Filer {
    /// A filer without channels. `boot_seed` must differ between runs of the server:
    /// state ids made before a restart are told from new ones by 24 bits of it.
    ///
    /// # Errors
    /// The first limit in `config` that cannot be kept.
    pub fn new(config: FilerConfig, boot_seed: u64) -> Result<Self, ConfigError> {
        todo!("{config:?} {boot_seed}")
    }

    /// A connection was established. It may take
    /// [`FilerConfig::authentication_timeout`] to authenticate. One receive of
    /// [`dafs_types::limits::CONNECT_MESSAGE_BYTES`] must be posted for it.
    ///
    /// # Errors
    /// Why the driver must close the connection at once.
    pub fn channel_opened(
        &mut self,
        peer: PeerIdentity,
        description: ChannelDescription,
        now: Moment,
    ) -> Result<ChannelId, ChannelRefusal> {
        todo!("{peer:?} {description:?} {now:?}")
    }

    /// The connection is gone, or DISCONNECT was answered. Ends the session; returns
    /// the opens released with it, for the store. An unknown channel is no error.
    pub fn channel_closed(
        &mut self,
        channel: ChannelId,
        end: ChannelEnd,
        now: Moment,
    ) -> Vec<Closed> {
        todo!("{channel:?} {end:?} {now:?}")
    }

    /// Lets time pass: call about once a second.
    pub fn on_tick(&mut self, now: Moment) -> TickActions {
        todo!("{now:?}")
    }

    /// CLIENT_CONNECT, and the first half of CLIENT_CONNECT_AUTH.
    ///
    /// # Errors
    /// ILLEGAL_PROT for another version; ILLEGAL_STATE for a second connect; INVAL for
    /// names that are empty or too long; RESOURCE if `entropy` repeats itself.
    pub fn connect(
        &mut self,
        channel: ChannelId,
        arguments: &ConnectArguments<'_>,
        entropy: &mut dyn Entropy,
    ) -> Result<ConnectResults, ConnectRefusal> {
        todo!("{channel:?} {arguments:?} {}", entropy.next_u64())
    }

    /// Undoes [`Filer::connect`] when the second half of CLIENT_CONNECT_AUTH failed:
    /// the channel may connect again.
    pub fn connect_failed(&mut self, channel: ChannelId) {
        todo!("{channel:?}")
    }

    /// First step of CLIENT_AUTH.
    pub fn begin_auth(&mut self, channel: ChannelId, request: AuthRequest<'_>) -> AuthDecision {
        todo!("{channel:?} {request:?}")
    }

    /// Second step of CLIENT_AUTH: `verified` is the identity, or the status that the
    /// driver's password check came to (usually NOT_AUTHORIZED).
    ///
    /// # Errors
    /// The status to answer: that in `verified`; CLID_INUSE if the client's name belongs
    /// to another principal; STALE_CLIENTID if the client's earlier state was lost after
    /// CONNECT; ILLEGAL_STATE without [`Filer::begin_auth`].
    pub fn finish_auth(
        &mut self,
        channel: ChannelId,
        verified: Result<Credentials, Status>,
        now: Moment,
    ) -> Result<Authenticated, Status> {
        todo!("{channel:?} {verified:?} {now:?}")
    }

    /// Takes a request in: accounts for its credit and stream, renews the lease, and
    /// says whether it is legal in the session's state.
    ///
    /// # Errors
    /// [`Refusal::Answer`] keeps the credit until [`Filer::finish`]; after
    /// [`Refusal::Break`] the channel accepts nothing more.
    pub fn admit(
        &mut self,
        channel: ChannelId,
        head: &RequestHead,
        now: Moment,
    ) -> Result<Admitted, Refusal> {
        todo!("{channel:?} {head:?} {now:?}")
    }

    /// A response is about to be sent: frees stream and credit and says what credit
    /// target it carries. On an unknown channel the answer is to post nothing.
    pub fn finish(&mut self, channel: ChannelId, stream: StreamId) -> Grant {
        todo!("{channel:?} {stream:?}")
    }

    /// Opens a file for the channel's client (draft 6.5.24).
    ///
    /// # Errors
    /// SHARE_DENIED, KEY_MISMATCH, RESOURCE (a limit), INVAL (owner too long),
    /// NOT_AUTHENTICATED.
    pub fn open(
        &mut self,
        channel: ChannelId,
        arguments: &OpenArguments<'_>,
    ) -> Result<Opened, Status> {
        todo!("{channel:?} {arguments:?}")
    }

    /// OPEN_DOWNGRADE (draft 6.5.26): replaces access and deny by subsets of them; a
    /// `None` key gives the shared key up.
    ///
    /// # Errors
    /// INVAL for bits or a key not in effect; the errors of state ids.
    pub fn open_downgrade(
        &mut self,
        channel: ChannelId,
        state_id: StateId,
        file: FileKey,
        access: ShareAccess,
        deny: ShareDeny,
        key: Option<ShareKey>,
    ) -> Result<(), Status> {
        todo!("{channel:?} {state_id:?} {file:?} {access:?} {deny:?} {key:?}")
    }

    /// CLOSE.
    ///
    /// # Errors
    /// STALE_STATEID (from before a restart), OLD_STATEID (closed already),
    /// BAD_STATEID (never issued, or not for this client and file).
    pub fn close(
        &mut self,
        channel: ChannelId,
        state_id: StateId,
        file: FileKey,
    ) -> Result<Closed, Status> {
        todo!("{channel:?} {state_id:?} {file:?}")
    }

    /// Whether a read or write may go on under this state id.
    ///
    /// # Errors
    /// Those of [`Filer::close`]; ACCES if the open lacks the access; LOCKED if the
    /// state id is anonymous and somebody's open denies it.
    pub fn check_io(
        &mut self,
        channel: ChannelId,
        state_id: StateId,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), Status> {
        todo!("{channel:?} {state_id:?} {file:?} {kind:?}")
    }

    /// Whether a name of the file may be removed.
    ///
    /// # Errors
    /// DENYDISP_CONFLICT (draft 6.5.33).
    pub fn remove_check(&self, file: FileKey, mode: RemoveMode) -> Result<RemoveDecision, Status> {
        todo!("{file:?} {mode:?}")
    }

    /// The file's last name is gone: its last close will say `delete`. Returns whether
    /// the file is open; if not, the driver deletes at once.
    pub fn file_unlinked(&mut self, file: FileKey) -> bool {
        todo!("{file:?}")
    }

    /// The file has got a name (LINK of an unlinked file): its last close deletes nothing.
    pub fn file_linked(&mut self, file: FileKey) {
        todo!("{file:?}")
    }

    /// Whether anybody has the file open.
    #[must_use]
    pub fn is_open(&self, file: FileKey) -> bool {
        todo!("{file:?}")
    }

    /// The identity requests of this channel act with; `None` before authentication.
    #[must_use]
    pub fn credentials(&self, channel: ChannelId) -> Option<&Credentials> {
        todo!("{channel:?}")
    }

    /// What CONNECT agreed on; `None` before it.
    #[must_use]
    pub fn negotiated(&self, channel: ChannelId) -> Option<&Negotiated> {
        todo!("{channel:?}")
    }

    /// The session's and client's ids; `None` before CONNECT.
    #[must_use]
    pub fn ids(&self, channel: ChannelId) -> Option<(SessionId, ClientId)> {
        todo!("{channel:?}")
    }

    /// The session's fence identity; `None` before CONNECT.
    #[must_use]
    pub fn fence_id(&self, channel: ChannelId) -> Option<&str> {
        todo!("{channel:?}")
    }

    /// The limits in force.
    #[must_use]
    pub fn config(&self) -> &FilerConfig {
        todo!()
    }

    /// The numbers now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        todo!()
    }
}
