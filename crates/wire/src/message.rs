//! Whole messages: a header, and the arguments or results of one procedure.
//!
//! Invariant: a message that decodes has been checked completely (lengths, offsets, numbers, names,
//! padding). For a message that does not decode, the error contains the status for the reply and,
//! if the header is readable, the header of the request. No function here allocates.

use dafs_types::Status;

use crate::error::{DecodeError, EncodeError};
use crate::header::{ChainFlags, RequestHeader, ResponseHeader};
use crate::limits::{HEADER_BYTES, PROTOCOL_VERSION};
use crate::messages::*;
use crate::order::{ByteOrder, Order, with_order};
use crate::procedure::{Procedure, procedure_table};
use crate::scope::{Scope, Writer};
use crate::section::Section;

macro_rules! messages {
    ($($variant:ident $number:literal $name:literal ($($request:tt)*) ($($response:tt)*)
        $chain:ident $replay:ident $rights:ident ($bound:expr);)*) => {
        /// A decoded request: the arguments of one procedure.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Request<'a> {
            $(#[doc = concat!("Arguments of ", $name, ".")] $variant($($request)*),)*
        }

        /// A decoded reply: the results of one procedure.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Response<'a> {
            /// A failure without results. The status is in the header.
            Failed,
            $(#[doc = concat!("Results of ", $name, ".")] $variant($($response)*),)*
        }

        impl<'a> Request<'a> {
            /// Returns the procedure to which these arguments belong.
            #[must_use]
            #[inline]
            pub const fn procedure(&self) -> Procedure {
                match self {
                    $(Self::$variant(_) => Procedure::$variant,)*
                }
            }

            #[inline(always)]
            fn read<O: Order>(
                procedure: Procedure,
                body: Scope<'a, O>,
            ) -> Result<Self, DecodeError> {
                match procedure {
                    $(Procedure::$variant => Section::read(body).map(Self::$variant),)*
                }
            }

            #[inline(always)]
            fn write<O: Order>(&self, body: &mut [u8]) -> Result<Written, EncodeError> {
                match self {
                    $(Self::$variant(section) => write_section::<O, _>(section, body),)*
                }
            }
        }

        impl<'a> Response<'a> {
            /// Returns the procedure to which these results belong. `None` for a failure.
            #[must_use]
            #[inline]
            pub const fn procedure(&self) -> Option<Procedure> {
                match self {
                    Self::Failed => None,
                    $(Self::$variant(_) => Some(Procedure::$variant),)*
                }
            }

            #[inline(always)]
            fn read<O: Order>(
                procedure: Procedure,
                body: Scope<'a, O>,
            ) -> Result<Self, DecodeError> {
                match procedure {
                    $(Procedure::$variant => Section::read(body).map(Self::$variant),)*
                }
            }

            #[inline(always)]
            fn write<O: Order>(&self, body: &mut [u8]) -> Result<Written, EncodeError> {
                match self {
                    Self::Failed => Ok(Written { here: 0, following: 0 }),
                    $(Self::$variant(section) => write_section::<O, _>(section, body),)*
                }
            }
        }
    };
}

procedure_table!(messages);

/// The size of a successful reply to READ_DIRECT, WRITE_INLINE or WRITE_DIRECT, in bytes.
pub const TRANSFER_ANSWER_BYTES: usize = HEADER_BYTES + <ReadDirectResult as Section>::SIZE;

/// The size of a reply to OPEN without a delegation, in bytes.
pub const OPEN_ANSWER_BYTES: usize = HEADER_BYTES + <OpenResult<'_> as Section>::SIZE;

const _: () = assert!(<WriteResult as Section>::SIZE == <ReadDirectResult as Section>::SIZE);

/// The number of bytes of a body that were encoded, and the number of bytes that the caller sends
/// after them.
struct Written {
    here: usize,
    following: usize,
}

impl Written {
    /// Returns the value of the message's length field.
    #[inline(always)]
    fn message_length(&self) -> Result<u32, EncodeError> {
        u32::try_from(HEADER_BYTES + self.here + self.following)
            .map_err(|_| EncodeError::TooMany { what: "message" })
    }
}

#[inline(always)]
fn write_section<'a, O: Order, S: Section<'a>>(
    section: &S,
    body: &mut [u8],
) -> Result<Written, EncodeError> {
    let mut writer = Writer::<O>::new(body, S::SIZE)?;
    section.write(&mut writer)?;
    Ok(Written { here: writer.length(), following: section.following() })
}

/// A request that cannot be decoded, with the data needed for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct RequestError {
    /// The header of the request. `None` if the header could not be decoded; no reply is possible
    /// then, and the connection must be closed.
    pub header: Option<RequestHeader>,
    /// The reason why the request cannot be decoded.
    pub error: DecodeError,
}

