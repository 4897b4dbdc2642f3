//! Cases that call every procedure with the handle of a removed file, with a handle that the server
//! did not issue, and with the handle of a file where a directory is needed.

use anyhow::{Result, bail};

use super::v3;
use crate::bench::{Bench, refused, refused_as};
use crate::fault::Fault;
use crate::nfs3::{How, Nfs3, Sattr, kind};
use crate::status::{BADHANDLE, NOTDIR, STALE};
use crate::suite::Case;

/// Calls a procedure, by its number, with a handle. The other arguments are valid; `file` is the
/// file that LINK links.
fn call(c: &mut Nfs3, procedure: u32, fh: &[u8], file: &[u8]) -> Result<(), Fault> {
    match procedure {
        1 => c.getattr(fh).map(drop),
        2 => c.setattr(fh, Sattr::mode(0o700), None).map(drop),
        3 => c.lookup(fh, "x").map(drop),
        4 => c.access(fh, 0x3f).map(drop),
        5 => c.readlink(fh).map(drop),
        6 => c.read(fh, 0, 100).map(drop),
        7 => c.write(fh, 0, 2, b"data").map(drop),
        8 => c.create(fh, "x", How::Unchecked(Sattr::mode(0o644))).map(drop),
        9 => c.mkdir(fh, "x", Sattr::mode(0o755)).map(drop),
        10 => c.symlink(fh, "x", "target", Sattr::default()).map(drop),
        11 => c.mknod(fh, "x", kind::FIFO, Sattr::mode(0o644), (0, 0)).map(drop),
        12 => c.remove(fh, "x").map(drop),
        13 => c.rmdir(fh, "x").map(drop),
        14 => c.rename((fh, b"x"), (fh, b"y")).map(drop),
        15 => c.link(file, fh, "x").map(drop),
        16 => c.readdir(fh, 0, [0; 8], 4096).map(drop),
        17 => c.readdirplus(fh, 0, [0; 8], (4096, 8192)).map(drop),
        18 => c.fsstat(fh).map(drop),
        19 => c.fsinfo(fh).map(drop),
        20 => c.pathconf(fh).map(drop),
        21 => c.commit(fh, 0, 0).map(drop),
        other => Err(Fault::Reply(format!("is of procedure {other}, which has no handle"))),
    }
}

/// The numbers of the procedures that need the handle of a directory.
const OF_DIRECTORIES: &[u32] = &[3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];

/// Calls a procedure with the handle of an object that was removed.
fn stale(b: &mut Bench, procedure: u32) -> Result<()> {
    let file = b.file("file")?;
    let is_directory = OF_DIRECTORIES.contains(&procedure);
    let fh = if is_directory { b.stale_dir()? } else { b.stale()? };
    refused(STALE, call(&mut b.c, procedure, &fh, &file))
}

/// Calls a procedure with handles that the server did not issue.
fn bad(b: &mut Bench, procedure: u32) -> Result<()> {
    let file = b.file("file")?;
    for fh in [&[][..], &[1], &[0; 32], &[0xa5; 64]] {
        refused_as(&[BADHANDLE, STALE], call(&mut b.c, procedure, fh, &file))?;
    }
    // A handle of the server with one bit changed.
    for at in [0, file.len() / 2, file.len() - 1] {
        let mut fh = if OF_DIRECTORIES.contains(&procedure) { b.dir.clone() } else { file.clone() };
        let at = at.min(fh.len() - 1);
        fh[at] ^= 0x10;
        match call(&mut b.c, procedure, &fh, &file) {
            Err(Fault::Status { .. }) => {}
            Err(fault) => bail!("{fault}"),
            Ok(()) => bail!("a handle with a changed bit in byte {at} is accepted"),
        }
    }
    Ok(())
}

