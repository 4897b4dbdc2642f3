//! Checks and opens protected calls, and protects replies (RFC 2203 section 5.3).

use std::ops::Range;

use dafs_gss::{Context, GssError, Protection};
use dafs_nfs_wire::rpc::gss::{GssInitResults, GssIntegrity, GssPrivacy};
use dafs_nfs_wire::rpc::{self, Auth, AuthStat, Call, Rejected, ReplyBody, flavor};
use dafs_nfs_wire::xdr::{Opaque, Writer, Xdr, decode_whole};

use super::route::Seal;

/// The reason why a protected call is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nfs) enum Refusal {
    /// The verifier does not match the header: RPCSEC_GSS_CREDPROBLEM.
    Forged,
    /// The header is genuine, but the arguments were altered or cannot be decoded: GARBAGE_ARGS.
    Garbage,
}

/// The arguments of a call whose header is genuine.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::nfs) enum Opened {
    /// The arguments are these bytes of the protected arguments.
    Within(Range<usize>),
    /// The arguments were encrypted.
    Decrypted(Vec<u8>),
}

/// Checks the verifier of a call, and returns its arguments without their protection.
pub(in crate::nfs) fn open(
    context: &mut Context,
    seal: &Seal,
    call: &Call<'_>,
    arguments: &[u8],
) -> Result<Opened, Refusal> {
    let is_genuine = call.verifier.flavor == flavor::GSS
        && context.verify_mic(call.header, call.verifier.body.0).is_ok();
    if !is_genuine {
        return Err(Refusal::Forged);
    }
    let is_numbered = |body: &[u8]| body.starts_with(&seal.sequence.to_be_bytes());
    match seal.protection {
        Protection::Authentication => Ok(Opened::Within(0..arguments.len())),
        Protection::Integrity => {
            let GssIntegrity { body, checksum } =
                decode_whole(arguments).map_err(|_| Refusal::Garbage)?;
            context.verify_mic(body.0, checksum.0).map_err(|_| Refusal::Garbage)?;
            let start = LENGTH_BYTES + SEQUENCE_BYTES;
            let range = start..LENGTH_BYTES + body.0.len();
            is_numbered(body.0).then_some(Opened::Within(range)).ok_or(Refusal::Garbage)
        }
        Protection::Privacy => {
            let GssPrivacy { body } = decode_whole(arguments).map_err(|_| Refusal::Garbage)?;
            let opened = context.unwrap(Protection::Privacy, body.0);
            let mut opened = opened.map_err(|_| Refusal::Garbage)?;
            if !is_numbered(&opened) {
                return Err(Refusal::Garbage);
            }
            opened.drain(..SEQUENCE_BYTES);
            Ok(Opened::Decrypted(opened))
        }
    }
}

/// Returns the arguments of a call that was opened. `arguments` are the protected arguments.
pub(in crate::nfs) fn within<'b>(opened: &'b Opened, arguments: &'b [u8]) -> &'b [u8] {
    match opened {
        Opened::Within(range) => arguments.get(range.clone()).unwrap_or_default(),
        Opened::Decrypted(bytes) => bytes,
    }
}

/// Returns the verifier of a reply, which is the checksum of the call's sequence number.
pub(in crate::nfs) fn verifier(context: &mut Context, sequence: u32) -> Result<Vec<u8>, GssError> {
    context.get_mic(&sequence.to_be_bytes())
}

/// Returns the start of a reply to an accepted call, up to the verifier. The outcome follows.
pub(in crate::nfs) fn head(xid: u32, verifier: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    let verifier = Auth { flavor: flavor::GSS, body: Opaque(verifier) };
    rpc::encode_reply(xid, rpc::success(verifier), &mut writer);
    let mut bytes = writer.into_buffer();
    bytes.truncate(bytes.len() - OUTCOME_BYTES);
    bytes
}

/// Returns true if a reply starts with the header of an accepted call.
pub(in crate::nfs) fn is_accepted(reply: &[u8]) -> bool {
    reply.len() >= HEADER_BYTES && reply[ACCEPTED_AT] == 0
}

/// Returns the protected form of a whole reply. A reply to a denied call is not protected.
///
/// # Errors
/// If the results cannot be protected. No reply must be sent then (RFC 2203 section 5.3.3.4.4).
pub(in crate::nfs) fn seal_reply(
    context: &mut Context,
    seal: &Seal,
    reply: &[u8],
) -> Result<Vec<u8>, GssError> {
    if !is_accepted(reply) {
        return Ok(reply.to_vec());
    }
    let [a, b, c, d, ..] = *reply else { return Ok(reply.to_vec()) };
    let xid = u32::from_be_bytes([a, b, c, d]);
    let (header, results) = reply.split_at(HEADER_BYTES);
    let outcome = &header[HEADER_BYTES - OUTCOME_BYTES..];
    let Ok(proof) = verifier(context, seal.sequence) else {
        // The context has expired since the call arrived (RFC 2203 section 5.3.3.4.1).
        let mut writer = Writer::new();
        let denied = ReplyBody::Denied(Rejected::AuthError(AuthStat::GssContextProblem));
        rpc::encode_reply(xid, denied, &mut writer);
        return Ok(writer.into_buffer());
    };
    let mut sealed = head(xid, &proof);
    sealed.extend_from_slice(outcome);
    // Only results are protected. A failed call has none.
    let is_success = outcome == [0; OUTCOME_BYTES];
    let protection = if is_success { seal.protection } else { Protection::Authentication };
    let numbered = || [&seal.sequence.to_be_bytes()[..], results].concat();
    let mut writer = Writer::from_buffer(sealed);
    writer.set_limit(usize::MAX);
    match protection {
        Protection::Authentication => writer.raw(results),
        Protection::Integrity => {
            let body = numbered();
            let checksum = context.get_mic(&body)?;
            GssIntegrity { body: Opaque(&body), checksum: Opaque(&checksum) }.encode(&mut writer);
        }
        Protection::Privacy => {
            let body = context.wrap(Protection::Privacy, &numbered())?;
            GssPrivacy { body: Opaque(&body) }.encode(&mut writer);
        }
    }
    Ok(writer.into_buffer())
}

/// Writes the reply to a call that creates a context. `proof` is the verifier of a complete
/// context.
pub(in crate::nfs) fn completed(
    writer: &mut Writer,
    xid: u32,
    proof: Option<&[u8]>,
    results: &GssInitResults<'_>,
) {
    writer.clear();
    let verifier = match proof {
        Some(body) => Auth { flavor: flavor::GSS, body: Opaque(body) },
        None => Auth::NONE,
    };
    rpc::encode_reply(xid, rpc::success(verifier), writer);
    results.encode(writer);
}

impl Refusal {
    /// Returns the status with which the call is denied. `None` if the call is accepted, but its
    /// arguments cannot be decoded.
    pub(in crate::nfs) const fn status(self) -> Option<AuthStat> {
        match self {
            Self::Forged => Some(AuthStat::GssCredProblem),
            Self::Garbage => None,
        }
    }
}

/// The length of the header of a reply to an accepted call with an empty verifier: xid, kind,
/// accepted, verifier and outcome.
const HEADER_BYTES: usize = 24;
/// The length of the outcome at the end of that header.
const OUTCOME_BYTES: usize = 4;
/// The position of the byte that is 0 in a reply to an accepted call, and 1 if it was denied.
const ACCEPTED_AT: usize = 11;
/// The length of the number before an opaque.
const LENGTH_BYTES: usize = 4;
/// The length of the sequence number before arguments and results.
const SEQUENCE_BYTES: usize = 4;
