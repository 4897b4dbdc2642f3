//! Cases of LOOKUP, REMOVE, RMDIR, RENAME and LINK.

use anyhow::ensure;

use super::{is_right, v3};
use crate::bench::{OTHER, USER, refusal, refused, refused_as, same};
use crate::nfs3::{Sattr, kind};
use crate::status::{
    ACCESS, EXIST, INVAL, ISDIR, NAMETOOLONG, NOENT, NOTDIR, NOTEMPTY, PERM, STALE, XDEV,
};
use crate::suite::Case;

/// A name that is longer than file systems allow.
pub(super) const LONG: [u8; 256] = [b'n'; 256];

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("LOOKUP finds a file and its attributes", |b| {
        let fh = b.file_with("f", b"hello")?;
        let dir = b.dir.clone();
        let found = b.c.lookup(&dir, "f")?;
        same("the handle", &found.fh, &fh)?;
        if let Some(attr) = found.attr {
            same("the size", attr.size, 5)?;
        }
        if let Some(attr) = found.dir {
            same("the directory", attr.fileid, b.c.getattr(&dir)?.fileid)?;
        }
        Ok(())
    }),
    v3("LOOKUP of a missing name fails with NOENT and the directory's attributes", |b| {
        let dir = b.dir.clone();
        let wcc = refusal(&[NOENT], b.c.lookup(&dir, "none"))?;
        if let Some(attr) = wcc[0].after {
            same("the type", attr.kind, kind::DIR)?;
        }
        Ok(())
    }),
    v3("LOOKUP of a symbolic link returns the link", |b| {
        b.link_to("l", "f")?;
        let dir = b.dir.clone();
        let fh = b.c.lookup(&dir, "l")?.fh;
        same("the type", b.c.getattr(&fh)?.kind, kind::LNK)
    }),
    v3("LOOKUP through a symbolic link fails", |b| {
        b.sub("d", 0o755)?;
        let link = b.link_to("l", "d")?;
        refused_as(&[NOTDIR, INVAL], b.c.lookup(&link, "x"))
    }),
    v3("LOOKUP of a dot returns the directory", |b| {
        let dir = b.dir.clone();
        let found = b.c.lookup(&dir, ".")?;
        same("the file", b.c.getattr(&found.fh)?.fileid, b.c.getattr(&dir)?.fileid)
    }),
    v3("LOOKUP of two dots returns the parent", |b| {
        let sub = b.sub("d", 0o755)?;
        let found = b.c.lookup(&sub, "..")?;
        same("the file", b.c.getattr(&found.fh)?.fileid, b.c.getattr(&b.dir)?.fileid)
    }),
    v3("LOOKUP of two dots in the export's root stays inside or fails", |b| {
        let root = b.root.clone();
        match b.c.lookup(&root, "..") {
            Ok(found) => {
                same("the type", b.c.getattr(&found.fh)?.kind, kind::DIR)?;
                refused_as(&[NOENT, ACCESS], b.c.lookup(&found.fh, "etc"))
            }
            result => refused_as(&[NOENT, ACCESS, INVAL], result),
        }
    }),
    v3("LOOKUP of an empty name fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, NOENT, ACCESS], b.c.lookup(&dir, ""))
    }),
    v3("LOOKUP of a name with a slash fails", |b| {
        b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        refused_as(&[INVAL, NOENT, ACCESS], b.c.lookup(&dir, "d/.."))
    }),
    v3("LOOKUP of a name with a zero byte fails", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        refused_as(&[INVAL, NOENT, ACCESS], b.c.lookup(&dir, b"f\0g"))
    }),
    v3("LOOKUP of a name of 256 bytes fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.lookup(&dir, LONG))
    }),
    v3("LOOKUP without the right to search fails with ACCES", |b| {
        let dir = b.sub("d", 0o700)?;
        refused(ACCESS, b.user(USER)?.lookup(&dir, "x"))
    }),
    v3("LOOKUP with the right to search alone succeeds", |b| {
        let (dir, fh) = (b.sub("d", 0o711)?, b.file("f")?);
        b.c.link(&fh, &dir, "x")?;
        b.user(USER)?.lookup(&dir, "x")?;
        Ok(())
    }),
    v3("LOOKUP finds names of 255 bytes and of other bytes than UTF-8", |b| {
        let dir = b.dir.clone();
        for name in [&LONG[..255], &b"\xff\xfe name \x01"[..]] {
            let made = b.c.mkdir(&dir, name, Sattr::mode(0o755))?;
            same("the handle", Some(b.c.lookup(&dir, name)?.fh), made.fh)?;
        }
        Ok(())
    }),
    v3("REMOVE removes the name", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        b.c.remove(&dir, "f")?;
        refused(NOENT, b.c.lookup(&dir, "f"))
    }),
    v3("REMOVE of one of two names leaves the file", |b| {
        let (fh, dir) = (b.file_with("f", b"data")?, b.dir.clone());
        b.c.link(&fh, &dir, "g")?;
        b.c.remove(&dir, "f")?;
        same("links and size", (b.c.getattr(&fh)?.nlink, b.c.getattr(&fh)?.size), (1, 4))
    }),
    v3("REMOVE of a missing name fails with NOENT", |b| {
        let dir = b.dir.clone();
        refused(NOENT, b.c.remove(&dir, "none"))
    }),
    v3("REMOVE of a directory fails", |b| {
        b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        refused_as(&[ISDIR, PERM], b.c.remove(&dir, "d"))
    }),
    v3("REMOVE of a symbolic link removes the link", |b| {
        let fh = b.file("f")?;
        b.link_to("l", "f")?;
        let dir = b.dir.clone();
        b.c.remove(&dir, "l")?;
        same("the links of the target", b.c.getattr(&fh)?.nlink, 1)
    }),
    v3("REMOVE of a dot fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, ISDIR, ACCESS, EXIST, PERM], b.c.remove(&dir, "."))
    }),
    v3("REMOVE of two dots fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, ISDIR, ACCESS, EXIST, PERM], b.c.remove(&dir, ".."))
    }),
    v3("REMOVE of a long name fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.remove(&dir, LONG))
    }),
    v3("REMOVE without the right to write the directory fails with ACCES", |b| {
        let (dir, fh) = (b.sub("d", 0o755)?, b.file("f")?);
        b.c.link(&fh, &dir, "x")?;
        refused(ACCESS, b.user(USER)?.remove(&dir, "x"))
    }),
    v3("REMOVE of another's file in a sticky directory fails", |b| {
        let (dir, fh) = (b.sub("d", 0o1777)?, b.file("f")?);
        b.c.link(&fh, &dir, "x")?;
        refused_as(&[ACCESS, PERM], b.user(USER)?.remove(&dir, "x"))
    }),
    v3("REMOVE of another's file succeeds in a directory of one's own", |b| {
        let (dir, fh) = (b.sub("d", 0o755)?, b.file("f")?);
        b.c.setattr(&dir, Sattr::owner(USER, USER), None)?;
        b.c.link(&fh, &dir, "x")?;
        b.user(USER)?.remove(&dir, "x")?;
        Ok(())
    }),
    v3("REMOVE returns the directory's attributes before and after", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        let before = b.c.getattr(&dir)?;
        let wcc = b.c.remove(&dir, "f")?;
        is_right(wcc, &before, b.c.getattr(&dir)?)
    }),
    v3("RMDIR removes an empty directory", |b| {
        let sub = b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        b.c.rmdir(&dir, "d")?;
        refused(NOENT, b.c.lookup(&dir, "d"))?;
        refused(STALE, b.c.getattr(&sub))
    }),
    v3("RMDIR of a missing name fails with NOENT", |b| {
        let dir = b.dir.clone();
        refused(NOENT, b.c.rmdir(&dir, "none"))
    }),
    v3("RMDIR of a directory with entries fails with NOTEMPTY", |b| {
        let (sub, dir) = (b.sub("d", 0o755)?, b.dir.clone());
        b.c.mkdir(&sub, "x", Sattr::mode(0o755))?;
        refused_as(&[NOTEMPTY, EXIST], b.c.rmdir(&dir, "d"))
    }),
    v3("RMDIR of a file fails with NOTDIR", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        refused(NOTDIR, b.c.rmdir(&dir, "f"))
    }),
    v3("RMDIR of a symbolic link to a directory fails with NOTDIR", |b| {
        b.sub("d", 0o755)?;
        b.link_to("l", "d")?;
        let dir = b.dir.clone();
        refused(NOTDIR, b.c.rmdir(&dir, "l"))
    }),
    v3("RMDIR of a dot fails with INVAL", |b| {
        let dir = b.dir.clone();
        refused(INVAL, b.c.rmdir(&dir, "."))
    }),
    v3("RMDIR of two dots fails", |b| {
        let dir = b.sub("d", 0o755)?;
        refused_as(&[EXIST, INVAL, NOTEMPTY], b.c.rmdir(&dir, ".."))
    }),
    v3("RMDIR of a long name fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.rmdir(&dir, LONG))
    }),
    v3("RMDIR without the right to write the directory fails with ACCES", |b| {
        let dir = b.sub("d", 0o755)?;
        b.c.mkdir(&dir, "x", Sattr::mode(0o755))?;
        refused(ACCESS, b.user(USER)?.rmdir(&dir, "x"))
    }),
    v3("RMDIR takes one from the links of the parent", |b| {
        let dir = b.dir.clone();
        let before = b.c.getattr(&dir)?.nlink;
        b.sub("d", 0o755)?;
        b.c.rmdir(&dir, "d")?;
        same("the links", b.c.getattr(&dir)?.nlink, before)
    }),
    v3("RENAME moves a name in its directory and keeps the handle", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        b.c.rename((&dir, b"f"), (&dir, b"g"))?;
        same("the handle", b.c.lookup(&dir, "g")?.fh, fh)?;
        refused(NOENT, b.c.lookup(&dir, "f"))
    }),
    v3("RENAME moves a name to another directory", |b| {
        let (fh, sub, dir) = (b.file("f")?, b.sub("d", 0o755)?, b.dir.clone());
        b.c.rename((&dir, b"f"), (&sub, b"g"))?;
        same("the handle", b.c.lookup(&sub, "g")?.fh, fh.clone())?;
        b.c.getattr(&fh)?;
        refused(NOENT, b.c.lookup(&dir, "f"))
    }),
    v3("RENAME replaces a file", |b| {
        let (one, two, dir) = (b.file("f")?, b.file("g")?, b.dir.clone());
        b.c.rename((&dir, b"f"), (&dir, b"g"))?;
        same("the handle", b.c.lookup(&dir, "g")?.fh, one)?;
        refused(STALE, b.c.getattr(&two))
    }),
    v3("RENAME to the same name does nothing", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        b.c.rename((&dir, b"f"), (&dir, b"f"))?;
        same("the handle", b.c.lookup(&dir, "f")?.fh, fh)
    }),
    v3("RENAME to another name of the same file does nothing", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        b.c.link(&fh, &dir, "g")?;
        b.c.rename((&dir, b"f"), (&dir, b"g"))?;
        b.c.lookup(&dir, "f")?;
        b.c.lookup(&dir, "g")?;
        same("the links", b.c.getattr(&fh)?.nlink, 2)
    }),
    v3("RENAME replaces an empty directory by a directory", |b| {
        let (one, _, dir) = (b.sub("d", 0o755)?, b.sub("e", 0o755)?, b.dir.clone());
        b.c.rename((&dir, b"d"), (&dir, b"e"))?;
        same("the handle", b.c.lookup(&dir, "e")?.fh, one)
    }),
    v3("RENAME over a directory with entries fails with NOTEMPTY", |b| {
        let (_, two, dir) = (b.sub("d", 0o755)?, b.sub("e", 0o755)?, b.dir.clone());
        b.c.mkdir(&two, "x", Sattr::mode(0o755))?;
        refused_as(&[NOTEMPTY, EXIST], b.c.rename((&dir, b"d"), (&dir, b"e")))
    }),
    v3("RENAME of a file over a directory fails", |b| {
        b.file("f")?;
        b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        refused_as(&[EXIST, ISDIR], b.c.rename((&dir, b"f"), (&dir, b"d")))
    }),
    v3("RENAME of a directory over a file fails", |b| {
        b.file("f")?;
        b.sub("d", 0o755)?;
        let dir = b.dir.clone();
        refused_as(&[EXIST, NOTDIR], b.c.rename((&dir, b"d"), (&dir, b"f")))
    }),
    v3("RENAME of a directory into itself fails with INVAL", |b| {
        let (sub, dir) = (b.sub("d", 0o755)?, b.dir.clone());
        refused(INVAL, b.c.rename((&dir, b"d"), (&sub, b"x")))
    }),
    v3("RENAME of a missing name fails with NOENT", |b| {
        let dir = b.dir.clone();
        refused(NOENT, b.c.rename((&dir, b"none"), (&dir, b"x")))
    }),
    v3("RENAME from a dot fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, EXIST, ACCESS], b.c.rename((&dir, b"."), (&dir, b"x")))
    }),
    v3("RENAME to two dots fails", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        refused_as(
            &[INVAL, EXIST, ISDIR, NOTEMPTY, ACCESS],
            b.c.rename((&dir, b"f"), (&dir, b"..")),
        )
    }),
    v3("RENAME from an empty name fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[INVAL, NOENT, ACCESS], b.c.rename((&dir, b""), (&dir, b"x")))
    }),
    v3("RENAME to a long name fails with NAMETOOLONG", |b| {
        b.file("f")?;
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.rename((&dir, b"f"), (&dir, &LONG)))
    }),
    v3("RENAME from a long name fails with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused_as(&[NAMETOOLONG, NOENT], b.c.rename((&dir, &LONG), (&dir, b"x")))
    }),
    v3("RENAME out of a directory without the right to write fails with ACCES", |b| {
        let (sub, dir) = (b.sub("d", 0o755)?, b.dir.clone());
        b.c.mkdir(&sub, "x", Sattr::mode(0o777))?;
        refused(ACCESS, b.user(USER)?.rename((&sub, b"x"), (&dir, b"y")))
    }),
    v3("RENAME into a directory without the right to write fails with ACCES", |b| {
        let (sub, dir) = (b.sub("d", 0o755)?, b.dir.clone());
        b.file("f")?;
        refused(ACCESS, b.user(USER)?.rename((&dir, b"f"), (&sub, b"y")))
    }),
    v3("RENAME over another's file in a sticky directory fails", |b| {
        let (sub, fh) = (b.sub("d", 0o1777)?, b.file("f")?);
        b.c.link(&fh, &sub, "x")?;
        let mut user = b.user(USER)?;
        user.mkdir(&sub, "own", Sattr::mode(0o755))?;
        user.symlink(&sub, "mine", "t", Sattr::default())?;
        refused_as(&[ACCESS, PERM], user.rename((&sub, b"mine"), (&sub, b"x")))?;
        refused_as(&[ACCESS, PERM], b.user(OTHER)?.rename((&sub, b"mine"), (&sub, b"y")))
    }),
    v3("RENAME returns attributes of both directories before and after", |b| {
        let (sub, dir) = (b.sub("d", 0o755)?, b.dir.clone());
        b.file("f")?;
        let (old, new) = (b.c.getattr(&dir)?, b.c.getattr(&sub)?);
        let (from, to) = b.c.rename((&dir, b"f"), (&sub, b"g"))?;
        for (wcc, before, fh) in [(from, old, &dir), (to, new, &sub)] {
            is_right(wcc, &before, b.c.getattr(fh)?)?;
        }
        Ok(())
    }),
    v3("RENAME of a directory changes what two dots mean", |b| {
        let (one, two, dir) = (b.sub("d", 0o755)?, b.sub("e", 0o755)?, b.dir.clone());
        b.c.rename((&dir, b"d"), (&two, b"d"))?;
        let parent = b.c.lookup(&one, "..")?.fh;
        same("the parent", b.c.getattr(&parent)?.fileid, b.c.getattr(&two)?.fileid)
    }),
    v3("LINK makes a second name of the same file", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        let (attr, _) = b.c.link(&fh, &dir, "g")?;
        if let Some(attr) = attr {
            same("the links in the reply", attr.nlink, 2)?;
        }
        let second = b.c.lookup(&dir, "g")?.fh;
        same("the file", b.c.getattr(&second)?.fileid, b.c.getattr(&fh)?.fileid)?;
        same("the links", b.c.getattr(&fh)?.nlink, 2)
    }),
    v3("LINK over a name that exists fails with EXIST", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        refused(EXIST, b.c.link(&fh, &dir, "f"))
    }),
    v3("LINK of a directory fails", |b| {
        let (sub, dir) = (b.sub("d", 0o755)?, b.dir.clone());
        refused_as(&[PERM, ISDIR, INVAL, ACCESS], b.c.link(&sub, &dir, "g"))
    }),
    v3("LINK to a dot fails", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        refused_as(&[EXIST, INVAL, ACCESS], b.c.link(&fh, &dir, "."))
    }),
    v3("LINK to a long name fails with NAMETOOLONG", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        refused(NAMETOOLONG, b.c.link(&fh, &dir, LONG))
    }),
    v3("LINK without the right to write the directory fails with ACCES", |b| {
        let (fh, dir) = (b.file_with_mode("f", 0o666)?, b.sub("d", 0o755)?);
        refused(ACCESS, b.user(USER)?.link(&fh, &dir, "x"))
    }),
    v3("LINK of a symbolic link links the link", |b| {
        let (fh, dir) = (b.link_to("l", "target")?, b.dir.clone());
        b.c.link(&fh, &dir, "m")?;
        let second = b.c.lookup(&dir, "m")?.fh;
        same("the target", b.c.readlink(&second)?.1, b"target".to_vec())
    }),
    v3("LINK returns the directory's attributes before and after", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        let before = b.c.getattr(&dir)?;
        let (_, wcc) = b.c.link(&fh, &dir, "g")?;
        is_right(wcc, &before, b.c.getattr(&dir)?)
    }),
    v3("LINK and RENAME to another export fail with XDEV", |b| {
        let other = b.squashed()?;
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        refused_as(&[XDEV, ACCESS], b.c.link(&fh, &other, "x"))?;
        refused_as(&[XDEV, ACCESS], b.c.rename((&dir, b"f"), (&other, b"x")))
    }),
    v3("READLINK returns the target", |b| {
        let fh = b.link_to("l", "some/target")?;
        let (attr, target) = b.c.readlink(&fh)?;
        if let Some(attr) = attr {
            same("the type", attr.kind, kind::LNK)?;
        }
        same("the target", target, b"some/target".to_vec())
    }),
    v3("READLINK returns a target of 1,000 bytes", |b| {
        let target = "x".repeat(1000);
        let fh = b.link_to("l", &target)?;
        same("the target", b.c.readlink(&fh)?.1, target.into_bytes())
    }),
    v3("READLINK of a file fails with INVAL", |b| {
        let fh = b.file("f")?;
        refused(INVAL, b.c.readlink(&fh))
    }),
    v3("READLINK of a directory fails with INVAL", |b| {
        let dir = b.dir.clone();
        refused(INVAL, b.c.readlink(&dir))
    }),
    v3("many names of one file are counted", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        for index in 0..20 {
            b.c.link(&fh, &dir, format!("name-{index}"))?;
        }
        ensure!(b.c.getattr(&fh)?.nlink == 21, "21 names are not 21 links");
        Ok(())
    }),
];
