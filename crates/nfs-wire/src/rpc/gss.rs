//! RPCSEC_GSS version 1 (RFC 2203): credentials, context creation, and the wrapping of arguments.
//!
//! This module has the forms only; the tokens and checksums in them are made elsewhere.

use crate::xdr::{Opaque, xdr};

/// The version of RPCSEC_GSS that this crate knows.
pub const GSS_VERSION: u32 = 1;
/// The maximum length of a context's handle, in bytes. Our own handles are shorter.
pub const HANDLE_BYTES_MAX: usize = 128;
/// The maximum length of a token that creates a context, in bytes. Tickets with a list of groups
/// can be this long.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;
/// The maximum length of a checksum, in bytes.
pub const CHECKSUM_BYTES_MAX: usize = 1024;
/// The maximum length of wrapped arguments or results, in bytes.
pub const WRAPPED_BYTES_MAX: usize = 16 << 20;
/// Sequence numbers must be smaller than this; then the client makes another context.
pub const SEQUENCE_LIMIT: u32 = 0x8000_0000;

xdr! {
    /// What a call does with its context.
    enum GssProcedure {
        /// The call belongs to an existing context.
        Data = 0,
        /// The first call that creates a context.
        Init = 1,
        /// A further call that creates a context.
        ContinueInit = 2,
        /// The call ends its context.
        Destroy = 3,
    }

    /// How arguments and results are protected.
    enum GssService {
        /// Only the header has a checksum.
        None = 1,
        /// Arguments and results have a checksum.
        Integrity = 2,
        /// Arguments and results are encrypted.
        Privacy = 3,
    }

    /// The body of the credential of version 1.
    #[derive(Copy)]
    struct GssCall<'b> {
        /// What the call does with its context.
        procedure: GssProcedure,
        /// The sequence number of the call in its context.
        sequence: u32,
        /// How arguments and results are protected.
        service: GssService,
        /// The handle of the context; empty in the first call.
        handle: Opaque<'b, HANDLE_BYTES_MAX>,
    }

    /// A credential, by its version.
    #[derive(Copy)]
    union GssCredential<'b> on u32 {
        /// A credential of version 1.
        1 => Version1(GssCall<'b>),
    }

    /// The arguments of a call that creates a context.
    #[derive(Copy)]
    struct GssInitArguments<'b> {
        /// The client's token of the mechanism.
        token: Opaque<'b, TOKEN_BYTES_MAX>,
    }

    /// The results of a call that creates a context.
    #[derive(Copy)]
    struct GssInitResults<'b> {
        /// The handle for further calls.
        handle: Opaque<'b, HANDLE_BYTES_MAX>,
        /// The major status of GSS-API; 0 is success, and 1 asks for another call.
        major: u32,
        /// The minor status, which the mechanism defines.
        minor: u32,
        /// The number of calls that may be under way at the same time.
        sequence_window: u32,
        /// The server's token of the mechanism.
        token: Opaque<'b, TOKEN_BYTES_MAX>,
    }

    /// Arguments or results with a checksum. `body` is a [`GssBody`].
    #[derive(Copy)]
    struct GssIntegrity<'b> {
        /// The sequence number, and then the arguments or results.
        body: Opaque<'b, WRAPPED_BYTES_MAX>,
        /// The checksum of the body.
        checksum: Opaque<'b, CHECKSUM_BYTES_MAX>,
    }

    /// Encrypted arguments or results, which decrypt to a [`GssBody`].
    #[derive(Copy)]
    struct GssPrivacy<'b> {
        /// The token with the encrypted content.
        body: Opaque<'b, WRAPPED_BYTES_MAX>,
    }

    /// What precedes the arguments or results inside of a protected body.
    #[derive(Copy)]
    struct GssBody {
        /// The sequence number of the call's credential, repeated.
        sequence: u32,
    }
}
