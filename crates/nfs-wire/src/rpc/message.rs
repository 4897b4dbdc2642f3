//! The headers of calls and replies.

use super::Auth;
use crate::xdr::{Reader, Writer, Xdr, XdrError, xdr};

/// The version of ONC RPC that this crate knows.
pub const RPC_VERSION: u32 = 2;

xdr! {
    /// The type of a message: a call or a reply.
    enum MessageType {
        /// The message calls a procedure.
        Call = 0,
        /// The message is the reply to a call.
        Reply = 1,
    }

    /// The two kinds of replies: to accepted and to denied calls.
    enum ReplyStat {
        /// The call was accepted. The procedure may still have failed.
        Accepted = 0,
        /// The call was denied because of its version or credential.
        Denied = 1,
    }

    /// The outcome of an accepted call.
    enum AcceptStat {
        /// The procedure was called, and its results follow.
        Success = 0,
        /// The server does not offer the program.
        ProgUnavail = 1,
        /// The server does not offer this version of the program.
        ProgMismatch = 2,
        /// The program does not have the procedure.
        ProcUnavail = 3,
        /// The arguments cannot be decoded.
        GarbageArgs = 4,
        /// The server lacks memory or another resource.
        SystemErr = 5,
    }

    /// The reason why a call was denied.
    enum RejectStat {
        /// The server does not support this version of RPC.
        RpcMismatch = 0,
        /// The server does not accept the credential.
        AuthError = 1,
    }

    /// The fault of a credential or verifier.
    enum AuthStat {
        /// There is no fault.
        Ok = 0,
        /// The body of the credential is not valid for its flavor.
        BadCred = 1,
        /// The client must begin a new session.
        RejectedCred = 2,
        /// The body of the verifier is not valid for its flavor.
        BadVerf = 3,
        /// The verifier has expired, or was used before.
        RejectedVerf = 4,
        /// The flavor is too weak for this server or this export.
        TooWeak = 5,
        /// The verifier in the reply is wrong.
        InvalidResp = 6,
        /// The reason is unknown.
        Failed = 7,
        /// Kerberos version 4 failed in general.
        KerbGeneric = 8,
        /// The credential of Kerberos version 4 has expired.
        TimeExpire = 9,
        /// The ticket file of Kerberos version 4 is wrong.
        TicketFile = 10,
        /// The authenticator of Kerberos version 4 cannot be decoded.
        Decode = 11,
        /// The address in the ticket of Kerberos version 4 is wrong.
        NetAddr = 12,
        /// The GSS context is unknown, and the client must create another.
        GssCredProblem = 13,
        /// The GSS context can no longer be used.
        GssContextProblem = 14,
    }

    /// The lowest and the highest version that the server supports.
    #[derive(Copy)]
    struct Versions {
        /// The lowest version that the server supports.
        low: u32,
        /// The highest version that the server supports.
        high: u32,
    }

    /// The outcome of an accepted call. After a success, the results follow.
    #[derive(Copy)]
    union Outcome on AcceptStat {
        /// The procedure was called, and its results follow.
        Success => Success,
        /// The server does not offer the program.
        ProgUnavail => ProgUnavail,
        /// The server offers only these versions of the program.
        ProgMismatch => ProgMismatch(Versions),
        /// The program does not have the procedure.
        ProcUnavail => ProcUnavail,
        /// The arguments cannot be decoded.
        GarbageArgs => GarbageArgs,
        /// The server lacks memory or another resource.
        SystemErr => SystemErr,
    }

    /// The reply to an accepted call, up to the results.
    #[derive(Copy)]
    struct Accepted<'b> {
        /// The verifier, by which the server authenticates itself.
        verifier: Auth<'b>,
        /// The outcome of the call.
        outcome: Outcome,
    }

    /// The reason why a call was denied.
    #[derive(Copy)]
    union Rejected on RejectStat {
        /// The server supports only these versions of RPC.
        RpcMismatch => RpcMismatch(Versions),
        /// The server does not accept the credential.
        AuthError => AuthError(AuthStat),
    }

    /// The content of a reply, up to the results.
    #[derive(Copy)]
    union ReplyBody<'b> on ReplyStat {
        /// The call was accepted. The procedure may still have failed.
        Accepted => Accepted(Accepted<'b>),
        /// The call was denied because of its version or credential.
        Denied => Denied(Rejected),
    }

    /// A reply, up to the results.
    #[derive(Copy)]
    struct Reply<'b> {
        /// The identifier of the call to which this is the reply.
        xid: u32,
        /// The type of the message, which is always [`MessageType::Reply`].
        message_type: MessageType,
        /// The content of the reply.
        body: ReplyBody<'b>,
    }

    /// The procedure that a call names, in the header before credential and verifier.
    #[derive(Copy)]
    struct Target {
        /// The number of the program.
        program: u32,
        /// The version of the program.
        version: u32,
        /// The number of the procedure.
        procedure: u32,
    }
}

