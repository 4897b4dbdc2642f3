//! The procedures on the data of files: READLINK, READ, WRITE and COMMIT.

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
        /// The target of the link, and its attributes.
        Ok => Ok(ReadLinkOk<'b>),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }

    /// The arguments of READ.
    #[derive(Copy)]
    struct ReadArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The offset in the file of the first byte.
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
        /// True if the bytes reach the end of the file.
        eof: bool,
        /// The bytes that were read.
        data: Payload<'b>,
    }

    /// The results of READ.
    #[derive(Copy)]
    union ReadResult<'b> on Status {
        /// The bytes that were read, and the attributes of the file.
        Ok => Ok(ReadOk<'b>),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }

    /// The time by which a server must put written data on stable storage.
    enum Stability {
        /// The server may wait for a later COMMIT.
        Unstable = 0,
        /// The data, before the reply to the WRITE.
        DataSync = 1,
        /// The data and the attributes, before the reply to the WRITE.
        FileSync = 2,
    }

    /// The arguments of WRITE.
    #[derive(Copy)]
    struct WriteArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes to write.
        count: u32,
        /// The time by which the data must be on stable storage.
        stable: Stability,
        /// The bytes to write.
        data: Payload<'b>,
    }

    /// The results of a successful WRITE.
    #[derive(Copy)]
    struct WriteOk {
        /// The attributes of the file before and after the WRITE.
        file: WccData,
        /// The number of bytes that were written.
        count: u32,
        /// The guarantee that the server gives for the data.
        committed: Stability,
        /// A value that changes if the server may have lost unstable data, for example by a
        /// restart.
        verifier: Verifier,
    }

    /// The results of WRITE.
    #[derive(Copy)]
    union WriteResult on Status {
        /// The number of bytes that were written, and the guarantee for them.
        Ok => Ok(WriteOk),
        /// The status of a failed procedure, and the attributes before and after it.
        _ => Fail(WccData),
    }

    /// The arguments of COMMIT.
    #[derive(Copy)]
    struct CommitArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; 0 means up to the end of the file.
        count: u32,
    }

    /// The results of a successful COMMIT.
    #[derive(Copy)]
    struct CommitOk {
        /// The attributes of the file before and after the COMMIT.
        file: WccData,
        /// A value that changes if the server may have lost unstable data, for example by a
        /// restart.
        verifier: Verifier,
    }

    /// The results of COMMIT.
    #[derive(Copy)]
    union CommitResult on Status {
        /// The data is on stable storage.
        Ok => Ok(CommitOk),
        /// The status of a failed procedure, and the attributes before and after it.
        _ => Fail(WccData),
    }
}

/// A WRITE whose data has not arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteUnderWay<'b> {
    /// The header of the call.
    pub call: Call<'b>,
    /// The arguments; the data is [`Payload::Elsewhere`].
    pub arguments: WriteArgs<'b>,
    /// The location of the data in the record.
    pub place: Place,
}

/// Decodes the first bytes of a record of `total` bytes. If the record is a WRITE whose data has
/// not arrived completely, and whose arguments are neither encrypted nor protected by a checksum,
/// this returns the header and the arguments, so that the caller can receive the data directly into
/// its destination. Otherwise returns `None`.
///
/// # Errors
/// See [`CallError`], if the record is not a call. Success does not mean that the record is valid:
/// when it has arrived completely, it can still be refused.
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

/// Returns true if the arguments of a call are encrypted or protected by a checksum.
fn wraps_arguments(call: &Call<'_>) -> bool {
    match call.credential.credential() {
        Ok(Credential::Gss(GssCredential::Version1(gss))) => {
            gss.procedure != GssProcedure::Data || gss.service != GssService::None
        }
        Ok(_) => false,
        Err(_) => true,
    }
}
