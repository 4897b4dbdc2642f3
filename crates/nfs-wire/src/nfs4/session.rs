//! Operations on clients, sessions, connections and slots (RFC 8881 sections 18.33 to 18.37, 18.46,
//! 18.47 and 18.50), and such operations of minor version 0 that servers of later minor versions
//! must not implement.
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
/// The digest in the result of SET_SSV.
pub type SsvDigest<'b> = Opaque<'b, SECRET_BYTES_MAX>;

xdr! {
    /// Arguments of BACKCHANNEL_CTL: the parameters of callbacks.
    #[derive(Default)]
    struct BackchannelCtlArgs<'b> {
        /// The RPC program number of the client's callback service.
        program: u32,
        /// The security parameters from which the server may choose.
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
        /// The handle of the context that the server uses.
        from_server: GssHandle<'b>,
        /// The handle of the context that the client uses.
        from_client: GssHandle<'b>,
    }
    /// Arguments and results of BIND_CONN_TO_SESSION.
    #[derive(Copy, Default)]
    struct BindConnToSession {
        /// The session to which the connection is bound.
        session: SessionId,
        /// The channels that the client asks for, or that the server grants.
        direction: Direction,
        /// True if the connection is used with RDMA.
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
    /// Arguments of EXCHANGE_ID, with which a client identifies itself.
    #[derive(Default)]
    struct ExchangeIdArgs<'b> {
        /// The name by which the client identifies itself.
        owner: ClientOwner<'b>,
        /// The features that the client supports and wants.
        flags: ExchangeFlags,
        /// The protection of its state that the client asks for.
        protection: AskedProtection<'b>,
        /// The product name and version of the client, for people.
        implementation: Option<Implementation<'b>>,
    }
    /// Flags of EXCHANGE_ID.
    flags ExchangeFlags: u32 {
        /// The sender supports referrals to other servers.
        SUPP_MOVED_REFER = 0x1,
        /// The sender supports the migration of file systems.
        SUPP_MOVED_MIGR = 0x2,
        /// The sender supports fencing operations.
        SUPP_FENCE_OPS = 0x4,
        /// Only the principal that obtained a state id may use it.
        BIND_PRINC_STATEID = 0x100,
        /// The server is used without pNFS (layouts).
        USE_NON_PNFS = 0x1_0000,
        /// The server is a metadata server of pNFS: it grants layouts.
        USE_PNFS_MDS = 0x2_0000,
        /// The server is a data server of pNFS: it stores the data of layouts.
        USE_PNFS_DS = 0x4_0000,
        /// The mask of all flags about pNFS.
        MASK_PNFS = 0x7_0000,
        /// The client updates a confirmed record.
        UPD_CONFIRMED_REC_A = 0x4000_0000,
        /// The record of the client is confirmed.
        CONFIRMED_R = 0x8000_0000,
    }
    /// The protection that a client asks for.
    #[derive(Default)]
    union AskedProtection<'b> on u32 {
        /// The state is not protected.
        #[default]
        0 => None,
        /// The machine's credentials protect the state.
        1 => MachineCredentials(ProtectedOperations),
        /// A secret that client and server share protects the state.
        2 => SecretState(SsvParameters<'b>),
    }
    /// The operations to which the protection applies.
    #[derive(Copy, Default)]
    struct ProtectedOperations {
        /// The operations that must use the credentials of the protection.
        must_enforce: Bitmap,
        /// The operations that may use the credentials of the protection.
        must_allow: Bitmap,
    }
    /// The parameters of the shared secret that a client asks for.
    #[derive(Default)]
    struct SsvParameters<'b> {
        /// The operations that the secret protects.
        operations: ProtectedOperations,
        /// The hash algorithms from which the server may choose.
        hash_algorithms: List<ObjectIdentifier<'b>, ALGORITHMS_MAX>,
        /// The encryption algorithms from which the server may choose.
        encryption_algorithms: List<ObjectIdentifier<'b>, ALGORITHMS_MAX>,
        /// The number of versions of the secret that stay valid.
        window: u32,
        /// The number of GSS handles that the client wants.
        gss_handle_count: u32,
    }
    /// Results of EXCHANGE_ID, with which the server identifies itself.
    #[derive(Default)]
    struct ExchangeIdDone<'b> {
        /// The client id that the server assigns.
        client: ClientId,
        /// The sequence number of the client's first CREATE_SESSION.
        sequence: u32,
        /// The features that the server supports and grants.
        flags: ExchangeFlags,
        /// The protection of the client's state.
        protection: GrantedProtection<'b>,
        /// The name by which the server identifies itself.
        server_owner: ServerOwner<'b>,
        /// The scope of file handles and state ids: servers with the same scope share them.
        server_scope: Identity<'b>,
        /// The product name and version of the server, for people.
        implementation: Option<Implementation<'b>>,
    }
    /// The protection that a server grants.
    #[derive(Default)]
    union GrantedProtection<'b> on u32 {
        /// The state is not protected.
        #[default]
        0 => None,
        /// The machine's credentials protect the state.
        1 => MachineCredentials(ProtectedOperations),
        /// A secret that client and server share protects the state.
        2 => SecretState(SsvInformation<'b>),
    }
    /// The parameters of the shared secret that a server grants.
    #[derive(Default)]
    struct SsvInformation<'b> {
        /// The operations that the secret protects.
        operations: ProtectedOperations,
        /// The index of the chosen hash algorithm in the client's list.
        hash_algorithm: u32,
        /// The index of the chosen encryption algorithm in the client's list.
        encryption_algorithm: u32,
        /// The length of the secret in bytes.
        secret_bytes: u32,
        /// The number of versions of the secret that stay valid.
        window: u32,
        /// The handles of GSS contexts that the client may use.
        handles: List<GssHandle<'b>, GSS_HANDLES_MAX>,
    }
    /// The limits of a channel of a session.
    #[derive(Copy, Default)]
    struct ChannelAttributes {
        /// The number of padding bytes before the data of a WRITE.
        header_pad_bytes: u32,
        /// The maximum length of a request in bytes.
        request_bytes_max: u32,
        /// The maximum length of a reply in bytes.
        response_bytes_max: u32,
        /// The maximum length in bytes of a reply that is kept for a repeat.
        cached_bytes_max: u32,
        /// The limit for operations in one compound.
        operations_max: u32,
        /// The maximum number of requests in progress. This is the number of slots.
        requests_max: u32,
        /// The maximum number of RDMA reads in flight; `None` for connections without RDMA.
        rdma_reads: Option<u32>,
    }
    /// Flags of CREATE_SESSION.
    flags SessionFlags: u32 {
        /// The session and its kept replies survive a restart of the server.
        PERSIST = 1,
        /// This connection is also used for callbacks.
        CONN_BACK_CHAN = 2,
        /// This connection uses RDMA from now on.
        CONN_RDMA = 4,
    }
    /// Arguments of CREATE_SESSION.
    #[derive(Default)]
    struct CreateSessionArgs<'b> {
        /// The client id of the session's client.
        client: ClientId,
        /// The sequence number of this CREATE_SESSION.
        sequence: u32,
        /// The features that the client wants.
        flags: SessionFlags,
        /// The limits that the client wants for its own calls.
        fore: ChannelAttributes,
        /// The limits that the client wants for callbacks.
        back: ChannelAttributes,
        /// The RPC program number of the client's callback service.
        callback_program: u32,
        /// The security parameters from which the server may choose.
        security: List<CallbackSecurity<'b>, SECURITY_PARAMETERS_MAX>,
    }
    /// Results of CREATE_SESSION.
    #[derive(Copy, Default)]
    struct CreateSessionDone {
        /// The id of the new session.
        session: SessionId,
        /// The sequence number of the request.
        sequence: u32,
        /// The features that the server grants.
        flags: SessionFlags,
        /// The limits for calls of the client.
        fore: ChannelAttributes,
        /// The limits for callbacks.
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
        /// The highest slot on which the client has a request at this time.
        highest_slot: u32,
        /// True if the client wants the server to keep the whole reply for a repeat.
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
        /// The highest slot that the client may use.
        highest_slot: u32,
        /// The highest slot that the server wants the client to use from now on.
        target_highest_slot: u32,
        /// Flags that inform the client about its state.
        status: SequenceStatus,
    }
    /// Flags that inform a client about its state.
    flags SequenceStatus: u32 {
        /// The server has no connection on which it can send callbacks to the client.
        CB_PATH_DOWN = 0x1,
        /// All GSS contexts for callbacks expire soon.
        CB_GSS_CONTEXTS_EXPIRING = 0x2,
        /// All GSS contexts for callbacks have expired.
        CB_GSS_CONTEXTS_EXPIRED = 0x4,
        /// The lease expired, and the server revoked all state.
        EXPIRED_ALL_STATE_REVOKED = 0x8,
        /// The lease expired, and the server revoked some state.
        EXPIRED_SOME_STATE_REVOKED = 0x10,
        /// An administrator revoked some state.
        ADMIN_STATE_REVOKED = 0x20,
        /// The server revoked a delegation or layout, because the client did not return it.
        RECALLABLE_STATE_REVOKED = 0x40,
        /// A file system has moved to another server, together with its state.
        LEASE_MOVED = 0x80,
        /// The server has restarted, and the client must reclaim its state.
        RESTART_RECLAIM_NEEDED = 0x100,
        /// The session has no connection for callbacks.
        CB_PATH_DOWN_SESSION = 0x200,
        /// The client's replies to callbacks are wrong.
        BACKCHANNEL_FAULT = 0x400,
        /// A device changed, and a notification about it was lost.
        DEVID_CHANGED = 0x800,
        /// A device was deleted, and a notification about it was lost.
        DEVID_DELETED = 0x1000,
    }
    /// Arguments of SET_SSV, which sets a new version of the shared secret.
    #[derive(Copy, Default)]
    struct SetSsvArgs<'b> {
        /// A number that is combined with the old secret by exclusive or.
        secret: Opaque<'b, SECRET_BYTES_MAX>,
        /// The digest of the request.
        digest: Opaque<'b, SECRET_BYTES_MAX>,
    }
    /// Arguments of SETCLIENTID, of minor version 0.
    #[derive(Copy, Default)]
    struct SetClientIdArgs<'b> {
        /// The name by which the client identifies itself.
        owner: ClientOwner<'b>,
        /// The RPC program number of the client's callback service.
        callback_program: u32,
        /// The network address of the client's callback service.
        callback_address: NetworkAddress<'b>,
        /// A number that the server repeats in each callback.
        callback_number: u32,
    }
    /// Results of SETCLIENTID and arguments of SETCLIENTID_CONFIRM, of minor version 0.
    #[derive(Copy, Default)]
    struct SetClientIdDone {
        /// The client id that the server assigns.
        client: ClientId,
        /// The verifier that SETCLIENTID_CONFIRM must contain.
        confirm: Verifier,
    }
}
