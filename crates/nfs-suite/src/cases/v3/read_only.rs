//! Cases that call every procedure that changes something, in a read-only export.

use anyhow::Result;

use super::v3;
use crate::bench::{Bench, refused, refused_as, same};
use crate::nfs3::{Fh, How, Sattr, kind};
use crate::status::{NOTDIR, ROFS};
use crate::suite::Case;

/// Returns the handles of the read-only export and of the file in it.
fn export(b: &mut Bench) -> Result<(Fh, Fh)> {
    let root = b.read_only()?;
    let file = b.c.lookup(&root, "file")?.fh;
    Ok((root, file))
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("READ in the read-only export succeeds", |b| {
        let (_, file) = export(b)?;
        b.c.read(&file, 0, 10)?;
        Ok(())
    }),
    v3("SETATTR in the read-only export fails with ROFS", |b| {
        let (_, file) = export(b)?;
        refused(ROFS, b.c.setattr(&file, Sattr::mode(0o600), None))
    }),
    v3("WRITE in the read-only export fails with ROFS", |b| {
        let (_, file) = export(b)?;
        refused(ROFS, b.c.write(&file, 0, 2, b"x"))
    }),
    v3("CREATE in the read-only export fails with ROFS", |b| {
        let (root, _) = export(b)?;
        refused(ROFS, b.c.create(&root, "x", How::Guarded(Sattr::mode(0o644))))
    }),
    v3("CREATE EXCLUSIVE in the read-only export fails with ROFS", |b| {
        let (root, _) = export(b)?;
        refused(ROFS, b.c.create(&root, "x", How::Exclusive([1; 8])))
    }),
    v3("MKDIR in the read-only export fails with ROFS", |b| {
        let (root, _) = export(b)?;
        refused(ROFS, b.c.mkdir(&root, "x", Sattr::mode(0o755)))
    }),
    v3("SYMLINK in the read-only export fails with ROFS", |b| {
        let (root, _) = export(b)?;
        refused(ROFS, b.c.symlink(&root, "x", "target", Sattr::default()))
    }),
    v3("MKNOD in the read-only export fails with ROFS", |b| {
        let (root, _) = export(b)?;
        refused(ROFS, b.c.mknod(&root, "x", kind::FIFO, Sattr::mode(0o644), (0, 0)))
    }),
    v3("REMOVE in the read-only export fails with ROFS", |b| {
        let (root, _) = export(b)?;
        refused(ROFS, b.c.remove(&root, "file"))
    }),
    v3("RMDIR in the read-only export fails with ROFS", |b| {
        let (root, _) = export(b)?;
        refused_as(&[ROFS, NOTDIR], b.c.rmdir(&root, "file"))
    }),
    v3("RENAME in the read-only export fails with ROFS", |b| {
        let (root, _) = export(b)?;
        refused(ROFS, b.c.rename((&root, b"file"), (&root, b"x")))
    }),
    v3("LINK in the read-only export fails with ROFS", |b| {
        let (root, file) = export(b)?;
        refused(ROFS, b.c.link(&file, &root, "x"))
    }),
    v3("the file of the read-only export is as it was", |b| {
        let (root, file) = export(b)?;
        same("the type", b.c.getattr(&file)?.kind, kind::REG)?;
        same("the handle", b.c.lookup(&root, "file")?.fh, file)
    }),
];
