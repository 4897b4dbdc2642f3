//! The limits of all tables, and the settings of a server.
//!
//! Invariant: everything that a peer can make grow has a limit here.

use std::time::Duration;

/// The maximum number of client records, confirmed or not.
pub const CLIENTS_MAX: u32 = 8192;
/// The maximum number of client records that one host may have.
pub const CLIENTS_PER_PEER_MAX: u32 = CLIENTS_MAX / 4;
/// The maximum number of unconfirmed client records.
pub const UNCONFIRMED_MAX: usize = 1024;
/// The maximum number of unconfirmed client records of one host.
pub const UNCONFIRMED_PER_PEER_MAX: usize = 64;
/// The maximum length in bytes of a client owner (RFC 8881: NFS4_OPAQUE_LIMIT).
pub const CLIENT_OWNER_BYTES_MAX: usize = 1024;

/// The maximum number of sessions.
pub const SESSIONS_MAX: u32 = 16_384;
/// The maximum number of sessions of one client.
pub const SESSIONS_PER_CLIENT_MAX: usize = 64;
/// The maximum number of connections that are bound to one session.
pub const CONNECTIONS_PER_SESSION_MAX: usize = 64;
/// The maximum number of sessions to which one connection is bound.
pub const SESSIONS_PER_CONNECTION_MAX: usize = 4096;
/// The maximum number of slots of one session.
pub const SLOTS_MAX: u32 = 1024;
/// The maximum number of slots of all persistent sessions. It limits what the journal keeps.
pub const PERSISTENT_SLOTS_MAX: u32 = 1 << 15;
/// The maximum number of slots of all persistent sessions of the clients of one host.
pub const PERSISTENT_SLOTS_PER_PEER_MAX: u32 = PERSISTENT_SLOTS_MAX / 4;
/// A persistent session with fewer slots counts as one with this number of slots, because its own
/// record takes room in the journal, too.
pub const PERSISTENT_SLOTS_MIN: u32 = 16;
/// The maximum number of operations in one request.
pub const OPERATIONS_MAX: u32 = 128;
/// The maximum size of a request or a reply in bytes: 1 MiB of data, and the other parts of the
/// message.
pub const MESSAGE_BYTES_MAX: u32 = (1 << 20) + (16 << 10);
/// The minimum size of a request in bytes: room for a SEQUENCE and one small operation.
pub const REQUEST_BYTES_MIN: u32 = 128;
/// The minimum size of a reply in bytes: room for the results of a SEQUENCE and one small
/// operation.
pub const REPLY_BYTES_MIN: u32 = 128;
/// The size in bytes of the shortest reply with a SEQUENCE: the RPC header, the header of the
/// compound with an empty tag, and the result of SEQUENCE.
pub const SEQUENCE_REPLY_BYTES: u32 = 24 + 12 + 44;

/// The maximum size in bytes of a reply that is kept for a repeat.
pub const KEPT_REPLY_BYTES_MAX: u32 = 8 << 10;
/// The minimum number of bytes that are reserved for the kept reply of a slot, even if the client
/// asks for less.
pub const KEPT_REPLY_BYTES_MIN: u32 = 64;
/// The maximum number of bytes that are reserved for the kept replies of one session.
pub const SESSION_REPLIES_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of bytes that are reserved for the kept replies of all sessions.
pub const REPLIES_BYTES_MAX: u64 = 512 << 20;
/// A new session gets at most the free memory for replies divided by this number.
pub const REPLIES_SHARE: u64 = 8;

/// The maximum number of slots of a back channel.
pub const BACK_SLOTS_MAX: u32 = 16;
/// The minimum size in bytes of a request or a reply on the back channel.
pub const BACK_MESSAGE_BYTES_MIN: u32 = 200;
/// The minimum number of operations of a request on the back channel: CB_SEQUENCE and one other.
pub const BACK_OPERATIONS_MIN: u32 = 2;
/// The maximum number of callbacks that wait or are in progress for one client.
pub const CALLBACKS_PER_CLIENT_MAX: usize = 1024;
/// The maximum number of callbacks that wait or are in progress for all clients.
pub const CALLBACKS_MAX: u32 = 65_536;
/// The time after which the server suspects a fault of the back channel, if a callback has received
/// no reply.
pub const CALLBACK_REPLY_TIME: Duration = Duration::from_secs(10);
/// The time after which the server repeats a callback that the client has postponed.
pub const CALLBACK_RETRY_TIME: Duration = Duration::from_secs(1);

