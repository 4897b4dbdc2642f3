//! One session: its id, its channels, and the parameters of its back channel.

use smallvec::SmallVec;

use super::attributes::ChannelAttributes;
use super::connections::Binding;
use super::slots::SlotTable;
use crate::callbacks::BackSlots;
use crate::keys::{ClientKey, SessionId4};
use crate::peer::{ConnectionId, PeerId, Principal};

/// The flags of CREATE_SESSION (RFC 8881 section 18.36.1).
pub mod create_flags {
    /// The session survives a restart of the server.
    pub const PERSIST: u32 = 0x1;
    /// The connection of the request is also bound to the back channel.
    pub const CONN_BACK_CHAN: u32 = 0x2;
    /// The connection of the request switches to RDMA, which this server does not support.
    pub const CONN_RDMA: u32 = 0x4;
    /// All flags that a client may set.
    pub const ALL: u32 = PERSIST | CONN_BACK_CHAN | CONN_RDMA;
}

/// A credential that the client accepts in callbacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallbackSecurity {
    /// Callbacks have no credential: AUTH_NONE.
    #[default]
    None,
    /// Callbacks name a user and a group: AUTH_SYS.
    System {
        /// The numeric user id that callbacks state.
        user: u32,
        /// The numeric group id that callbacks state.
        group: u32,
    },
    /// Callbacks are protected by RPCSEC_GSS, which this server does not support.
    Gss,
}

/// The parameters of a session's back channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallbackParameters {
    /// The RPC program of the client's callback service.
    pub program: u32,
    /// The credential that the server uses in callbacks.
    pub security: CallbackSecurity,
}

impl CallbackParameters {
    /// Chooses the first credential in `offered` that this server supports. `None` if it supports
    /// none of them. If `offered` is empty, callbacks have no credential.
    #[must_use]
    pub fn choose(program: u32, offered: &[CallbackSecurity]) -> Option<Self> {
        let usable = |security: &&CallbackSecurity| **security != CallbackSecurity::Gss;
        match offered {
            [] => Some(Self { program, security: CallbackSecurity::None }),
            offered => {
                let security = offered.iter().find(usable)?.clone();
                Some(Self { program, security })
            }
        }
    }
}

/// A session of a client.
#[derive(Debug)]
pub(crate) struct Session {
    pub id: SessionId4,
    pub client: ClientKey,
    /// The host of the client.
    pub peer: PeerId,
    /// The sequence number of the CREATE_SESSION.
    pub sequence: u32,
    /// The principal that sent the CREATE_SESSION.
    pub creator: Principal,
    pub flags: u32,
    pub fore: ChannelAttributes,
    pub back: ChannelAttributes,
    pub slots: SlotTable,
    pub bindings: SmallVec<[Binding; 2]>,
    /// The parameters of callbacks; `None` if the client accepts no callbacks that this server can
    /// send.
    pub callbacks: Option<CallbackParameters>,
    /// True if the client has asked for a back channel.
    pub wants_back: bool,
    pub back_slots: BackSlots,
    /// True if the client has replied to a callback with an error that concerns the session.
    pub has_back_fault: bool,
    /// True if the client has not replied to a callback for a long time.
    pub is_back_silent: bool,
}

impl Session {
    /// Returns the number of connections that are bound to the back channel.
    pub(crate) fn back_connections(&self) -> u32 {
        self.bindings.iter().filter(|binding| binding.is_back).count() as u32
    }

    /// Returns the connection of the back channel that was used last.
    pub(crate) fn back_connection(&self) -> Option<ConnectionId> {
        let back = self.bindings.iter().filter(|binding| binding.is_back);
        back.max_by_key(|binding| binding.used).map(|binding| binding.connection)
    }

    /// Returns true if callbacks can be sent.
    pub(crate) fn can_call_back(&self) -> bool {
        let is_sound = self.wants_back && !self.has_back_fault && self.callbacks.is_some();
        is_sound && self.bindings.iter().any(|binding| binding.is_back)
    }

    /// Returns true if the client has asked for a back channel that does not work now.
    pub(crate) fn has_lost_back(&self) -> bool {
        let has_connection = self.bindings.iter().any(|binding| binding.is_back);
        self.wants_back && (self.is_back_silent || !has_connection)
    }

    /// Returns true if the session survives a restart of the server.
    pub(crate) fn is_persistent(&self) -> bool {
        self.flags & create_flags::PERSIST != 0
    }
}

/// The visible part of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView<'a> {
    /// The id of the session.
    pub id: SessionId4,
    /// The client that the session belongs to.
    pub client: ClientKey,
    /// The flags that CREATE_SESSION returned, see [`create_flags`].
    pub flags: u32,
    /// The attributes of the fore channel.
    pub fore: ChannelAttributes,
    /// The attributes of the back channel.
    pub back: ChannelAttributes,
    /// The parameters of callbacks; `None` if the server can send no callbacks to the client.
    pub callbacks: Option<&'a CallbackParameters>,
    /// The number of connections that are bound to the session.
    pub connection_count: usize,
    /// The number of requests in progress.
    pub running_count: u32,
    /// The number of slots that the client may use.
    pub slot_count: u32,
    /// The number of slots that the server wants the client to use.
    pub slot_target: u32,
}