/// A call, up to the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'b> {
    /// The identifier that the reply repeats.
    pub xid: u32,
    /// The number of the program.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The number of the procedure.
    pub procedure: u32,
    /// The credential: the identity that the caller states.
    pub credential: Auth<'b>,
    /// The verifier: the proof of the caller's identity.
    pub verifier: Auth<'b>,
    /// The bytes of the header before the verifier, which a verifier of RPCSEC_GSS protects.
    pub header: &'b [u8],
}

/// The reason why a record is not a call that can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The record is neither a call nor a reply that this crate knows. No reply is possible, and
    /// the connection should be closed.
    #[error("the record is not a call")]
    NotACall,
    /// The record is a reply, to a call that the server has sent on the back channel.
    #[error("the record is a reply")]
    IsReply,
    /// The call cannot be executed, and this reply must be sent.
    #[error("the call {} must be refused: {:?}", .0.xid, .0.body)]
    Refuse(Refused),
    /// The header of the call has not arrived completely.
    #[error("the header has not arrived as a whole")]
    Absent,
}

/// The data of a reply that refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The identifier of the call.
    pub xid: u32,
    /// The content of the reply.
    pub body: ReplyBody<'static>,
}

/// Decodes the header of a call. The reader must be at the start of its record. Afterwards, it is
/// at the arguments.
///
/// # Errors
/// If the record is not a valid call of RPC version 2; see [`CallError`].
pub fn decode_call<'b>(reader: &mut Reader<'b>) -> Result<Call<'b>, CallError> {
    let record = reader.rest();
    let unanswerable = |error| match error {
        XdrError::Absent => CallError::Absent,
        _ => CallError::NotACall,
    };
    let xid = reader.u32().map_err(unanswerable)?;
    match MessageType::decode(reader).map_err(unanswerable)? {
        MessageType::Call => {}
        MessageType::Reply => return Err(CallError::IsReply),
    }
    let refuse = |body| CallError::Refuse(Refused { xid, body: ReplyBody::Denied(body) });
    let refused = |error, status| match error {
        XdrError::Absent => CallError::Absent,
        _ => refuse(Rejected::AuthError(status)),
    };
    if reader.u32().map_err(unanswerable)? != RPC_VERSION {
        let versions = Versions { low: RPC_VERSION, high: RPC_VERSION };
        return Err(refuse(Rejected::RpcMismatch(versions)));
    }
    let target = Target::decode(reader).map_err(unanswerable)?;
    let credential = Auth::decode(reader).map_err(|error| refused(error, AuthStat::BadCred))?;
    let header = &record[..record.len() - reader.rest().len()];
    let verifier = Auth::decode(reader).map_err(|error| refused(error, AuthStat::BadVerf))?;
    let Target { program, version, procedure } = target;
    Ok(Call { xid, program, version, procedure, credential, verifier, header })
}

/// Appends the header of a call. The caller then appends the arguments. The field `header` is
/// ignored.
pub fn encode_call(call: &Call<'_>, writer: &mut Writer) {
    let Call { xid, program, version, procedure, credential, verifier, header: _ } = call;
    writer.u32(*xid);
    MessageType::Call.encode(writer);
    writer.u32(RPC_VERSION);
    let (program, version, procedure) = (*program, *version, *procedure);
    Target { program, version, procedure }.encode(writer);
    credential.encode(writer);
    verifier.encode(writer);
}

/// Appends the header of a reply. If the call succeeded, the caller then appends the results.
pub fn encode_reply(xid: u32, body: ReplyBody<'_>, writer: &mut Writer) {
    Reply { xid, message_type: MessageType::Reply, body }.encode(writer);
}

/// Returns the content of a reply to a call that succeeded.
#[must_use]
pub const fn success(verifier: Auth<'_>) -> ReplyBody<'_> {
    ReplyBody::Accepted(Accepted { verifier, outcome: Outcome::Success })
}

/// Returns the content of a reply to an accepted call that failed.
#[must_use]
pub const fn failure(verifier: Auth<'_>, outcome: Outcome) -> ReplyBody<'_> {
    ReplyBody::Accepted(Accepted { verifier, outcome })
}
