//! Cases of errors that many operations share. Each row is one operation that may return the error.

use anyhow::{Result, ensure};

use super::samples::sample;
use super::{v41, v42};
use crate::bench::{Bench, refusal};
use crate::nfs4::ops::{self, Op};
use crate::status::{
    BADHANDLE, BADXDR, ISDIR, NOFILEHANDLE, NOTDIR, NOTSUPP, OP_ILLEGAL, OP_NOT_IN_SESSION, STALE,
    SYMLINK, WRONG_TYPE,
};
use crate::suite::Case;

/// Calls an operation without a current file handle.
fn no_handle(b: &mut Bench, number: u32) -> Result<()> {
    b.session()?.fails(&[NOFILEHANDLE], &[sample(number)]).map(drop)
}

/// Calls an operation without a saved file handle.
fn no_saved_handle(b: &mut Bench, number: u32) -> Result<()> {
    let mut s = b.session()?;
    s.fails(&[NOFILEHANDLE], &[s.dir(), sample(number)]).map(drop)
}

/// Calls an operation whose encoded arguments are cut off.
fn cut(b: &mut Bench, number: u32) -> Result<()> {
    let mut s = b.session()?;
    let whole = sample(number);
    for length in [whole.arguments.len() - 4, whole.arguments.len() / 8 * 4] {
        let arguments = whole.arguments[..length].to_vec();
        let ops = [s.dir(), ops::savefh(), Op { number, arguments }];
        s.fails(&[BADXDR], &ops)?;
    }
    Ok(())
}

/// Calls an operation without a session.
fn no_session(b: &mut Bench, number: u32) -> Result<()> {
    let wish = b.wish();
    let mut connection = b.connection()?;
    let reply = crate::nfs4::run(&mut connection, &wish.auth, wish.minor, &[sample(number)])?;
    refusal(&[OP_NOT_IN_SESSION], reply.all_ok()).map(drop)
}

/// Calls an operation with the handle of a file that was removed.
fn stale(b: &mut Bench, number: u32) -> Result<()> {
    let mut s = b.session()?;
    let fh = s.file("removed", b"data")?;
    s.ok(&[s.dir(), ops::remove("removed")])?;
    let reply = s.run(&[ops::putfh(&fh), sample(number)])?;
    refusal(&[STALE], reply.all_ok()).map(drop)
}

/// Calls an operation that needs a directory with the handle of a file.
fn no_directory(b: &mut Bench, number: u32) -> Result<()> {
    let mut s = b.session()?;
    let fh = s.file("f", b"data")?;
    // For an operation with two handles, the first must also be that of a directory.
    let start = match number {
        ops::LINK => ops::putfh(&fh),
        _ => s.dir(),
    };
    s.fails(&[NOTDIR], &[start, ops::savefh(), ops::putfh(&fh), sample(number)]).map(drop)
}

/// Calls an operation that needs a directory with the handle of a symbolic link.
fn link_no_directory(b: &mut Bench, number: u32) -> Result<()> {
    let mut s = b.session()?;
    s.ok(&[s.dir(), ops::symlink("l", "t")])?;
    let statuses = [NOTDIR, SYMLINK];
    let ops = [s.dir(), ops::savefh(), ops::lookup("l"), sample(number)];
    s.fails(&statuses, &ops).map(drop)
}

/// Calls an operation that needs a file with the handle of a directory.
fn directory(b: &mut Bench, number: u32) -> Result<()> {
    let mut s = b.session()?;
    s.fails(&[ISDIR, WRONG_TYPE], &[s.dir(), sample(number)]).map(drop)
}

/// Calls an operation that servers of these minor versions must not implement.
fn not_supported(b: &mut Bench, number: u32) -> Result<()> {
    let mut s = b.session()?;
    s.fails(&[NOTSUPP], &[s.dir(), sample(number)]).map(drop)
}

/// Calls an operation of version 4.2 in a compound of version 4.1.
fn of_later_version(b: &mut Bench, number: u32) -> Result<()> {
    let mut s = b.session()?;
    let reply = s.fails(&[OP_ILLEGAL], &[s.dir(), sample(number)])?;
    let last = reply.results.last().map(|last| last.number);
    ensure!(last == Some(ops::ILLEGAL), "the result is that of operation {last:?}");
    Ok(())
}

