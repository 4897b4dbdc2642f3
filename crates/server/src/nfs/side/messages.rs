//! The messages of NLM in one form for all versions.
//!
//! Versions 1 and 3 have the same messages with numbers of 32 bits; those of version 4 have 64
//! bits.

use dafs_nfs_wire::nlm::{LockStatus, ShareAccess, ShareMode, v3, v4};
use dafs_nfs_wire::xdr::{Opaque, Reader, Writer, Xdr, XdrError};

/// A call of a client.
#[derive(Debug)]
pub(super) struct Call<'b> {
    pub request: Request<'b>,
    /// The value that the results repeat.
    pub cookie: &'b [u8],
    /// The procedure of the client that takes the results, if the reply does not contain them.
    pub returns_by: Option<u32>,
}

/// What a client asks for.
#[derive(Debug)]
pub(super) enum Request<'b> {
    /// The call needs no results. This is so for the results that clients send.
    Nothing,
    Test(Range<'b>),
    Lock(Locking<'b>),
    Cancel(Range<'b>),
    Unlock(Range<'b>),
    /// The client reports that it has granted a lock, but this server asks for no locks.
    Granted,
    Share(Sharing<'b>),
    Unshare(Sharing<'b>),
    FreeAll(&'b [u8]),
}

/// A range of a file, and the owner of a lock on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<'b> {
    /// The name of the client's host.
    pub caller: &'b [u8],
    /// The handle of the file.
    pub file: &'b [u8],
    /// The owner as the client encodes it.
    pub owner: &'b [u8],
    /// The number of the process on the client's host.
    pub process: u32,
    pub is_exclusive: bool,
    pub offset: u64,
    /// The length in bytes; `u64::MAX` means up to the end of the file.
    pub length: u64,
}

/// The arguments of LOCK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locking<'b> {
    pub range: Range<'b>,
    pub waits: bool,
    pub reclaims: bool,
    /// The state number of the client's status monitor.
    pub monitor: u32,
}

/// The arguments of SHARE and UNSHARE.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing<'b> {
    pub caller: &'b [u8],
    pub file: &'b [u8],
    pub owner: &'b [u8],
    pub mode: ShareMode,
    pub access: ShareAccess,
    pub reclaims: bool,
}

/// The results of a call.
#[derive(Debug)]
pub(super) enum Results {
    Nothing,
    Lock(LockStatus),
    Test(LockStatus),
    /// The test found this lock.
    Conflict(Holder),
    Share(LockStatus),
}

/// A lock that conflicts with a request.
#[derive(Debug)]
pub(super) struct Holder {
    pub is_exclusive: bool,
    pub process: u32,
    pub owner: Box<[u8]>,
    pub offset: u64,
    /// The length in bytes; `u64::MAX` means up to the end of the file.
    pub length: u64,
}

/// Decodes the arguments of a call. `None` if the version has no such procedure.
pub(super) fn decode<'b>(
    version: u32,
    procedure: u32,
    reader: &mut Reader<'b>,
) -> Option<Result<Call<'b>, XdrError>> {
    if version == 4 {
        return Some(decode_4(v4::Procedure::from_number(procedure)?, reader));
    }
    // Version 1 has only the procedures below those of version 3.
    if version == 1 && procedure >= dafs_nfs_wire::nlm::FIRST_OF_VERSION_3 {
        return None;
    }
    Some(decode_3(v3::Procedure::from_number(procedure)?, reader))
}

/// Encodes the results of a call.
pub(super) fn encode(version: u32, cookie: &[u8], results: &Results, writer: &mut Writer) {
    match version {
        4 => encode_4(cookie, results, writer),
        _ => encode_3(cookie, results, writer),
    }
}

/// Encodes the arguments of GRANTED.
pub(super) fn encode_granted(version: u32, cookie: &[u8], range: &Range<'_>, writer: &mut Writer) {
    match version {
        4 => granted_4(cookie, range, writer),
        _ => granted_3(cookie, range, writer),
    }
}

/// Returns true if these are the results of GRANTED and say that the client has taken the lock.
pub(super) fn is_taken(results: &[u8]) -> bool {
    // The results have the same encoding in all versions.
    let results = v4::LockResult::decode(&mut Reader::new(results));
    results.is_ok_and(|results| results.status == LockStatus::Granted)
}

macro_rules! version {
    ($module:ident, $number:ty, $decode:ident, $encode:ident, $granted:ident, $status:expr) => {
        fn $decode<'b>(
            procedure: $module::Procedure,
            reader: &mut Reader<'b>,
        ) -> Result<Call<'b>, XdrError> {
            use $module::{Arguments, Procedure};
            let range = |is_exclusive: bool, lock: $module::Lock<'b>| Range {
                caller: lock.caller.0,
                file: lock.file.0,
                owner: lock.owner.0,
                process: lock.process,
                is_exclusive,
                offset: u64::from(lock.offset),
                length: if lock.length == 0 { u64::MAX } else { u64::from(lock.length) },
            };
            let share = |asked: $module::ShareArgs<'b>| Sharing {
                caller: asked.share.caller.0,
                file: asked.share.file.0,
                owner: asked.share.owner.0,
                mode: asked.share.mode,
                access: asked.share.access,
                reclaims: asked.reclaims,
            };
            let (request, cookie) = match Arguments::decode(procedure, reader)? {
                Arguments::Test(asked) | Arguments::TestMsg(asked) => {
                    (Request::Test(range(asked.is_exclusive, asked.lock)), asked.cookie.0)
                }
                Arguments::Lock(asked) | Arguments::LockMsg(asked) => {
                    let (waits, reclaims, monitor) = (asked.waits, asked.reclaims, asked.state);
                    let range = range(asked.is_exclusive, asked.lock);
                    (Request::Lock(Locking { range, waits, reclaims, monitor }), asked.cookie.0)
                }
                // The locks of NM_LOCK end without a notice of the client's monitor.
                Arguments::NmLock(asked) => {
                    let (waits, reclaims, monitor) = (asked.waits, asked.reclaims, 0);
                    let range = range(asked.is_exclusive, asked.lock);
                    (Request::Lock(Locking { range, waits, reclaims, monitor }), asked.cookie.0)
                }
                Arguments::Cancel(asked) | Arguments::CancelMsg(asked) => {
                    (Request::Cancel(range(asked.is_exclusive, asked.lock)), asked.cookie.0)
                }
                Arguments::Unlock(asked) | Arguments::UnlockMsg(asked) => {
                    (Request::Unlock(range(true, asked.lock)), asked.cookie.0)
                }
                Arguments::Granted(asked) | Arguments::GrantedMsg(asked) => {
                    (Request::Granted, asked.cookie.0)
                }
                Arguments::Share(asked) => (Request::Share(share(asked)), asked.cookie.0),
                Arguments::Unshare(asked) => (Request::Unshare(share(asked)), asked.cookie.0),
                Arguments::FreeAll(asked) => (Request::FreeAll(asked.client.0), &[][..]),
                Arguments::Null(())
                | Arguments::TestRes(_)
                | Arguments::LockRes(_)
                | Arguments::CancelRes(_)
                | Arguments::UnlockRes(_)
                | Arguments::GrantedRes(_) => (Request::Nothing, &[][..]),
            };
            let returns_by = match procedure {
                Procedure::TestMsg => Some(Procedure::TestRes),
                Procedure::LockMsg => Some(Procedure::LockRes),
                Procedure::CancelMsg => Some(Procedure::CancelRes),
                Procedure::UnlockMsg => Some(Procedure::UnlockRes),
                Procedure::GrantedMsg => Some(Procedure::GrantedRes),
                _ => None,
            };
            Ok(Call { request, cookie, returns_by: returns_by.map(Procedure::number) })
        }

        fn $encode(cookie: &[u8], results: &Results, writer: &mut Writer) {
            let cookie = Opaque(cookie);
            let shown: fn(LockStatus) -> LockStatus = $status;
            match results {
                Results::Nothing => {}
                Results::Lock(status) => {
                    $module::LockResult { cookie, status: shown(*status) }.encode(writer);
                }
                Results::Test(status) => {
                    let reply = $module::TestReply::Other(shown(*status));
                    $module::TestResult { cookie, reply }.encode(writer);
                }
                Results::Conflict(holder) => {
                    // A length that the version cannot express becomes 0, "to the end of the file".
                    let holder = $module::Holder {
                        is_exclusive: holder.is_exclusive,
                        process: holder.process,
                        owner: Opaque(&holder.owner),
                        offset: <$number>::try_from(holder.offset).unwrap_or(<$number>::MAX),
                        length: match holder.length {
                            u64::MAX => 0,
                            length => <$number>::try_from(length).unwrap_or(0),
                        },
                    };
                    let reply = $module::TestReply::Denied(holder);
                    $module::TestResult { cookie, reply }.encode(writer);
                }
                Results::Share(status) => {
                    let status = shown(*status);
                    $module::ShareResult { cookie, status, sequence: 0 }.encode(writer);
                }
            }
        }

        fn $granted(cookie: &[u8], range: &Range<'_>, writer: &mut Writer) {
            let lock = $module::Lock {
                caller: Opaque(range.caller),
                file: Opaque(range.file),
                owner: Opaque(range.owner),
                process: range.process,
                offset: <$number>::try_from(range.offset).unwrap_or(<$number>::MAX),
                length: match range.length {
                    u64::MAX => 0,
                    length => <$number>::try_from(length).unwrap_or(0),
                },
            };
            let (cookie, is_exclusive) = (Opaque(cookie), range.is_exclusive);
            $module::TestArgs { cookie, is_exclusive, lock }.encode(writer);
        }
    };
}

version!(v3, u32, decode_3, encode_3, granted_3, status_of_version_3);
version!(v4, u64, decode_4, encode_4, granted_4, std::convert::identity);

/// Returns the nearest status of versions 1 and 3, which have fewer than version 4.
fn status_of_version_3(status: LockStatus) -> LockStatus {
    match status {
        LockStatus::RoFs | LockStatus::StaleFh | LockStatus::FBig | LockStatus::Failed => {
            LockStatus::DeniedNoLocks
        }
        status => status,
    }
}
