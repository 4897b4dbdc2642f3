//! Cases of GETATTR and SETATTR, and of the procedures about file systems.

use anyhow::{Context, ensure};

use super::v3;
use crate::bench::{OTHER, USER, await_tick, refusal, refused, refused_as, same};
use crate::nfs3::{Sattr, SetTime, Wcc, kind};
use crate::rpc::Auth;
use crate::status::{ACCESS, FBIG, INVAL, ISDIR, NOT_SYNC, NOTSUPP, PERM};
use crate::suite::Case;

/// The properties that FSINFO usually returns: hard links, symbolic links, and times that can be
/// set.
const USUAL_PROPERTIES: u32 = 0x1 | 0x2 | 0x10;

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("NULL is answered", |b| Ok(b.c.null()?)),
    v3("GETATTR of the export's root shows a directory", |b| {
        let attr = b.c.getattr(&b.root)?;
        same("the type", attr.kind, kind::DIR)?;
        ensure!(attr.nlink >= 1, "it has no links");
        Ok(())
    }),
    v3("GETATTR of a new file shows type, mode, size, links and owner", |b| {
        let fh = b.file("f")?;
        let attr = b.c.getattr(&fh)?;
        let got = (attr.kind, attr.mode, attr.size, attr.nlink, attr.uid, attr.gid);
        same("the attributes", got, (kind::REG, 0o644, 0, 1, 0, 0))
    }),
    v3("GETATTR of a symbolic link shows the link and its length", |b| {
        let fh = b.link_to("l", "target")?;
        let attr = b.c.getattr(&fh)?;
        same("type and size", (attr.kind, attr.size), (kind::LNK, 6))
    }),
    v3("GETATTR shows the size after a WRITE", |b| {
        let fh = b.file_with("f", b"hello")?;
        same("the size", b.c.getattr(&fh)?.size, 5)
    }),
    v3("all files of an export have the same file system number", |b| {
        let fh = b.file("f")?;
        same("the number", b.c.getattr(&fh)?.fsid, b.c.getattr(&b.root)?.fsid)
    }),
    v3("two files have different file numbers", |b| {
        let (one, two) = (b.file("one")?, b.file("two")?);
        ensure!(b.c.getattr(&one)?.fileid != b.c.getattr(&two)?.fileid, "the numbers are equal");
        Ok(())
    }),
    v3("a file number of a handle stays the same", |b| {
        let fh = b.file("f")?;
        let before = b.c.getattr(&fh)?.fileid;
        b.c.write(&fh, 0, 2, b"x")?;
        same("the number", b.c.getattr(&fh)?.fileid, before)
    }),
    v3("the mode has no bits of the file type", |b| {
        let mode = b.c.getattr(&b.dir)?.mode;
        same("the mode", mode & !0o7777, 0)
    }),
    v3("a written file uses space", |b| {
        let fh = b.file_with("f", &[7; 100_000])?;
        b.c.commit(&fh, 0, 0)?;
        ensure!(b.c.getattr(&fh)?.used >= 4096, "100,000 bytes occupy less than 4,096");
        Ok(())
    }),
    v3("SETATTR sets the mode", |b| {
        let fh = b.file("f")?;
        b.c.setattr(&fh, Sattr::mode(0o4751), None)?;
        same("the mode", b.c.getattr(&fh)?.mode, 0o4751)
    }),
    v3("SETATTR of nothing succeeds", |b| {
        let fh = b.file("f")?;
        b.c.setattr(&fh, Sattr::default(), None)?;
        same("the mode", b.c.getattr(&fh)?.mode, 0o644)
    }),
    v3("SETATTR shortens a file", |b| {
        let fh = b.file_with("f", b"hello")?;
        b.c.setattr(&fh, Sattr::size(2), None)?;
        same("the data", b.c.read(&fh, 0, 10)?.data, b"he".to_vec())
    }),
    v3("SETATTR makes a file longer with zeros", |b| {
        let fh = b.file_with("f", b"hello")?;
        b.c.setattr(&fh, Sattr::size(8), None)?;
        same("the data", b.c.read(&fh, 0, 10)?.data, b"hello\0\0\0".to_vec())
    }),
    v3("what a file had before it was shortened does not come back", |b| {
        let fh = b.file_with("f", b"secret")?;
        b.c.setattr(&fh, Sattr::size(0), None)?;
        b.c.setattr(&fh, Sattr::size(6), None)?;
        same("the data", b.c.read(&fh, 0, 10)?.data, vec![0; 6])
    }),
    v3("SETATTR of the size changes the time of modification", |b| {
        let fh = b.file_with("f", b"hello")?;
        let to = Sattr { mtime: SetTime::To((1000, 0)), ..Sattr::default() };
        b.c.setattr(&fh, to, None)?;
        b.c.setattr(&fh, Sattr::size(2), None)?;
        ensure!(b.c.getattr(&fh)?.mtime.0 > 1000, "it stays as it was");
        Ok(())
    }),
    v3("SETATTR sets both times to the client's values", |b| {
        let fh = b.file("f")?;
        let (atime, mtime) = ((1_000_000, 5000), (2_000_000, 7000));
        let to = Sattr { atime: SetTime::To(atime), mtime: SetTime::To(mtime), ..Sattr::default() };
        b.c.setattr(&fh, to, None)?;
        let attr = b.c.getattr(&fh)?;
        same("the times", (attr.atime, attr.mtime), (atime, mtime))
    }),
    v3("SETATTR sets one time and leaves the other", |b| {
        let fh = b.file("f")?;
        let before = b.c.getattr(&fh)?;
        let to = Sattr { mtime: SetTime::To((2_000_000, 0)), ..Sattr::default() };
        b.c.setattr(&fh, to, None)?;
        let attr = b.c.getattr(&fh)?;
        same("the times", (attr.atime, attr.mtime), (before.atime, (2_000_000, 0)))
    }),
    v3("SETATTR sets times to the server's clock", |b| {
        let fh = b.file("f")?;
        let old = Sattr { mtime: SetTime::To((1000, 0)), ..Sattr::default() };
        b.c.setattr(&fh, old, None)?;
        let now = Sattr { mtime: SetTime::Server, atime: SetTime::Server, ..Sattr::default() };
        b.c.setattr(&fh, now, None)?;
        let attr = b.c.getattr(&fh)?;
        ensure!(attr.mtime.0 > 1_000_000_000, "the time is {:?}", attr.mtime);
        Ok(())
    }),
    v3("a time after 2038 is kept", |b| {
        let fh = b.file("f")?;
        let to = Sattr { mtime: SetTime::To((0x9000_0000, 1)), ..Sattr::default() };
        match b.c.setattr(&fh, to, None) {
            Ok(_) => same("the time", b.c.getattr(&fh)?.mtime, (0x9000_0000, 1)),
            result => refused(INVAL, result),
        }
    }),
    v3("a time with two billion nanoseconds is refused", |b| {
        let fh = b.file("f")?;
        let to = Sattr { mtime: SetTime::To((1, 2_000_000_000)), ..Sattr::default() };
        refused(INVAL, b.c.setattr(&fh, to, None))
    }),
    v3("SETATTR changes the change time", |b| {
        let fh = b.file("f")?;
        let before = b.c.getattr(&fh)?.ctime;
        await_tick();
        b.c.setattr(&fh, Sattr::mode(0o600), None)?;
        ensure!(b.c.getattr(&fh)?.ctime > before, "it stays as it was");
        Ok(())
    }),
    v3("SETATTR with the right guard succeeds", |b| {
        let fh = b.file("f")?;
        let guard = b.c.getattr(&fh)?.ctime;
        b.c.setattr(&fh, Sattr::mode(0o600), Some(guard))?;
        same("the mode", b.c.getattr(&fh)?.mode, 0o600)
    }),
    v3("SETATTR with a wrong guard fails with NOT_SYNC and sets nothing", |b| {
        let fh = b.file("f")?;
        let (seconds, nanoseconds) = b.c.getattr(&fh)?.ctime;
        let guard = Some((seconds - 1, nanoseconds));
        refused(NOT_SYNC, b.c.setattr(&fh, Sattr::mode(0o600), guard))?;
        same("the mode", b.c.getattr(&fh)?.mode, 0o644)
    }),
    v3("SETATTR returns attributes before and after", |b| {
        let fh = b.file_with("f", b"hello")?;
        let before = b.c.getattr(&fh)?;
        let Wcc { before: pre, after } = b.c.setattr(&fh, Sattr::size(2), None)?;
        if let Some(pre) = pre {
            same("the attributes before", pre, (5, before.mtime, before.ctime))?;
        }
        let after = after.context("there are no attributes after")?;
        same("the attributes after", after, b.c.getattr(&fh)?)
    }),
    v3("a refused SETATTR returns attributes", |b| {
        let fh = b.file("f")?;
        let mut user = b.user(USER)?;
        let wcc = refusal(&[PERM, ACCESS], user.setattr(&fh, Sattr::mode(0o666), None))?;
        let after = wcc.first().and_then(|wcc| wcc.after);
        if let Some(after) = after {
            same("the mode", after.mode, 0o644)?;
        }
        Ok(())
    }),
    v3("user 0 gives a file to a user", |b| {
        let fh = b.file("f")?;
        b.c.setattr(&fh, Sattr::owner(USER, OTHER), None)?;
        let attr = b.c.getattr(&fh)?;
        same("the owner and group", (attr.uid, attr.gid), (USER, OTHER))
    }),
    v3("an owner cannot give the file away", |b| {
        let fh = b.file("f")?;
        b.c.setattr(&fh, Sattr::owner(USER, USER), None)?;
        let to = Sattr { uid: Some(OTHER), ..Sattr::default() };
        refused_as(&[PERM, ACCESS], b.user(USER)?.setattr(&fh, to, None))
    }),
    v3("an owner gives the file to a group of its own", |b| {
        let fh = b.file("f")?;
        b.c.setattr(&fh, Sattr::owner(USER, USER), None)?;
        let mut user = b.client(Auth::Sys { uid: USER, gid: USER, gids: vec![OTHER] })?;
        user.setattr(&fh, Sattr { gid: Some(OTHER), ..Sattr::default() }, None)?;
        same("the group", b.c.getattr(&fh)?.gid, OTHER)
    }),
    v3("an owner cannot give the file to a group of others", |b| {
        let fh = b.file("f")?;
        b.c.setattr(&fh, Sattr::owner(USER, USER), None)?;
        let to = Sattr { gid: Some(OTHER), ..Sattr::default() };
        refused_as(&[PERM, ACCESS], b.user(USER)?.setattr(&fh, to, None))
    }),
    v3("a user cannot set the mode of another's file", |b| {
        let fh = b.file_with_mode("f", 0o666)?;
        refused_as(&[PERM, ACCESS], b.user(USER)?.setattr(&fh, Sattr::mode(0o777), None))
    }),
    v3("a user cannot set the size without the right to write", |b| {
        let fh = b.file("f")?;
        refused_as(&[ACCESS, PERM], b.user(USER)?.setattr(&fh, Sattr::size(1), None))
    }),
    v3("a user with the right to write sets the size of another's file", |b| {
        let fh = b.file_with_mode("f", 0o666)?;
        b.user(USER)?.setattr(&fh, Sattr::size(9), None)?;
        same("the size", b.c.getattr(&fh)?.size, 9)
    }),
    v3("a user with the right to write sets times to the server's clock", |b| {
        let fh = b.file_with_mode("f", 0o666)?;
        let now = Sattr { mtime: SetTime::Server, atime: SetTime::Server, ..Sattr::default() };
        b.user(USER)?.setattr(&fh, now, None)?;
        Ok(())
    }),
    v3("a user cannot set the times of another's file to a value", |b| {
        let fh = b.file_with_mode("f", 0o666)?;
        let to = Sattr { mtime: SetTime::To((1, 0)), ..Sattr::default() };
        refused_as(&[PERM, ACCESS], b.user(USER)?.setattr(&fh, to, None))
    }),
    v3("an owner sets mode and times of the own file", |b| {
        let fh = b.file("f")?;
        b.c.setattr(&fh, Sattr::owner(USER, USER), None)?;
        let to = Sattr { mtime: SetTime::To((1, 0)), mode: Some(0o600), ..Sattr::default() };
        b.user(USER)?.setattr(&fh, to, None)?;
        let attr = b.c.getattr(&fh)?;
        same("mode and time", (attr.mode, attr.mtime), (0o600, (1, 0)))
    }),
    v3("an owner sets the size of a file without write permission", |b| {
        let fh = b.file_with_mode("f", 0o444)?;
        b.c.setattr(&fh, Sattr::owner(USER, USER), None)?;
        match b.user(USER)?.setattr(&fh, Sattr::size(3), None) {
            Ok(_) => same("the size", b.c.getattr(&fh)?.size, 3),
            // The RFC does not say whether the server must treat the owner as if it had the file
            // open.
            result => refused(ACCESS, result),
        }
    }),
    v3("SETATTR of a directory's size fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[ISDIR, INVAL, PERM], b.c.setattr(&dir, Sattr::size(0), None))
    }),
    v3("SETATTR of a symbolic link's size fails", |b| {
        let fh = b.link_to("l", "target")?;
        refused_as(&[INVAL, PERM, NOTSUPP], b.c.setattr(&fh, Sattr::size(0), None))
    }),
    v3("SETATTR of the largest possible size fails with FBIG", |b| {
        let fh = b.file("f")?;
        refused_as(&[FBIG, INVAL], b.c.setattr(&fh, Sattr::size(u64::MAX), None))
    }),
    v3("a size of one byte more than FSINFO's maximum fails with FBIG", |b| {
        let fh = b.file("f")?;
        let max = b.c.fsinfo(&fh)?.maxfilesize;
        let Some(more) = max.checked_add(1) else { return Ok(()) };
        refused_as(&[FBIG, INVAL], b.c.setattr(&fh, Sattr::size(more), None))
    }),
    v3("a write by a user removes the set-user-id bit", |b| {
        let fh = b.file_with_mode("f", 0o4777)?;
        b.user(USER)?.write(&fh, 0, 2, b"x")?;
        same("the bit", b.c.getattr(&fh)?.mode & 0o4000, 0)
    }),
    v3("FSSTAT returns sizes that fit together", |b| {
        let (attr, [total, free, available, files, files_free, files_available], _) =
            b.c.fsstat(&b.root)?;
        ensure!(total >= free && free >= available, "{total} {free} {available}");
        ensure!(files >= files_free && files_free >= files_available, "{files} {files_free}");
        ensure!(total > 0, "there is no space at all");
        same("the type", attr.map(|attr| attr.kind), Some(kind::DIR))
    }),
    v3("FSINFO returns limits that fit together", |b| {
        let info = b.c.fsinfo(&b.root)?;
        ensure!(info.rtmax >= info.rtpref && info.rtpref > 0, "{info:?}");
        ensure!(info.wtmax >= info.wtpref && info.wtpref > 0, "{info:?}");
        ensure!(info.rtmult > 0 && info.wtmult > 0 && info.dtpref > 0, "{info:?}");
        ensure!(info.maxfilesize > 1 << 32, "{info:?}");
        Ok(())
    }),
    v3("FSINFO names links, symbolic links and times", |b| {
        let properties = b.c.fsinfo(&b.root)?.properties;
        same("the properties", properties & USUAL_PROPERTIES, USUAL_PROPERTIES)
    }),
    v3("PATHCONF returns limits of names", |b| {
        let conf = b.c.pathconf(&b.root)?;
        ensure!(conf.name_max >= 255 && conf.linkmax >= 2, "{conf:?}");
        ensure!(conf.no_trunc && conf.case_preserving && !conf.case_insensitive, "{conf:?}");
        ensure!(conf.chown_restricted, "{conf:?}");
        Ok(())
    }),
];
