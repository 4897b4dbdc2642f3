//! Cases of CREATE, MKDIR, SYMLINK and MKNOD.

use anyhow::{Context, Result};

use super::names::LONG;
use super::{is_right, v3};
use crate::bench::{Bench, OTHER, USER, refusal, refused, refused_as, same};
use crate::nfs3::{Fh, How, Made, Sattr, SetTime, kind};
use crate::rpc::Auth;
use crate::status::{ACCESS, BADTYPE, EXIST, INVAL, ISDIR, NAMETOOLONG, NOENT, NOTSUPP, PERM};
use crate::suite::Case;

const VERIFIER: [u8; 8] = *b"verifier";
const OTHER_VERIFIER: [u8; 8] = *b"somewhat";

fn fh_of(made: Made) -> Result<Fh> {
    made.fh.context("the reply has no handle")
}

fn unchecked() -> How {
    How::Unchecked(Sattr::mode(0o644))
}

fn guarded() -> How {
    How::Guarded(Sattr::mode(0o644))
}

/// Checks that the attributes of the new file and of its directory in a reply are correct.
fn reply_is_true(b: &mut Bench, make: impl FnOnce(&mut Bench) -> Result<Made>) -> Result<()> {
    let dir = b.dir.clone();
    let before = b.c.getattr(&dir)?;
    let made = make(b)?;
    is_right(made.dir, &before, b.c.getattr(&dir)?)?;
    let (fh, attr) = (made.fh.context("there is no handle")?, made.attr);
    same("the file", attr.context("the file has no attributes")?, b.c.getattr(&fh)?)
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("CREATE UNCHECKED makes a file", |b| {
        let dir = b.dir.clone();
        let fh = fh_of(b.c.create(&dir, "f", unchecked())?)?;
        same("the handle", b.c.lookup(&dir, "f")?.fh, fh)
    }),
    v3("CREATE UNCHECKED of a file that exists returns it", |b| {
        let (fh, dir) = (b.file_with("f", b"hello")?, b.dir.clone());
        same("the handle", fh_of(b.c.create(&dir, "f", unchecked())?)?, fh.clone())?;
        same("the size", b.c.getattr(&fh)?.size, 5)
    }),
    v3("CREATE UNCHECKED with size 0 empties a file that exists", |b| {
        let (fh, dir) = (b.file_with("f", b"hello")?, b.dir.clone());
        b.c.create(&dir, "f", How::Unchecked(Sattr::size(0)))?;
        same("the size", b.c.getattr(&fh)?.size, 0)
    }),
    v3("CREATE UNCHECKED over a directory fails", |b| {
        b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        refused_as(&[EXIST, ISDIR], b.c.create(&dir, "d", unchecked()))
    }),
    v3("CREATE GUARDED makes a file with mode and size", |b| {
        let dir = b.dir.clone();
        let how = How::Guarded(Sattr { mode: Some(0o600), size: Some(77), ..Sattr::default() });
        let fh = fh_of(b.c.create(&dir, "f", how)?)?;
        let attr = b.c.getattr(&fh)?;
        same("mode and size", (attr.mode, attr.size), (0o600, 77))
    }),
    v3("CREATE GUARDED of a file that exists fails with EXIST and leaves it", |b| {
        let (fh, dir) = (b.file_with("f", b"hello")?, b.dir.clone());
        refused(EXIST, b.c.create(&dir, "f", How::Guarded(Sattr::size(0))))?;
        same("the size", b.c.getattr(&fh)?.size, 5)
    }),
    v3("CREATE GUARDED over a symbolic link fails with EXIST", |b| {
        b.link_to("l", "target")?;
        let dir = b.dir.clone();
        refused(EXIST, b.c.create(&dir, "l", guarded()))?;
        refused(NOENT, b.c.lookup(&dir, "target"))
    }),
    v3("CREATE EXCLUSIVE makes a file", |b| {
        let dir = b.dir.clone();
        let fh = fh_of(b.c.create(&dir, "f", How::Exclusive(VERIFIER))?)?;
        same("the handle", b.c.lookup(&dir, "f")?.fh, fh)
    }),
    v3("CREATE EXCLUSIVE again with the same verifier returns the file", |b| {
        let dir = b.dir.clone();
        let one = fh_of(b.c.create(&dir, "f", How::Exclusive(VERIFIER))?)?;
        let two = fh_of(b.c.create(&dir, "f", How::Exclusive(VERIFIER))?)?;
        same("the handle", two, one)
    }),
    v3("CREATE EXCLUSIVE again from another connection returns the file", |b| {
        let dir = b.dir.clone();
        let one = fh_of(b.c.create(&dir, "f", How::Exclusive(VERIFIER))?)?;
        let two = fh_of(b.user(0)?.create(&dir, "f", How::Exclusive(VERIFIER))?)?;
        same("the handle", two, one)
    }),
    v3("CREATE EXCLUSIVE with another verifier fails with EXIST", |b| {
        let dir = b.dir.clone();
        b.c.create(&dir, "f", How::Exclusive(VERIFIER))?;
        refused(EXIST, b.c.create(&dir, "f", How::Exclusive(OTHER_VERIFIER)))
    }),
    v3("CREATE EXCLUSIVE over a file made otherwise fails with EXIST", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        refused(EXIST, b.c.create(&dir, "f", How::Exclusive(VERIFIER)))
    }),
    v3("CREATE EXCLUSIVE over a directory fails with EXIST", |b| {
        b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        refused(EXIST, b.c.create(&dir, "d", How::Exclusive(VERIFIER)))
    }),
    v3("SETATTR after CREATE EXCLUSIVE sets mode and times", |b| {
        let dir = b.dir.clone();
        let fh = fh_of(b.c.create(&dir, "f", How::Exclusive(VERIFIER))?)?;
        let server = SetTime::Server;
        let to = Sattr { mode: Some(0o640), atime: server, mtime: server, ..Sattr::default() };
        b.c.setattr(&fh, to, None)?;
        let attr = b.c.getattr(&fh)?;
        same("mode and size", (attr.mode, attr.size), (0o640, 0))
    }),
    v3("a file of CREATE EXCLUSIVE can be written by its maker at once", |b| {
        let dir = b.dir.clone();
        let mut user = b.user(USER)?;
        let fh = fh_of(user.create(&dir, "f", How::Exclusive(VERIFIER))?)?;
        same("the bytes", user.write(&fh, 0, 2, b"hello")?.count, 5)
    }),
    v3("a file that CREATE makes belongs to its maker", |b| {
        let dir = b.dir.clone();
        let mut user = b.client(Auth::Sys { uid: USER, gid: OTHER, gids: vec![] })?;
        let fh = fh_of(user.create(&dir, "f", guarded())?)?;
        let attr = b.c.getattr(&fh)?;
        same("owner and group", (attr.uid, attr.gid), (USER, OTHER))
    }),
    v3("a file in a set-group-id directory gets the directory's group", |b| {
        let dir = b.sub("d", 0o777)?;
        b.c.setattr(&dir, Sattr::owner(0, OTHER), None)?;
        b.c.setattr(&dir, Sattr::mode(0o2777), None)?;
        let fh = fh_of(b.user(USER)?.create(&dir, "f", guarded())?)?;
        same("the group", b.c.getattr(&fh)?.gid, OTHER)
    }),
    v3("a maker writes to a file that was made read-only", |b| {
        let dir = b.dir.clone();
        let mut user = b.user(USER)?;
        let fh = fh_of(user.create(&dir, "f", How::Guarded(Sattr::mode(0o444)))?)?;
        same("the bytes", user.write(&fh, 0, 2, b"hello")?.count, 5)
    }),
    v3("CREATE without the right to write the directory fails with ACCES", |b| {
        let dir = b.sub("d", 0o755)?;
        refused(ACCESS, b.user(USER)?.create(&dir, "f", guarded()))
    }),
    v3("UNCHECKED without the right to write the directory fails with ACCES", |b| {
        let dir = b.sub("d", 0o755)?;
        refused(ACCESS, b.user(USER)?.create(&dir, "f", How::Unchecked(Sattr::mode(0o644))))
    }),
    v3("CREATE of a long name fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.create(&dir, LONG, guarded()))
    }),
    v3("CREATE of an empty name fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, ACCESS, NOENT, EXIST], b.c.create(&dir, "", guarded()))
    }),
    v3("CREATE of a dot fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, EXIST, ACCESS, ISDIR], b.c.create(&dir, ".", guarded()))
    }),
    v3("CREATE of two dots fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, EXIST, ACCESS, ISDIR], b.c.create(&dir, "..", guarded()))
    }),
    v3("CREATE of a name with a slash fails", |b| {
        b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        refused_as(&[INVAL, ACCESS, NOENT], b.c.create(&dir, "d/f", guarded()))
    }),
    v3("CREATE of a name with a zero byte fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, ACCESS, NOENT], b.c.create(&dir, b"f\0g", guarded()))
    }),
    v3("CREATE with an owner of others fails for a user", |b| {
        let dir = b.dir.clone();
        let how = How::Guarded(Sattr { mode: Some(0o644), ..Sattr::owner(OTHER, OTHER) });
        refused_as(&[PERM, ACCESS], b.user(USER)?.create(&dir, "f", how))
    }),
    v3("the reply of CREATE is true", |b| {
        reply_is_true(b, |b| Ok(b.c.create(&b.dir, "f", guarded())?))
    }),
    v3("a refused CREATE returns the directory's attributes", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        let wcc = refusal(&[EXIST], b.c.create(&dir, "f", guarded()))?;
        if let Some(after) = wcc[0].after {
            same("the directory", after, b.c.getattr(&dir)?)?;
        }
        Ok(())
    }),
    v3("MKDIR makes a directory with the mode", |b| {
        let dir = b.dir.clone();
        let fh = fh_of(b.c.mkdir(&dir, "d", Sattr::mode(0o711))?)?;
        let attr = b.c.getattr(&fh)?;
        same("type and mode", (attr.kind, attr.mode & 0o777), (kind::DIR, 0o711))
    }),
    v3("MKDIR adds one to the links of the parent", |b| {
        let dir = b.dir.clone();
        let before = b.c.getattr(&dir)?.nlink;
        b.sub("d", 0o755)?;
        let after = b.c.getattr(&dir)?.nlink;
        // Some file systems do not count directories in the number of links.
        same("whether the links fit", after == before + 1 || before == 1, true)
    }),
    v3("MKDIR of a name that exists fails with EXIST", |b| {
        b.file("f")?;
        b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        refused(EXIST, b.c.mkdir(&dir, "f", Sattr::mode(0o755)))?;
        refused(EXIST, b.c.mkdir(&dir, "d", Sattr::mode(0o755)))
    }),
    v3("MKDIR of a dot and of two dots fails", |b| {
        let dir = b.dir.clone();
        for name in [".", ".."] {
            let result = b.c.mkdir(&dir, name, Sattr::mode(0o755));
            refused_as(&[EXIST, INVAL, ACCESS], result)?;
        }
        Ok(())
    }),
    v3("MKDIR of an empty name fails", |b| {
        let dir = b.dir.clone();
        let result = b.c.mkdir(&dir, "", Sattr::mode(0o755));
        refused_as(&[INVAL, ACCESS, NOENT, EXIST], result)
    }),
    v3("MKDIR of a long name fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.mkdir(&dir, LONG, Sattr::mode(0o755)))
    }),
    v3("MKDIR without the right to write the directory fails with ACCES", |b| {
        let dir = b.sub("d", 0o755)?;
        refused(ACCESS, b.user(USER)?.mkdir(&dir, "x", Sattr::mode(0o755)))
    }),
    v3("a directory that MKDIR makes belongs to its maker", |b| {
        let dir = b.dir.clone();
        let fh = fh_of(b.user(USER)?.mkdir(&dir, "d", Sattr::mode(0o755))?)?;
        let attr = b.c.getattr(&fh)?;
        same("owner and group", (attr.uid, attr.gid), (USER, USER))
    }),
    v3("the reply of MKDIR is true", |b| {
        reply_is_true(b, |b| Ok(b.c.mkdir(&b.dir, "d", Sattr::mode(0o755))?))
    }),
    v3("SYMLINK makes a link that READLINK reads", |b| {
        let fh = b.link_to("l", "../some/where")?;
        same("the type", b.c.getattr(&fh)?.kind, kind::LNK)?;
        same("the target", b.c.readlink(&fh)?.1, b"../some/where".to_vec())
    }),
    v3("SYMLINK over a name that exists fails with EXIST", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        refused(EXIST, b.c.symlink(&dir, "f", "target", Sattr::default()))
    }),
    v3("SYMLINK of a long name fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.symlink(&dir, LONG, "target", Sattr::default()))
    }),
    v3("SYMLINK with a target of 5,000 bytes fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        let result = b.c.symlink(&dir, "l", [b'x'; 5000], Sattr::default());
        refused_as(&[NAMETOOLONG, INVAL], result)
    }),
    v3("SYMLINK with an empty target fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, NOENT], b.c.symlink(&dir, "l", "", Sattr::default()))
    }),
    v3("SYMLINK with a zero byte in the target fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, NOENT], b.c.symlink(&dir, "l", b"a\0b", Sattr::default()))
    }),
    v3("SYMLINK without the right to write the directory fails with ACCES", |b| {
        let dir = b.sub("d", 0o755)?;
        refused(ACCESS, b.user(USER)?.symlink(&dir, "l", "target", Sattr::default()))
    }),
    v3("the reply of SYMLINK is true", |b| {
        reply_is_true(b, |b| Ok(b.c.symlink(&b.dir, "l", "target", Sattr::default())?))
    }),
    v3("MKNOD makes a named pipe", |b| {
        let dir = b.dir.clone();
        let made = b.c.mknod(&dir, "p", kind::FIFO, Sattr::mode(0o640), (0, 0))?;
        let attr = b.c.getattr(&fh_of(made)?)?;
        same("type and mode", (attr.kind, attr.mode), (kind::FIFO, 0o640))
    }),
    v3("MKNOD makes a socket", |b| {
        let dir = b.dir.clone();
        let made = b.c.mknod(&dir, "s", kind::SOCK, Sattr::mode(0o600), (0, 0))?;
        same("the type", b.c.getattr(&fh_of(made)?)?.kind, kind::SOCK)
    }),
    v3("MKNOD by user 0 makes device nodes with their numbers", |b| {
        let dir = b.dir.clone();
        for (name, wanted) in [("c", kind::CHR), ("b", kind::BLK)] {
            match b.c.mknod(&dir, name, wanted, Sattr::mode(0o600), (7, 300)) {
                Ok(made) => {
                    let attr = b.c.getattr(&fh_of(made)?)?;
                    same("the node", (attr.kind, attr.rdev), (wanted, (7, 300)))?;
                }
                result => refused_as(&[PERM, NOTSUPP, BADTYPE, ACCESS], result)?,
            }
        }
        Ok(())
    }),
    v3("MKNOD of a device by a user fails with PERM", |b| {
        let dir = b.dir.clone();
        let result = b.user(USER)?.mknod(&dir, "c", kind::CHR, Sattr::mode(0o600), (1, 3));
        refused_as(&[PERM, ACCESS, NOTSUPP], result)
    }),
    v3("MKNOD of a regular file fails with BADTYPE", |b| {
        let dir = b.dir.clone();
        refused(BADTYPE, b.c.mknod(&dir, "x", kind::REG, Sattr::default(), (0, 0)))
    }),
    v3("MKNOD of a directory fails with BADTYPE", |b| {
        let dir = b.dir.clone();
        refused(BADTYPE, b.c.mknod(&dir, "x", kind::DIR, Sattr::default(), (0, 0)))
    }),
    v3("MKNOD of a symbolic link fails with BADTYPE", |b| {
        let dir = b.dir.clone();
        refused(BADTYPE, b.c.mknod(&dir, "x", kind::LNK, Sattr::default(), (0, 0)))
    }),
    v3("MKNOD over a name that exists fails with EXIST", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        refused(EXIST, b.c.mknod(&dir, "f", kind::FIFO, Sattr::mode(0o600), (0, 0)))
    }),
    v3("MKNOD of a long name fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.mknod(&dir, LONG, kind::FIFO, Sattr::mode(0o600), (0, 0)))
    }),
    v3("MKNOD without the right to write the directory fails with ACCES", |b| {
        let dir = b.sub("d", 0o755)?;
        let result = b.user(USER)?.mknod(&dir, "p", kind::FIFO, Sattr::mode(0o600), (0, 0));
        refused(ACCESS, result)
    }),
    v3("the reply of MKNOD is true", |b| {
        reply_is_true(b, |b| Ok(b.c.mknod(&b.dir, "p", kind::FIFO, Sattr::mode(0o600), (0, 0))?))
    }),
];