impl RequestError {
    /// Returns the status for the reply.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.error.status()
    }
}

/// Decodes a request.
///
/// # Errors
/// A [`DecodeError`] if the bytes are not a request of this version, in this byte order, of exactly
/// `message.len()` bytes. The checksum is not verified, so `is_intact` must be called too in
/// sessions that have checksums.
#[inline]
pub fn decode_request(
    order: ByteOrder,
    message: &[u8],
) -> Result<(RequestHeader, Request<'_>), RequestError> {
    with_order!(order, O => decode_request_in::<O>(message))
}

#[inline]
fn decode_request_in<O: Order>(
    message: &[u8],
) -> Result<(RequestHeader, Request<'_>), RequestError> {
    let header = match RequestHeader::read(Scope::<O>::new(message)) {
        Ok(header) => header,
        Err(error) => return Err(RequestError { header: None, error }),
    };
    match decode_arguments_in::<O>(&header, message) {
        Ok(request) => Ok((header, request)),
        Err(error) => Err(RequestError { header: Some(header), error }),
    }
}

/// Decodes the arguments that follow a header, which was decoded before.
///
/// # Errors
/// The errors of [`decode_request`].
#[inline]
pub fn decode_arguments<'m>(
    order: ByteOrder,
    header: &RequestHeader,
    message: &'m [u8],
) -> Result<Request<'m>, DecodeError> {
    with_order!(order, O => decode_arguments_in::<O>(header, message))
}

#[inline(always)]
fn decode_arguments_in<'a, O: Order>(
    header: &RequestHeader,
    message: &'a [u8],
) -> Result<Request<'a>, DecodeError> {
    if header.version != PROTOCOL_VERSION {
        return Err(DecodeError::Version(header.version));
    }
    if !ChainFlags::ALL.contains(header.chain_flags) {
        return Err(DecodeError::ChainFlags(header.chain_flags.0));
    }
    let procedure =
        Procedure::from_number(header.procedure).ok_or(DecodeError::Procedure(header.procedure))?;
    Request::read(procedure, Scope::<O>::new(message.get(HEADER_BYTES..).unwrap_or_default()))
}

/// Encodes a request into the start of `buffer` and returns the number of bytes written.
///
/// The fields `procedure` and `length` of the header are ignored; the values in the message follow
/// from the request. With `InlineData::Follows` the length includes the data that the caller sends
/// afterwards.
///
/// # Errors
/// If the buffer is too short, or a value cannot be encoded.
#[inline]
pub fn encode_request(
    order: ByteOrder,
    header: &RequestHeader,
    request: &Request<'_>,
    buffer: &mut [u8],
) -> Result<usize, EncodeError> {
    with_order!(order, O => encode_request_in::<O>(header, request, buffer))
}

#[inline]
fn encode_request_in<O: Order>(
    header: &RequestHeader,
    request: &Request<'_>,
    buffer: &mut [u8],
) -> Result<usize, EncodeError> {
    let (front, body) = buffer.split_at_mut_checked(HEADER_BYTES).ok_or(EncodeError::Space)?;
    let written = request.write::<O>(body)?;
    let mut writer = Writer::<O>::new(front, HEADER_BYTES)?;
    header.write(&mut writer, request.procedure().number(), written.message_length()?)?;
    Ok(HEADER_BYTES + written.here)
}

/// Says whether a reply has results after its header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Must,
    May,
    Never,
}

/// Returns whether a reply with this status has results after its header (`docs/spec/gaps.md`,
/// "results of a failure").
#[inline(always)]
fn presence(procedure: Procedure, status: Status) -> Presence {
    if status == Status::Ok {
        return Presence::Must;
    }
    match procedure {
        Procedure::Lock | Procedure::LockT
            if matches!(status, Status::Denied | Status::LockBroken) =>
        {
            Presence::Must
        }
        Procedure::ClientAuth | Procedure::ClientConnectAuth | Procedure::ConnectBind
            if status == Status::GssContinueInit =>
        {
            Presence::Must
        }
        Procedure::ClientAuth | Procedure::ClientConnectAuth | Procedure::ConnectBind
            if status == Status::NotAuthorized =>
        {
            Presence::May
        }
        Procedure::Lookup | Procedure::Open if status != Status::NoPartialInfo => Presence::May,
        Procedure::SetAttrInline | Procedure::SetAttrDirect | Procedure::FetchResponse => {
            Presence::May
        }
        _ => Presence::Never,
    }
}

/// Checks the results of a lock request against the status: returns true if a conflict is present
/// exactly when the status requires one.
#[inline(always)]
fn agrees(status: Status, response: &Response<'_>) -> bool {
    match response {
        Response::Lock(result) | Response::LockT(result) => {
            result.conflict.is_some() == (status != Status::Ok)
        }
        _ => true,
    }
}

