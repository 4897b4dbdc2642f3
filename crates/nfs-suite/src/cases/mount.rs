//! Cases of MOUNT version 3 (RFC 1813 appendix I).

use anyhow::{Result, ensure};

use crate::bench::{Bench, not_done, refused, refused_as, same};
use crate::fault::{Fault, GARBAGE_ARGS};
use crate::nfs3::kind;
use crate::rpc::Auth;
use crate::status::{ACCESS, INVAL, NAMETOOLONG, NOENT, NOTDIR};
use crate::suite::{Case, Protocol};
use crate::xdr::Put;

const AUTH_SYS: u32 = 1;
const HANDLE_BYTES_MAX: usize = 64;

const fn mount(name: &'static str, run: fn(&mut Bench) -> Result<()>) -> Case {
    Case::new(Protocol::Mount3, name, run)
}

/// Returns the path of an entry of the export.
fn below(b: &Bench, name: &str) -> String {
    format!("{}/{name}", b.target.path.trim_end_matches('/'))
}

/// The test cases of this file.
pub const CASES: &[Case] = &[
    mount("NULL is answered", |b| Ok(b.mount()?.null()?)),
    mount("MNT returns the handle of a directory", |b| {
        let mounted = b.mount()?.mnt(&b.target.path)?;
        ensure!((1..=HANDLE_BYTES_MAX).contains(&mounted.fh.len()), "the handle is too long");
        same("the type", b.c.getattr(&mounted.fh)?.kind, kind::DIR)
    }),
    mount("MNT names the flavor AUTH_SYS", |b| {
        let flavors = b.mount()?.mnt(&b.target.path)?.flavors;
        ensure!(flavors.contains(&AUTH_SYS), "{flavors:?} has no AUTH_SYS");
        Ok(())
    }),
    mount("MNT returns the same handle again", |b| {
        let mut mount = b.mount()?;
        let (one, two) = (mount.mnt(&b.target.path)?, mount.mnt(&b.target.path)?);
        same("the second handle", one.fh, two.fh)
    }),
    mount("MNT accepts a slash at the end", |b| {
        let path = below(b, "");
        let root = b.root.clone();
        same("the handle", b.mount()?.mnt(path)?.fh, root)
    }),
    mount("MNT of a directory in the export returns its handle", |b| {
        let path = below(b, &b.name);
        let fh = b.mount()?.mnt(path)?.fh;
        same("the file", b.c.getattr(&fh)?.fileid, b.c.getattr(&b.dir)?.fileid)
    }),
    mount("MNT of a missing path fails with NOENT", |b| {
        let path = below(b, "there/is/none");
        refused_as(&[NOENT, ACCESS], b.mount()?.mnt(path))
    }),
    mount("MNT of a file fails with NOTDIR", |b| {
        b.file("f")?;
        let path = below(b, &format!("{}/f", b.name));
        refused(NOTDIR, b.mount()?.mnt(path))
    }),
    mount("MNT of a path through a file fails with NOTDIR", |b| {
        b.file("f")?;
        let path = below(b, &format!("{}/f/x", b.name));
        refused_as(&[NOTDIR, NOENT, ACCESS], b.mount()?.mnt(path))
    }),
    mount("MNT of a long name fails with NAMETOOLONG", |b| {
        let path = below(b, &"x".repeat(300));
        refused_as(&[NAMETOOLONG, NOENT, ACCESS], b.mount()?.mnt(path))
    }),
    mount("MNT of a path of 1,030 bytes fails", |b| {
        let path = below(b, &"x/".repeat(515));
        match b.mount()?.mnt(path) {
            Err(Fault::NotDone { status: GARBAGE_ARGS, .. }) => Ok(()),
            result => refused_as(&[NAMETOOLONG, NOENT, ACCESS], result),
        }
    }),
    mount("MNT of a symbolic link does not follow it out of the export", |b| {
        b.link_to("away", "/etc")?;
        let path = below(b, &format!("{}/away", b.name));
        refused_as(&[NOTDIR, NOENT, ACCESS, INVAL], b.mount()?.mnt(path))
    }),
    mount("MNT with dots does not leave the export", |b| {
        let path = below(b, "../../../../../../etc");
        refused_as(&[NOTDIR, NOENT, ACCESS, INVAL], b.mount()?.mnt(path))
    }),
    mount("MNT without arguments is refused with GARBAGE_ARGS", |b| {
        not_done(GARBAGE_ARGS, b.mount()?.raw(1, Vec::new())).map(drop)
    }),
    mount("MNT with a path that ends early is refused with GARBAGE_ARGS", |b| {
        let arguments = Put::new().u32(64).u32(0).0;
        not_done(GARBAGE_ARGS, b.mount()?.raw(1, arguments)).map(drop)
    }),
    mount("MNT is served as AUTH_NONE or denied", |b| {
        let mut mount = b.mount()?;
        mount.auth = Auth::None;
        match mount.mnt(&b.target.path) {
            Ok(_) | Err(Fault::Status { .. } | Fault::Denied { .. }) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }),
    mount("DUMP returns a list", |b| {
        let mut mount = b.mount()?;
        mount.mnt(&b.target.path)?;
        mount.dump()?;
        Ok(())
    }),
    mount("UMNT of a mounted path is answered", |b| {
        let mut mount = b.mount()?;
        mount.mnt(&b.target.path)?;
        Ok(mount.umnt(&b.target.path)?)
    }),
    mount("UMNT of a path that is not mounted is answered", |b| {
        Ok(b.mount()?.umnt("/there/is/none")?)
    }),
    mount("a handle is valid after UMNT", |b| {
        b.mount()?.umnt(&b.target.path)?;
        same("the type", b.c.getattr(&b.root)?.kind, kind::DIR)
    }),
    mount("UMNTALL is answered and leaves no entry of this client", |b| {
        let mut mount = b.mount()?;
        mount.mnt(&b.target.path)?;
        mount.umntall()?;
        let left = mount.dump()?;
        let is_left = left.iter().any(|(_, path)| path == b.target.path.as_bytes());
        ensure!(!is_left, "{left:?} has the path");
        Ok(())
    }),
    mount("EXPORT lists the export", |b| {
        let exports = b.mount()?.export()?;
        let path = b.target.path.as_bytes();
        ensure!(exports.iter().any(|export| export.path == path), "{exports:?} lacks it");
        Ok(())
    }),
    mount("every path of EXPORT can be mounted or is refused by rules", |b| {
        let mut mount = b.mount()?;
        for export in mount.export()? {
            match mount.mnt(&export.path) {
                Ok(_) => {}
                result => refused(ACCESS, result)?,
            }
        }
        Ok(())
    }),
    mount("the read-only export can be mounted", |b| {
        let fh = b.read_only()?;
        same("the type", b.c.getattr(&fh)?.kind, kind::DIR)
    }),
];