/// Calls operations with handles that the server did not issue.
fn bad_handle(b: &mut Bench) -> Result<()> {
    let mut s = b.session()?;
    for fh in [&[][..], &[1], &[0; 32], &[0xa5; 128]] {
        s.fails(&[BADHANDLE, STALE], &[ops::putfh(fh)])?;
    }
    for at in 0..s.dir.len() {
        let mut fh = s.dir.clone();
        fh[at] ^= 0x40;
        let reply = s.run(&[ops::putfh(&fh), ops::getattr(&[1])])?;
        ensure!(reply.status != 0, "a handle with a changed bit in byte {at} is accepted");
    }
    Ok(())
}

macro_rules! rows {
    ($($case:ident $check:ident $text:literal $($number:ident)*;)*) => {
        &[$($($case(
            concat!(stringify!($number), $text),
            |b| $check(b, ops::$number),
        ),)*)*
        v41("PUTFH of a handle that nobody made fails", bad_handle)]
    };
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = rows! {
    v41 no_handle " without a current handle fails with NOFILEHANDLE"
        ACCESS CLOSE COMMIT CREATE DELEGRETURN GETATTR GETFH LINK LOCK LOCKT LOCKU LOOKUP LOOKUPP
        NVERIFY OPEN OPENATTR OPEN_DOWNGRADE READ READDIR READLINK REMOVE RENAME SAVEFH SECINFO
        SETATTR VERIFY WRITE SECINFO_NO_NAME;
    v42 no_handle " without a current handle fails with NOFILEHANDLE"
        ALLOCATE COPY DEALLOCATE IO_ADVISE READ_PLUS SEEK CLONE GETXATTR SETXATTR LISTXATTRS
        REMOVEXATTR;
    v41 no_saved_handle " without a saved handle fails with NOFILEHANDLE" LINK RENAME;
    v42 no_saved_handle " without a saved handle fails with NOFILEHANDLE" COPY CLONE;
    v41 cut " with arguments that end early fails with BADXDR"
        ACCESS CLOSE COMMIT CREATE DELEGRETURN GETATTR LINK LOCK LOCKT LOCKU LOOKUP NVERIFY OPEN
        OPEN_DOWNGRADE PUTFH READ READDIR REMOVE RENAME SECINFO SETATTR VERIFY WRITE
        BACKCHANNEL_CTL DESTROY_SESSION FREE_STATEID SECINFO_NO_NAME TEST_STATEID
        DESTROY_CLIENTID RECLAIM_COMPLETE;
    v42 cut " with arguments that end early fails with BADXDR"
        ALLOCATE COPY DEALLOCATE IO_ADVISE READ_PLUS SEEK CLONE GETXATTR SETXATTR LISTXATTRS
        REMOVEXATTR OFFLOAD_CANCEL OFFLOAD_STATUS;
    v41 no_session " without a session fails with OP_NOT_IN_SESSION"
        ACCESS CLOSE COMMIT CREATE DELEGRETURN GETATTR GETFH LINK LOCK LOCKT LOCKU LOOKUP LOOKUPP
        NVERIFY OPEN OPEN_DOWNGRADE PUTFH PUTROOTFH READ READDIR READLINK REMOVE RENAME RESTOREFH
        SAVEFH SECINFO SETATTR VERIFY WRITE BACKCHANNEL_CTL FREE_STATEID SECINFO_NO_NAME
        TEST_STATEID RECLAIM_COMPLETE;
    v41 stale " of a removed file fails with STALE"
        ACCESS COMMIT GETATTR READ SETATTR VERIFY WRITE;
    v42 stale " of a removed file fails with STALE" GETXATTR SETXATTR LISTXATTRS REMOVEXATTR;
    v41 no_directory " in a file fails with NOTDIR"
        CREATE LINK LOOKUP LOOKUPP OPEN READDIR REMOVE RENAME SECINFO;
    v41 link_no_directory " in a symbolic link fails with NOTDIR or SYMLINK"
        CREATE LOOKUP OPEN READDIR REMOVE RENAME;
    v41 directory " of a directory fails with ISDIR" READ WRITE LOCKT;
    v41 not_supported " is not supported"
        OPEN_CONFIRM RENEW SETCLIENTID SETCLIENTID_CONFIRM RELEASE_LOCKOWNER;
    v41 of_later_version " in version 4.1 fails with OP_ILLEGAL"
        ALLOCATE COPY COPY_NOTIFY DEALLOCATE IO_ADVISE OFFLOAD_CANCEL OFFLOAD_STATUS READ_PLUS SEEK
        WRITE_SAME CLONE GETXATTR SETXATTR LISTXATTRS REMOVEXATTR;
};