/// Calls a procedure that needs a directory with the handle of a file.
fn no_directory(b: &mut Bench, procedure: u32) -> Result<()> {
    let file = b.file("file")?;
    refused(NOTDIR, call(&mut b.c, procedure, &file, &file))
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("GETATTR of a removed file fails with STALE", |b| stale(b, 1)),
    v3("SETATTR of a removed file fails with STALE", |b| stale(b, 2)),
    v3("LOOKUP in a removed directory fails with STALE", |b| stale(b, 3)),
    v3("ACCESS of a removed file fails with STALE", |b| stale(b, 4)),
    v3("READLINK of a removed file fails with STALE", |b| stale(b, 5)),
    v3("READ of a removed file fails with STALE", |b| stale(b, 6)),
    v3("WRITE to a removed file fails with STALE", |b| stale(b, 7)),
    v3("CREATE in a removed directory fails with STALE", |b| stale(b, 8)),
    v3("MKDIR in a removed directory fails with STALE", |b| stale(b, 9)),
    v3("SYMLINK in a removed directory fails with STALE", |b| stale(b, 10)),
    v3("MKNOD in a removed directory fails with STALE", |b| stale(b, 11)),
    v3("REMOVE in a removed directory fails with STALE", |b| stale(b, 12)),
    v3("RMDIR in a removed directory fails with STALE", |b| stale(b, 13)),
    v3("RENAME in a removed directory fails with STALE", |b| stale(b, 14)),
    v3("LINK into a removed directory fails with STALE", |b| stale(b, 15)),
    v3("READDIR of a removed directory fails with STALE", |b| stale(b, 16)),
    v3("READDIRPLUS of a removed directory fails with STALE", |b| stale(b, 17)),
    v3("FSSTAT of a removed file fails with STALE", |b| stale(b, 18)),
    v3("FSINFO of a removed file fails with STALE", |b| stale(b, 19)),
    v3("PATHCONF of a removed file fails with STALE", |b| stale(b, 20)),
    v3("COMMIT of a removed file fails with STALE", |b| stale(b, 21)),
    v3("LINK of a removed file fails with STALE", |b| {
        let (fh, dir) = (b.stale()?, b.dir.clone());
        refused(STALE, b.c.link(&fh, &dir, "x"))
    }),
    v3("RENAME into a removed directory fails with STALE", |b| {
        b.file("x")?;
        let (gone, dir) = (b.stale_dir()?, b.dir.clone());
        refused(STALE, b.c.rename((&dir, b"x"), (&gone, b"y")))
    }),
    v3("GETATTR of a handle that nobody made fails with BADHANDLE", |b| bad(b, 1)),
    v3("SETATTR of a handle that nobody made fails with BADHANDLE", |b| bad(b, 2)),
    v3("LOOKUP in a handle that nobody made fails with BADHANDLE", |b| bad(b, 3)),
    v3("ACCESS of a handle that nobody made fails with BADHANDLE", |b| bad(b, 4)),
    v3("READLINK of a handle that nobody made fails with BADHANDLE", |b| bad(b, 5)),
    v3("READ of a handle that nobody made fails with BADHANDLE", |b| bad(b, 6)),
    v3("WRITE to a handle that nobody made fails with BADHANDLE", |b| bad(b, 7)),
    v3("CREATE in a handle that nobody made fails with BADHANDLE", |b| bad(b, 8)),
    v3("MKDIR in a handle that nobody made fails with BADHANDLE", |b| bad(b, 9)),
    v3("SYMLINK in a handle that nobody made fails with BADHANDLE", |b| bad(b, 10)),
    v3("MKNOD in a handle that nobody made fails with BADHANDLE", |b| bad(b, 11)),
    v3("REMOVE in a handle that nobody made fails with BADHANDLE", |b| bad(b, 12)),
    v3("RMDIR in a handle that nobody made fails with BADHANDLE", |b| bad(b, 13)),
    v3("RENAME in a handle that nobody made fails with BADHANDLE", |b| bad(b, 14)),
    v3("LINK into a handle that nobody made fails with BADHANDLE", |b| bad(b, 15)),
    v3("READDIR of a handle that nobody made fails with BADHANDLE", |b| bad(b, 16)),
    v3("READDIRPLUS of a handle that nobody made fails with BADHANDLE", |b| bad(b, 17)),
    v3("FSSTAT of a handle that nobody made fails with BADHANDLE", |b| bad(b, 18)),
    v3("FSINFO of a handle that nobody made fails with BADHANDLE", |b| bad(b, 19)),
    v3("PATHCONF of a handle that nobody made fails with BADHANDLE", |b| bad(b, 20)),
    v3("COMMIT of a handle that nobody made fails with BADHANDLE", |b| bad(b, 21)),
    v3("LOOKUP in a file fails with NOTDIR", |b| no_directory(b, 3)),
    v3("CREATE in a file fails with NOTDIR", |b| no_directory(b, 8)),
    v3("MKDIR in a file fails with NOTDIR", |b| no_directory(b, 9)),
    v3("SYMLINK in a file fails with NOTDIR", |b| no_directory(b, 10)),
    v3("MKNOD in a file fails with NOTDIR", |b| no_directory(b, 11)),
    v3("REMOVE in a file fails with NOTDIR", |b| no_directory(b, 12)),
    v3("RMDIR in a file fails with NOTDIR", |b| no_directory(b, 13)),
    v3("RENAME in a file fails with NOTDIR", |b| no_directory(b, 14)),
    v3("LINK into a file fails with NOTDIR", |b| no_directory(b, 15)),
    v3("READDIR of a file fails with NOTDIR", |b| no_directory(b, 16)),
    v3("READDIRPLUS of a file fails with NOTDIR", |b| no_directory(b, 17)),
    v3("RENAME into a file fails with NOTDIR", |b| {
        let (file, dir) = (b.file("file")?, b.dir.clone());
        refused(NOTDIR, b.c.rename((&dir, b"file"), (&file, b"y")))
    }),
    v3("a handle of another directory finds the same file", |b| {
        let (fh, dir) = (b.file("x")?, b.sub("d", 0o755)?);
        let case = b.dir.clone();
        b.c.link(&fh, &dir, "y")?;
        let (one, two) = (b.c.lookup(&case, "x")?.fh, b.c.lookup(&dir, "y")?.fh);
        crate::bench::same("the file", b.c.getattr(&one)?.fileid, b.c.getattr(&two)?.fileid)
    }),
];
