//! RPCSEC_GSS version 1 (RFC 2203): credentials, context creation, and the wrapping of arguments.
//!
//! This module defines only the messages. It neither creates nor checks their tokens and checksums.

use crate::xdr::{Opaque, xdr};

/// The version of RPCSEC_GSS that this crate knows.
pub const GSS_VERSION: u32 = 1;
/// The maximum length of the handle of a context, in bytes. The handles of this server are shorter.
pub const HANDLE_BYTES_MAX: usize = 128;
/// The maximum length of a token that creates a context, in bytes. Tickets with a list of groups
/// can be this long.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;
/// The maximum length of a checksum, in bytes.
pub const CHECKSUM_BYTES_MAX: usize = 1024;
/// The maximum length of wrapped arguments or results, in bytes.
pub const WRAPPED_BYTES_MAX: usize = 16 << 20;
/// The smallest sequence number that is not valid. A client that reaches it must create a new
/// context.
pub const SEQUENCE_LIMIT: u32 = 0x8000_0000;

xdr! {
    /// The purpose of a call with respect to its context.
    enum GssProcedure {
        /// The call uses an existing context.
        Data = 0,
        /// The call begins to create a context.
        Init = 1,
        /// The call continues to create a context.
        ContinueInit = 2,
        /// The call ends its context.
        Destroy = 3,
    }

    /// The protection of arguments and results.
    enum GssService {
        /// Only the header of the call has a checksum.
        None = 1,
        /// Arguments and results have a checksum.
        Integrity = 2,
        /// Arguments and results are encrypted.
        Privacy = 3,
    }

    /// The body of an RPCSEC_GSS credential of version 1.
    #[derive(Copy)]
    struct GssCall<'b> {
        /// The purpose of the call with respect to its context.
        procedure: GssProcedure,
        /// The sequence number of the call in its context.
        sequence: u32,
        /// The protection of arguments and results.
        service: GssService,
        /// The handle of the context; empty in the call that begins to create it.
        handle: Opaque<'b, HANDLE_BYTES_MAX>,
    }

    /// An RPCSEC_GSS credential, by the version of RPCSEC_GSS.
    #[derive(Copy)]
    union GssCredential<'b> on u32 {
        /// A credential of version 1.
        1 => Version1(GssCall<'b>),
    }

    /// The arguments of a call that creates a context.
    #[derive(Copy)]
    struct GssInitArguments<'b> {
        /// The client's token, which the mechanism defines.
        token: Opaque<'b, TOKEN_BYTES_MAX>,
    }

    /// The results of a call that creates a context.
    #[derive(Copy)]
    struct GssInitResults<'b> {
        /// The handle of the context, for further calls.
        handle: Opaque<'b, HANDLE_BYTES_MAX>,
        /// The major status of GSS-API: 0 for success, 1 if another call is needed.
        major: u32,
        /// The minor status, which the mechanism defines.
        minor: u32,
        /// The maximum number of calls of the context that may be in flight.
        sequence_window: u32,
        /// The server's token, which the mechanism defines.
        token: Opaque<'b, TOKEN_BYTES_MAX>,
    }

    /// Arguments or results with a checksum. The field `body` starts with a [`GssBody`].
    #[derive(Copy)]
    struct GssIntegrity<'b> {
        /// The sequence number, and then the arguments or results.
        body: Opaque<'b, WRAPPED_BYTES_MAX>,
        /// The checksum of the body.
        checksum: Opaque<'b, CHECKSUM_BYTES_MAX>,
    }

    /// Encrypted arguments or results. The decrypted bytes start with a [`GssBody`].
    #[derive(Copy)]
    struct GssPrivacy<'b> {
        /// The token with the encrypted content.
        body: Opaque<'b, WRAPPED_BYTES_MAX>,
    }

    /// The start of the protected bytes, before the arguments or results.
    #[derive(Copy)]
    struct GssBody {
        /// The sequence number, which must be that of the call's credential.
        sequence: u32,
    }
}
