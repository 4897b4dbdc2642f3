//! The headers of calls and replies.

use super::Auth;
use crate::xdr::{Reader, Writer, Xdr, XdrError, xdr};

/// The version of ONC RPC that this crate knows.
pub const RPC_VERSION: u32 = 2;

xdr! {
    /// Whether a message is a call or a reply.
    enum MessageType {
        /// The message calls a procedure.
        Call = 0,
        /// The message answers a call.
        Reply = 1,
    }

    /// Whether the server looked at the call.
    enum ReplyStat {
        /// The call was accepted, which does not mean success.
        Accepted = 0,
        /// The call was denied because of its version or credential.
        Denied = 1,
    }

    /// What became of an accepted call.
    enum AcceptStat {
        /// The procedure was called, and its results follow.
        Success = 0,
        /// The server does not have the program.
        ProgUnavail = 1,
        /// The server does not have the version of the program.
        ProgMismatch = 2,
        /// The program does not have the procedure.
        ProcUnavail = 3,
        /// The arguments cannot be decoded.
        GarbageArgs = 4,
        /// The server has run out of something.
        SystemErr = 5,
    }

    /// Why a call was denied.
    enum RejectStat {
        /// The server does not know the version of RPC.
        RpcMismatch = 0,
        /// The server does not accept the credential.
        AuthError = 1,
    }

    /// What is wrong with a credential or verifier.
    enum AuthStat {
        /// Nothing is wrong with it.
        Ok = 0,
        /// The credential has a form that its flavor does not allow.
        BadCred = 1,
        /// The client must begin a new session.
        RejectedCred = 2,
        /// The verifier has a form that its flavor does not allow.
        BadVerf = 3,
        /// The verifier is too old, or was sent before.
        RejectedVerf = 4,
        /// The flavor is too weak for this server or export.
        TooWeak = 5,
        /// The verifier of the reply is wrong.
        InvalidResp = 6,
        /// The reason is not known.
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
        /// The context is unknown, and the client must make another.
        GssCredProblem = 13,
        /// The context cannot be used any longer.
        GssContextProblem = 14,
    }

    /// The lowest and the highest version that the server has.
    #[derive(Copy)]
    struct Versions {
        /// The lowest version that the server has.
        low: u32,
        /// The highest version that the server has.
        high: u32,
    }

    /// What became of an accepted call. Results follow a success.
    #[derive(Copy)]
    union Outcome on AcceptStat {
        /// The procedure was called, and its results follow.
        Success => Success,
        /// The server does not have the program.
        ProgUnavail => ProgUnavail,
        /// The server has other versions of the program.
        ProgMismatch => ProgMismatch(Versions),
        /// The program does not have the procedure.
        ProcUnavail => ProcUnavail,
        /// The arguments cannot be decoded.
        GarbageArgs => GarbageArgs,
        /// The server has run out of something.
        SystemErr => SystemErr,
    }

    /// The reply to an accepted call, up to the results.
    #[derive(Copy)]
    struct Accepted<'b> {
        /// The proof that the server is who it says it is.
        verifier: Auth<'b>,
        /// What became of the call.
        outcome: Outcome,
    }

    /// Why a call was denied.
    #[derive(Copy)]
    union Rejected on RejectStat {
        /// The server has other versions of RPC.
        RpcMismatch => RpcMismatch(Versions),
        /// The server does not accept the credential.
        AuthError => AuthError(AuthStat),
    }

    /// The content of a reply, up to the results.
    #[derive(Copy)]
    union ReplyBody<'b> on ReplyStat {
        /// The call was accepted, which does not mean success.
        Accepted => Accepted(Accepted<'b>),
        /// The call was denied because of its version or credential.
        Denied => Denied(Rejected),
    }

    /// A reply, up to the results.
    #[derive(Copy)]
    struct Reply<'b> {
        /// The identifier of the call that this answers.
        xid: u32,
        /// Always [`MessageType::Reply`], for a reply.
        message_type: MessageType,
        /// The content of the reply.
        body: ReplyBody<'b>,
    }

    /// What a call asks for, before credential and verifier.
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
    /// Who the caller says it is.
    pub credential: Auth<'b>,
    /// The proof for the credential.
    pub verifier: Auth<'b>,
    /// The bytes of the header up to the verifier, which a verifier of RPCSEC_GSS protects.
    pub header: &'b [u8],
}

/// A record that is not a call that can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No reply is possible, and the connection should be closed.
    #[error("the record is not a call")]
    NotACall,
    /// The record is a reply, to a call on the backchannel.
    #[error("the record is a reply")]
    IsReply,
    /// The call must be refused in this way.
    #[error("the call {} must be refused: {:?}", .0.xid, .0.body)]
    Refuse(Refused),
    /// The header has not arrived as a whole.
    #[error("the header has not arrived as a whole")]
    Absent,
}

/// A refusal, as the reply needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The identifier of the call.
    pub xid: u32,
    /// The content of the reply.
    pub body: ReplyBody<'static>,
}

/// Decodes the header of a call. The reader stands at the arguments afterwards, and must be at the
/// start of its record before.
///
/// # Errors
/// If the record is not a call of RPC version 2; see [`CallError`].
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

/// Appends the header of a call; the arguments come next. The field `header` is not used.
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

/// Appends the header of a reply; the results of a success come next.
pub fn encode_reply(xid: u32, body: ReplyBody<'_>, writer: &mut Writer) {
    Reply { xid, message_type: MessageType::Reply, body }.encode(writer);
}

/// Returns the content of a reply whose results follow.
#[must_use]
pub const fn success(verifier: Auth<'_>) -> ReplyBody<'_> {
    ReplyBody::Accepted(Accepted { verifier, outcome: Outcome::Success })
}

/// Returns the content of a reply to an accepted call that failed.
#[must_use]
pub const fn failure(verifier: Auth<'_>, outcome: Outcome) -> ReplyBody<'_> {
    ReplyBody::Accepted(Accepted { verifier, outcome })
}
