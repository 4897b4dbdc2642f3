//! Names for connections and for what happens to them.
//!
//! Invariant: a [`ChannelId`] is never valid for two connections; its generation
//! changes when its slot is used again.

use dafs_filer::Closed;
use dafs_types::Credentials;

/// Names one connection the driver told the filer about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ChannelId {
    /// A small number, unique among open channels and below
    /// [`crate::SessionConfig::channels_max`]: the driver may index its own tables by it.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// Who is at the other end, as far as the transport itself can prove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// A process on this machine, identified by the kernel (`SO_PEERCRED`).
    Local(Credentials),
    /// Somebody on a network; nothing is proven.
    Remote,
}

/// What a channel is for (draft appendix E, channel_type).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// Carries the client's requests.
    Operation,
    /// Carries the server's requests.
    BackControl,
    /// Carries the server's RDMA reads.
    RdmaRead,
}

impl ChannelKind {
    /// The kind with this number in the connection's private data.
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

/// What the connection's private data say (draft appendix E).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelDescription {
    /// Differs between client instances.
    pub client_instance: u32,
    /// The same for all channels of one session.
    pub client_session: u32,
    /// What the channel is for.
    pub kind: ChannelKind,
}

/// Why a connection was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelRefusal {
    /// [`crate::SessionConfig::channels_max`] are open.
    #[error("too many channels")]
    Channels,
    /// [`crate::SessionConfig::unauthenticated_max`] have not authenticated yet.
    #[error("too many channels that have not authenticated")]
    Unauthenticated,
    /// Its holder has as many channels as it may have beside others: three times what is free.
    #[error("too many channels of this address or user")]
    Share,
    /// The configuration has no channels of this kind.
    #[error("channel kind not served")]
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

/// Why the driver is asked to close a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Did not authenticate within [`crate::AuthPolicy::timeout`].
    NotAuthenticatedInTime,
    /// Too many failed authentications on one channel.
    AuthenticationFailed,
    /// Said nothing for [`crate::SessionConfig::silence_max`].
    Silent,
    /// Its authentication is past its time, and was not renewed within
    /// [`dafs_filer::FilerConfig::lease`].
    AuthenticationExpired,
    /// It keeps credits that others need, and sends nothing by which they could be taken.
    CreditsWithheld,
    /// The client has restarted: the channel belongs to its earlier life.
    ClientRestarted,
}

/// What time has brought. The driver closes the channels (and then reports each
/// with `channel_closed`), and closes the files in its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickActions {
    /// Channels to close, each named once.
    pub close: Vec<(ChannelId, CloseReason)>,
    /// Opens whose lease ran out.
    pub released: Vec<Closed>,
}
