//! Operations on clients, sessions, connections and slots (RFC 8881 sections 18.33 to 18.37, 18.46,
//! 18.47 and 18.50), and those of minor version 0 that later ones must not implement.
//!
//! Invariant: every list in these messages has a named bound.

use crate::rpc::AuthSys;
use crate::rpc::gss::GssService;
use crate::xdr::{List, Opaque, xdr};

use super::bitmap::Bitmap;
use super::limits::{
    ALGORITHMS_MAX, GSS_HANDLES_MAX, OID_BYTES_MAX, SECRET_BYTES_MAX, SECURITY_PARAMETERS_MAX,
};
use super::types::{
    ClientId, ClientOwner, Identity, Implementation, NetworkAddress, ServerOwner, SessionId,
    Verifier,
};

/// The handle of a GSS context.
pub type GssHandle<'b> = Opaque<'b, SECRET_BYTES_MAX>;
/// An object identifier of an algorithm or mechanism, in DER.
pub type ObjectIdentifier<'b> = Opaque<'b, OID_BYTES_MAX>;
/// The digest that answers SET_SSV.
pub type SsvDigest<'b> = Opaque<'b, SECRET_BYTES_MAX>;

xdr! {
    /// Arguments of BACKCHANNEL_CTL: how the server is to call back.
    #[derive(Default)]
    struct BackchannelCtlArgs<'b> {
        /// The program number of the callbacks.
        program: u32,
        /// The security parameters that the server may choose from.
        security: List<CallbackSecurity<'b>, SECURITY_PARAMETERS_MAX>,
    }
    /// Security parameters of callbacks, by RPC flavor.
    union CallbackSecurity<'b> on u32 {
        /// AUTH_NONE has no parameters.
        0 => None,
        /// AUTH_SYS has credentials.
        1 => Sys(AuthSys<'b>),
        /// RPCSEC_GSS has a context for each direction.
        6 => Gss(GssCallback<'b>),
    }
    /// The GSS contexts of callbacks.
    #[derive(Copy)]
    struct GssCallback<'b> {
        /// The protection of the calls.
        service: GssService,
        /// The handle that the server uses.
        from_server: GssHandle<'b>,
        /// The handle that the client uses.
        from_client: GssHandle<'b>,
    }
    /// Arguments and results of BIND_CONN_TO_SESSION.
    #[derive(Copy, Default)]
    struct BindConnToSession {
        /// The session for this connection.
        session: SessionId,
        /// The channels that the connection may or will carry.
        direction: Direction,
        /// Whether the connection uses RDMA.
        rdma: bool,
    }
    /// The channels of a connection.
    flags Direction: u32 {
        /// The fore channel: calls of the client.
        FORE = 1,
        /// The back channel: calls of the server.
        BACK = 2,
        /// Both channels, or the fore channel alone.
        FORE_OR_BOTH = 3,
        /// Both channels, or the back channel alone.
        BACK_OR_BOTH = 7,
    }
    /// Arguments of EXCHANGE_ID: a client introduces itself.
    #[derive(Default)]
    struct ExchangeIdArgs<'b> {
        /// The client's name for itself.
        owner: ClientOwner<'b>,
        /// What the client supports and wants.
        flags: ExchangeFlags,
        /// How the client's state is to be protected.
        protection: AskedProtection<'b>,
        /// The implementation of the client.
        implementation: Option<Implementation<'b>>,
    }
    /// Flags of EXCHANGE_ID.
    flags ExchangeFlags: u32 {
        /// Referrals are supported.
        SUPP_MOVED_REFER = 0x1,
        /// Migration is supported.
        SUPP_MOVED_MIGR = 0x2,
        /// Fencing operations are supported.
        SUPP_FENCE_OPS = 0x4,
        /// Only the principal that made a state id may use it.
        BIND_PRINC_STATEID = 0x100,
        /// The server is used without layouts.
        USE_NON_PNFS = 0x1_0000,
        /// The server gives layouts.
        USE_PNFS_MDS = 0x2_0000,
        /// The server holds the data of layouts.
        USE_PNFS_DS = 0x4_0000,
        /// All flags about layouts.
        MASK_PNFS = 0x7_0000,
        /// The client updates a record that is confirmed.
        UPD_CONFIRMED_REC_A = 0x4000_0000,
        /// The record of the client is confirmed.
        CONFIRMED_R = 0x8000_0000,
    }
    /// The protection that a client asks for.
    #[derive(Default)]
    union AskedProtection<'b> on u32 {
        /// No protection of the state.
        #[default]
        0 => None,
        /// The machine's credentials protect the state.
        1 => MachineCredentials(ProtectedOperations),
        /// A secret that both sides share protects the state.
        2 => SecretState(SsvParameters<'b>),
    }
    /// The operations that need the credentials of the protection.
    #[derive(Copy, Default)]
    struct ProtectedOperations {
        /// The operations that must use them.
        must_enforce: Bitmap,
        /// The operations that may use them.
        must_allow: Bitmap,
    }
    /// The shared secret that a client asks for.
    #[derive(Default)]
    struct SsvParameters<'b> {
        /// The operations that the secret protects.
        operations: ProtectedOperations,
        /// The hash algorithms to choose from.
        hash_algorithms: List<ObjectIdentifier<'b>, ALGORITHMS_MAX>,
        /// The encryption algorithms to choose from.
        encryption_algorithms: List<ObjectIdentifier<'b>, ALGORITHMS_MAX>,
        /// The number of versions of the secret that stay valid.
        window: u32,
        /// The number of GSS handles that the client wants.
        gss_handle_count: u32,
    }
    /// Results of EXCHANGE_ID: the server introduces itself.
    #[derive(Default)]
    struct ExchangeIdDone<'b> {
        /// The id that the client gets.
        client: ClientId,
        /// The sequence number of the client's first CREATE_SESSION.
        sequence: u32,
        /// What the server supports and granted.
        flags: ExchangeFlags,
        /// The protection of the client's state.
        protection: GrantedProtection<'b>,
        /// The server's name for itself.
        server_owner: ServerOwner<'b>,
        /// The servers that share file handles and state ids have the same scope.
        server_scope: Identity<'b>,
        /// The implementation of the server.
        implementation: Option<Implementation<'b>>,
    }
    /// The protection that a server grants.
    #[derive(Default)]
    union GrantedProtection<'b> on u32 {
        /// No protection of the state.
        #[default]
        0 => None,
        /// The machine's credentials protect the state.
        1 => MachineCredentials(ProtectedOperations),
        /// A secret that both sides share protects the state.
        2 => SecretState(SsvInformation<'b>),
    }
    /// The shared secret that a server grants.
    #[derive(Default)]
    struct SsvInformation<'b> {
        /// The operations that the secret protects.
        operations: ProtectedOperations,
        /// The position of the hash algorithm in the client's list.
        hash_algorithm: u32,
        /// The position of the encryption algorithm in the client's list.
        encryption_algorithm: u32,
        /// The length of the secret in bytes.
        secret_bytes: u32,
        /// The number of versions of the secret that stay valid.
        window: u32,
        /// The GSS handles for the client.
        handles: List<GssHandle<'b>, GSS_HANDLES_MAX>,
    }
    /// The limits of a channel of a session.
    #[derive(Copy, Default)]
    struct ChannelAttributes {
        /// The padding in front of the data of a WRITE, in bytes.
        header_pad_bytes: u32,
        /// The maximum length of a request in bytes.
        request_bytes_max: u32,
        /// The maximum length of a reply in bytes.
        response_bytes_max: u32,
        /// The maximum length of a cached reply in bytes.
        cached_bytes_max: u32,
        /// The limit for operations in one compound.
        operations_max: u32,
        /// The number of slots.
        requests_max: u32,
        /// The number of RDMA reads at a time, for connections with RDMA.
        rdma_reads: Option<u32>,
    }
    /// Flags of CREATE_SESSION.
    flags SessionFlags: u32 {
        /// The reply cache survives a restart of the server.
        PERSIST = 1,
        /// This connection is used for callbacks, too.
        CONN_BACK_CHAN = 2,
        /// This connection uses RDMA from now on.
        CONN_RDMA = 4,
    }
    /// Arguments of CREATE_SESSION.
    #[derive(Default)]
    struct CreateSessionArgs<'b> {
        /// The client that the session is for.
        client: ClientId,
        /// The sequence number of this CREATE_SESSION.
        sequence: u32,
        /// What the client wants.
        flags: SessionFlags,
        /// The limits that the client wants for its calls.
        fore: ChannelAttributes,
        /// The limits that the client sets for callbacks.
        back: ChannelAttributes,
        /// The program number of the callbacks.
        callback_program: u32,
        /// The security parameters that the server may choose from.
        security: List<CallbackSecurity<'b>, SECURITY_PARAMETERS_MAX>,
    }
    /// Results of CREATE_SESSION.
    #[derive(Copy, Default)]
    struct CreateSessionDone {
        /// The id of the new session.
        session: SessionId,
        /// The sequence number of the request.
        sequence: u32,
        /// What the server granted.
        flags: SessionFlags,
        /// The limits of the client's calls.
        fore: ChannelAttributes,
        /// The limits of callbacks.
        back: ChannelAttributes,
    }
    /// Arguments of SEQUENCE: the session and slot of this compound.
    #[derive(Copy, Default)]
    struct SequenceArgs {
        /// The session that the compound belongs to.
        session: SessionId,
        /// The sequence number of the slot.
        sequence: u32,
        /// The slot of this request.
        slot: u32,
        /// The highest slot that the client uses now.
        highest_slot: u32,
        /// Whether the client wants the whole reply to be cached.
        cache_this: bool,
    }
    /// Results of SEQUENCE.
    #[derive(Copy, Default)]
    struct SequenceDone {
        /// The session that the compound belongs to.
        session: SessionId,
        /// The sequence number of the slot.
        sequence: u32,
        /// The slot of this request.
        slot: u32,
        /// The highest slot that the server accepts.
        highest_slot: u32,
        /// The highest slot that the server would like the client to use.
        target_highest_slot: u32,
        /// What the client should know about its state.
        status: SequenceStatus,
    }
    /// What a client should know about its state.
    flags SequenceStatus: u32 {
        /// No callback reaches the client.
        CB_PATH_DOWN = 0x1,
        /// All GSS contexts for callbacks expire soon.
        CB_GSS_CONTEXTS_EXPIRING = 0x2,
        /// All GSS contexts for callbacks have expired.
        CB_GSS_CONTEXTS_EXPIRED = 0x4,
        /// The lease expired and all state was revoked.
        EXPIRED_ALL_STATE_REVOKED = 0x8,
        /// The lease expired and some state was revoked.
        EXPIRED_SOME_STATE_REVOKED = 0x10,
        /// An administrator revoked some state.
        ADMIN_STATE_REVOKED = 0x20,
        /// A delegation or layout was revoked, since it was not returned.
        RECALLABLE_STATE_REVOKED = 0x40,
        /// A file system has moved with the state.
        LEASE_MOVED = 0x80,
        /// The server restarted and the client should reclaim its state.
        RESTART_RECLAIM_NEEDED = 0x100,
        /// The session has no connection for callbacks.
        CB_PATH_DOWN_SESSION = 0x200,
        /// The replies to callbacks are not correct.
        BACKCHANNEL_FAULT = 0x400,
        /// A device changed, and a notification about it was lost.
        DEVID_CHANGED = 0x800,
        /// A device was deleted, and a notification about it was lost.
        DEVID_DELETED = 0x1000,
    }
    /// Arguments of SET_SSV: a new version of the shared secret.
    #[derive(Copy, Default)]
    struct SetSsvArgs<'b> {
        /// The number that changes the secret by exclusive or.
        secret: Opaque<'b, SECRET_BYTES_MAX>,
        /// The digest of the request.
        digest: Opaque<'b, SECRET_BYTES_MAX>,
    }
    /// Arguments of SETCLIENTID, of minor version 0.
    #[derive(Copy, Default)]
    struct SetClientIdArgs<'b> {
        /// The client's name for itself.
        owner: ClientOwner<'b>,
        /// The program number of the callbacks.
        callback_program: u32,
        /// The address for callbacks.
        callback_address: NetworkAddress<'b>,
        /// The number that the client wants in callbacks.
        callback_number: u32,
    }
    /// Results of SETCLIENTID and arguments of SETCLIENTID_CONFIRM, of minor version 0.
    #[derive(Copy, Default)]
    struct SetClientIdDone {
        /// The id that the client gets.
        client: ClientId,
        /// The verifier to confirm it with.
        confirm: Verifier,
    }
}