/// Decodes the reply to a request of `procedure`.
///
/// The reply to FETCH_RESPONSE must be decoded as a reply to the original procedure.
///
/// # Errors
/// A [`DecodeError`] if the bytes are not such a reply of this version, in this byte order. Only a
/// refusal with `IllegalProt` may have a different version.
#[inline]
pub fn decode_response(
    order: ByteOrder,
    procedure: Procedure,
    message: &[u8],
) -> Result<(ResponseHeader, Response<'_>), DecodeError> {
    with_order!(order, O => decode_response_in::<O>(procedure, message))
}

/// Decodes the results that follow a header, which was decoded before.
///
/// # Errors
/// The errors of [`decode_response`].
#[inline]
pub fn decode_results<'m>(
    order: ByteOrder,
    procedure: Procedure,
    header: &ResponseHeader,
    message: &'m [u8],
) -> Result<Response<'m>, DecodeError> {
    with_order!(order, O => decode_results_in::<O>(procedure, header, message))
}

#[inline]
fn decode_response_in<O: Order>(
    procedure: Procedure,
    message: &[u8],
) -> Result<(ResponseHeader, Response<'_>), DecodeError> {
    let header = ResponseHeader::read(Scope::<O>::new(message))?;
    let response = decode_results_in::<O>(procedure, &header, message)?;
    Ok((header, response))
}

#[inline]
fn decode_results_in<'m, O: Order>(
    procedure: Procedure,
    header: &ResponseHeader,
    message: &'m [u8],
) -> Result<Response<'m>, DecodeError> {
    if header.version != PROTOCOL_VERSION && header.status != Status::IllegalProt {
        return Err(DecodeError::Version(header.version));
    }
    let body = message.get(HEADER_BYTES..).unwrap_or_default();
    match presence(procedure, header.status) {
        Presence::Never => return Ok(Response::Failed),
        Presence::May if body.is_empty() => return Ok(Response::Failed),
        Presence::Must | Presence::May => {}
    }
    // Checked by reference to avoid a copy: a decoded reply takes several cache lines.
    let read = Response::read(procedure, Scope::<O>::new(body));
    match &read {
        Ok(response) if !agrees(header.status, response) => Err(DecodeError::Results),
        _ => read,
    }
}

/// Encodes a reply into the start of `buffer` and returns the number of bytes written.
///
/// With `InlineData::Follows` the header's length includes the data that the caller sends
/// afterwards.
///
/// # Errors
/// If the buffer is too short, a value cannot be encoded, or results and status contradict each
/// other.
#[inline]
pub fn encode_response(
    order: ByteOrder,
    header: &ResponseHeader,
    response: &Response<'_>,
    buffer: &mut [u8],
) -> Result<usize, EncodeError> {
    with_order!(order, O => encode_response_in::<O>(header, response, buffer))
}

#[inline]
fn encode_response_in<O: Order>(
    header: &ResponseHeader,
    response: &Response<'_>,
    buffer: &mut [u8],
) -> Result<usize, EncodeError> {
    let fits = match response.procedure() {
        None => header.status != Status::Ok,
        Some(procedure) => {
            presence(procedure, header.status) != Presence::Never && agrees(header.status, response)
        }
    };
    if !fits {
        return Err(EncodeError::Value { what: "a status against its results" });
    }
    let (front, body) = buffer.split_at_mut_checked(HEADER_BYTES).ok_or(EncodeError::Space)?;
    let written = response.write::<O>(body)?;
    let mut writer = Writer::<O>::new(front, HEADER_BYTES)?;
    header.write(&mut writer, written.message_length()?)?;
    Ok(HEADER_BYTES + written.here)
}

/// Decodes the target of a symbolic link as READLINK_DIRECT has transferred it.
///
/// # Errors
/// If the bytes are truncated or the target is too long.
pub fn parse_link_text(order: ByteOrder, bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let max = dafs_types::limits::LINK_TEXT_BYTES_MAX;
    with_order!(order, O => Scope::<O>::new(bytes).counted(max, "link text"))
}

/// Encodes the target of a symbolic link as READLINK_DIRECT transfers it. Returns the number of
/// bytes written.
///
/// # Errors
/// If the buffer is too short or the target is too long.
pub fn encode_link_text(
    order: ByteOrder,
    text: &[u8],
    buffer: &mut [u8],
) -> Result<usize, EncodeError> {
    let max = dafs_types::limits::LINK_TEXT_BYTES_MAX;
    with_order!(order, O => {
        let mut writer = Writer::<O>::new(buffer, 0)?;
        writer.counted(text, max, "link text")?;
        Ok(writer.length())
    })
}
