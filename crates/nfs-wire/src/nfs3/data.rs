//! Data of files: READLINK, READ, WRITE and COMMIT.

use super::{Arguments, Attributes, Handle, LinkText, NFS3, Procedure, Status, Verifier, WccData};
use crate::rpc::gss::{GssCredential, GssProcedure, GssService};
use crate::rpc::{Call, CallError, Credential, decode_call};
use crate::xdr::{Payload, Place, Reader, xdr};

xdr! {
    /// The results of a successful READLINK.
    #[derive(Copy)]
    struct ReadLinkOk<'b> {
        /// The attributes of the link.
        attributes: Option<Attributes>,
        /// The target of the link.
        target: LinkText<'b>,
    }

    /// The results of READLINK.
    #[derive(Copy)]
    union ReadLinkResult<'b> on Status {
        /// The target of the link.
        Ok => Ok(ReadLinkOk<'b>),
        /// The reason of the failure, and the attributes.
        _ => Fail(Option<Attributes>),
    }

    /// The arguments of READ.
    #[derive(Copy)]
    struct ReadArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes to read.
        count: u32,
    }

    /// The results of a successful READ.
    #[derive(Copy)]
    struct ReadOk<'b> {
        /// The attributes of the file.
        attributes: Option<Attributes>,
        /// The number of bytes that were read.
        count: u32,
        /// Whether the last byte of the file was read.
        eof: bool,
        /// The bytes that were read.
        data: Payload<'b>,
    }

    /// The results of READ.
    #[derive(Copy)]
    union ReadResult<'b> on Status {
        /// The bytes that were read.
        Ok => Ok(ReadOk<'b>),
        /// The reason of the failure, and the attributes.
        _ => Fail(Option<Attributes>),
    }

    /// When written data must be on stable storage.
    enum Stability {
        /// A later COMMIT makes it so.
        Unstable = 0,
        /// The data must be there before the reply.
        DataSync = 1,
        /// Data and attributes must be there before the reply.
        FileSync = 2,
    }

    /// The arguments of WRITE.
    #[derive(Copy)]
    struct WriteArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes to write.
        count: u32,
        /// When the data must be on stable storage.
        stable: Stability,
        /// The bytes to write.
        data: Payload<'b>,
    }

    /// The results of a successful WRITE.
    #[derive(Copy)]
    struct WriteOk {
        /// The attributes before and after.
        file: WccData,
        /// The number of bytes that were written.
        count: u32,
        /// How stable the data is now.
        committed: Stability,
        /// The verifier, which changes if unstable data may have been lost.
        verifier: Verifier,
    }

    /// The results of WRITE.
    #[derive(Copy)]
    union WriteResult on Status {
        /// How much was written, and how stable it is.
        Ok => Ok(WriteOk),
        /// The reason of the failure, and the attributes.
        _ => Fail(WccData),
    }

    /// The arguments of COMMIT.
    #[derive(Copy)]
    struct CommitArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; 0 stands for all up to the end.
        count: u32,
    }

    /// The results of a successful COMMIT.
    #[derive(Copy)]
    struct CommitOk {
        /// The attributes before and after.
        file: WccData,
        /// The verifier, which changes if unstable data may have been lost.
        verifier: Verifier,
    }

    /// The results of COMMIT.
    #[derive(Copy)]
    union CommitResult on Status {
        /// The data is on stable storage.
        Ok => Ok(CommitOk),
        /// The reason of the failure, and the attributes.
        _ => Fail(WccData),
    }
}

/// A WRITE whose data has not arrived as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteUnderWay<'b> {
    /// The header of the call.
    pub call: Call<'b>,
    /// The arguments; the data is [`Payload::Elsewhere`].
    pub arguments: WriteArgs<'b>,
    /// The location of the data in the record.
    pub place: Place,
}

/// Looks at the first bytes of a record of `total` bytes. If it is a WRITE whose arguments are not
/// wrapped, and whose data has not arrived as a whole, this returns what is known of it, so that
/// the data can be received where it belongs.
///
/// # Errors
/// If the record is not a call; see [`CallError`]. The record can still be refused later, when it
/// has arrived as a whole.
pub fn write_under_way(first: &[u8], total: usize) -> Result<Option<WriteUnderWay<'_>>, CallError> {
    let mut reader = Reader::partial(first, total);
    let call = match decode_call(&mut reader) {
        Ok(call) => call,
        Err(CallError::Absent) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_write = (call.program, call.version) == (NFS3.number, NFS3.version)
        && call.procedure == Procedure::Write.number();
    if !is_write || wraps_arguments(&call) {
        return Ok(None);
    }
    let Ok(Arguments::Write(arguments)) = Arguments::decode(Procedure::Write, &mut reader) else {
        return Ok(None);
    };
    Ok(reader.place().map(|place| WriteUnderWay { call, arguments, place }))
}

/// Returns whether the arguments of a call have a checksum or are encrypted.
fn wraps_arguments(call: &Call<'_>) -> bool {
    match call.credential.credential() {
        Ok(Credential::Gss(GssCredential::Version1(gss))) => {
            gss.procedure != GssProcedure::Data || gss.service != GssService::None
        }
        Ok(_) => false,
        Err(_) => true,
    }
}