/// The maximum number of state ids of all clients.
pub const STATES_MAX: u32 = 1 << 20;
/// The maximum number of state ids of one client.
pub const STATES_PER_CLIENT_MAX: u32 = 1 << 18;
/// The maximum number of open owners and lock owners of all clients.
pub const OWNERS_MAX: u32 = 1 << 18;
/// The maximum number of open owners and lock owners of one client.
pub const OWNERS_PER_CLIENT_MAX: u32 = 1 << 16;
/// The maximum number of states, and of owners, of one host, as a multiple of the number that is
/// still free. So a single host gets at most three quarters of all.
pub const SHARE_TIMES: usize = 3;
/// The maximum length in bytes of an open owner or a lock owner.
pub const STATE_OWNER_BYTES_MAX: usize = 1024;
/// The maximum number of lock states that belong to one open.
pub const LOCKS_PER_OPEN_MAX: usize = 4096;

/// The maximum number of contexts of RPCSEC_GSS.
pub const GSS_CONTEXTS_MAX: usize = 8192;
/// The maximum number of contexts that one host may have.
pub const GSS_CONTEXTS_OF_PEER_MAX: usize = GSS_CONTEXTS_MAX / 4;
/// The maximum number of contexts that need another token of the client.
pub const GSS_HALVES_MAX: usize = 256;
/// The maximum number of contexts of one host that need another token.
pub const GSS_HALVES_OF_PEER_MAX: usize = GSS_HALVES_MAX / 4;
/// The time after which a context that needs another token is dropped.
pub const GSS_HALF_PATIENCE: Duration = Duration::from_secs(30);
/// How long a context is kept after it has expired, for the replies to calls in progress.
pub const GSS_REPLY_PATIENCE: Duration = Duration::from_secs(60);
/// The longest lifetime of a context whose principal is no user of the server.
pub const GSS_STRANGER_LIFETIME: Duration = Duration::from_secs(600);
/// The number of sequence numbers of a context that may arrive in any order. It is the number of
/// calls that a client may have in flight.
pub const GSS_SEQUENCE_WINDOW: u32 = 1024;

// Every session has at least one slot, even if each client asks for the largest replies.
const _: () = assert!(SESSIONS_MAX as u64 * KEPT_REPLY_BYTES_MAX as u64 <= REPLIES_BYTES_MAX / 2);
const _: () = assert!(KEPT_REPLY_BYTES_MAX as u64 <= SESSION_REPLIES_BYTES_MAX);
const _: () = assert!(SEQUENCE_REPLY_BYTES <= REPLY_BYTES_MIN);
const _: () = assert!(UNCONFIRMED_PER_PEER_MAX <= UNCONFIRMED_MAX);
const _: () = assert!(UNCONFIRMED_MAX < CLIENTS_MAX as usize);
const _: () = assert!(CALLBACKS_PER_CLIENT_MAX <= CALLBACKS_MAX as usize);

/// The settings of a server that affect the state of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// The number of this run of the server. It is different at each start of the server, and never
    /// 0.
    pub epoch: u32,
    /// The duration of a lease. A client that sends no request for longer than this loses its claim
    /// to its state.
    pub lease: Duration,
    /// The courtesy time: how long a client's state is kept after its lease has expired, as long as
    /// no other client needs what the client holds.
    pub courtesy: Duration,
    /// True if a journal stores sessions and the outcomes of requests.
    pub is_persistent: bool,
    /// The limit for the memory of kept replies, at most [`REPLIES_BYTES_MAX`].
    pub replies_bytes_max: u64,
    /// The maximum number of client records, at most [`CLIENTS_MAX`].
    pub clients_max: u32,
    /// The maximum number of sessions, at most [`SESSIONS_MAX`].
    pub sessions_max: u32,
}

impl StateConfig {
    /// Returns the usual settings for the given run of the server.
    #[must_use]
    pub const fn new(epoch: u32) -> Self {
        Self {
            epoch,
            lease: Duration::from_secs(90),
            courtesy: Duration::from_secs(24 * 60 * 60),
            is_persistent: false,
            replies_bytes_max: REPLIES_BYTES_MAX,
            clients_max: CLIENTS_MAX,
            sessions_max: SESSIONS_MAX,
        }
    }
}
