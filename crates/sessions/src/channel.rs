//! Ids of channels, and types for what happens to channels.
//!
//! Invariant: a [`ChannelId`] is never valid for two connections, because its generation changes
//! when its slot is used again.

use dafs_filer::Closed;
use dafs_types::Credentials;

/// The id of a connection that the server has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ChannelId {
    /// Returns the index of the channel's slot, which is unique among open channels and less than
    /// [`crate::SessionConfig::channels_max`]. The server may use it as the index of its own
    /// tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// The identity of a peer that the transport can prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// A process on this machine, whose identity the kernel reports (`SO_PEERCRED`).
    Local(Credentials),
    /// A peer on a network, whose identity the transport cannot prove.
    Remote,
}

/// The purpose of a channel (draft appendix E, channel_type).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// The channel carries the client's requests.
    Operation,
    /// The channel carries the server's requests.
    BackControl,
    /// The channel carries the server's RDMA reads.
    RdmaRead,
}

impl ChannelKind {
    /// Returns the kind that has this number in the connection's private data. `None` for an
    /// unknown number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Operation),
            2 => Some(Self::BackControl),
            4 => Some(Self::RdmaRead),
            _ => None,
        }
    }
}

/// The description of a channel in the connection's private data (draft appendix E).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelDescription {
    /// The number of the client instance, which differs between the instances of a client program.
    pub client_instance: u32,
    /// The number that the client has given to the session. It is the same for all channels of the
    /// session.
    pub client_session: u32,
    /// The purpose of the channel.
    pub kind: ChannelKind,
}

/// The reason why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelRefusal {
    /// [`crate::SessionConfig::channels_max`] channels are open.
    #[error("too many open channels")]
    Channels,
    /// [`crate::SessionConfig::unauthenticated_max`] channels have not authenticated yet.
    #[error("too many channels have not authenticated yet")]
    Unauthenticated,
    /// The peer's holder (a local user or an address) already has its fair share of channels, which
    /// is three times the number of free channels.
    #[error("this address or user has too many channels")]
    Share,
    /// The configuration allows no channels of this kind.
    #[error("this server does not support channels of this kind")]
    Kind,
}

/// The way in which a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelEnd {
    /// The client sent DISCONNECT.
    Orderly,
    /// The connection broke, or the server broke it.
    Lost,
}

/// The reason why the server must close a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The peer did not authenticate within [`crate::AuthPolicy::timeout`].
    NotAuthenticatedInTime,
    /// Too many authentications failed on one channel.
    AuthenticationFailed,
    /// The session was silent for [`crate::SessionConfig::silence_max`].
    Silent,
    /// The authentication has expired, and was not renewed within
    /// [`dafs_filer::FilerConfig::lease`].
    AuthenticationExpired,
    /// The session keeps credits that other sessions need. The server cannot take the credits back,
    /// because the session sends no requests.
    CreditsWithheld,
    /// The client has restarted, and the channel belongs to its previous incarnation.
    ClientRestarted,
}

/// The effects of expired timers. The server must close these channels, report the end of each with
/// `channel_closed`, and close the files of the released opens in its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickActions {
    /// The channels to close, each at most once, with the reasons.
    pub close: Vec<(ChannelId, CloseReason)>,
    /// The opens that were released because their lease expired.
    pub released: Vec<Closed>,
}
