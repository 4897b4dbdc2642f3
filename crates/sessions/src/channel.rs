//! Ids of channels, and types for their events.
//!
//! Invariant: a [`ChannelId`] is never valid for two connections; its generation changes when its
//! slot is used again.

use dafs_filer::Closed;
use dafs_types::Credentials;

/// The id of a connection that the driver has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ChannelId {
    /// Returns a small number, unique among open channels and below
    /// [`crate::SessionConfig::channels_max`]. The driver may index its own tables with it.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// The identity of the peer, as far as the transport itself can prove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// A process on this machine, identified by the kernel (`SO_PEERCRED`).
    Local(Credentials),
    /// A peer on a network; nothing is proven about it.
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
    /// Returns the kind with this number in the connection's private data.
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

/// The contents of the connection's private data (draft appendix E).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelDescription {
    /// The client instance, which differs between instances of a client.
    pub client_instance: u32,
    /// The session number, which is the same for all channels of one session.
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
    /// The holder has its fair share of channels: three times what is free.
    #[error("this address or user has too many channels")]
    Share,
    /// The configuration permits no channels of this kind.
    #[error("this server does not support channels of this kind")]
    Kind,
}

/// How a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelEnd {
    /// The client sent DISCONNECT.
    Orderly,
    /// The connection broke, or the server broke it.
    Lost,
}

/// The reason why the driver must close a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The peer did not authenticate within [`crate::AuthPolicy::timeout`].
    NotAuthenticatedInTime,
    /// Too many authentications failed on one channel.
    AuthenticationFailed,
    /// The session was silent for [`crate::SessionConfig::silence_max`].
    Silent,
    /// The authentication expired, and was not renewed within [`dafs_filer::FilerConfig::lease`].
    AuthenticationExpired,
    /// The session keeps credits that others need, and sends nothing that would let the server take
    /// them back.
    CreditsWithheld,
    /// The client has restarted: the channel belongs to its previous incarnation.
    ClientRestarted,
}

/// The effects of expired timers. The driver closes the channels, reports each with
/// `channel_closed`, and closes the files in its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickActions {
    /// Channels to close, each at most once.
    pub close: Vec<(ChannelId, CloseReason)>,
    /// Opens whose lease expired.
    pub released: Vec<Closed>,
}
