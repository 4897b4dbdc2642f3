//! Cases of WRITE and COMMIT.

use anyhow::{Context, ensure};

use super::v3;
use crate::bench::{USER, await_tick, pattern, refusal, refused, refused_as, same};
use crate::fault::Fault;
use crate::nfs3::{Sattr, SetTime, kind};
use crate::status::{ACCESS, FBIG, INVAL, ISDIR};
use crate::suite::Case;

const UNSTABLE: u32 = 0;
const DATA_SYNC: u32 = 1;
const FILE_SYNC: u32 = 2;

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("WRITE FILE_SYNC is stable at once", |b| {
        let fh = b.file("f")?;
        let written = b.c.write(&fh, 0, FILE_SYNC, b"hello")?;
        same("count and stability", (written.count, written.committed), (5, FILE_SYNC))
    }),
    v3("WRITE DATA_SYNC is at least that stable", |b| {
        let fh = b.file("f")?;
        let written = b.c.write(&fh, 0, DATA_SYNC, b"hello")?;
        ensure!(written.committed >= DATA_SYNC, "the stability is {}", written.committed);
        Ok(())
    }),
    v3("WRITE UNSTABLE can be read before COMMIT", |b| {
        let fh = b.file("f")?;
        b.c.write(&fh, 0, UNSTABLE, b"hello")?;
        same("the data", b.c.read(&fh, 0, 10)?.data, b"hello".to_vec())
    }),
    v3("COMMIT returns the verifier of the WRITE before it", |b| {
        let fh = b.file("f")?;
        let written = b.c.write(&fh, 0, UNSTABLE, b"hello")?;
        same("the verifier", b.c.commit(&fh, 0, 0)?.1, written.verifier)
    }),
    v3("all writes of a server have the same verifier", |b| {
        let (one, two) = (b.file("f")?, b.file("g")?);
        let first = b.c.write(&one, 0, UNSTABLE, b"x")?.verifier;
        same("the verifier", b.c.write(&two, 0, FILE_SYNC, b"x")?.verifier, first)?;
        same("the verifier", b.user(0)?.commit(&two, 0, 0)?.1, first)
    }),
    v3("COMMIT of a part of a file succeeds", |b| {
        let fh = b.file("f")?;
        b.c.write(&fh, 0, UNSTABLE, &pattern(10_000))?;
        b.c.commit(&fh, 4096, 100)?;
        Ok(())
    }),
    v3("COMMIT behind the end of a file succeeds", |b| {
        let fh = b.file("f")?;
        b.c.commit(&fh, 1 << 40, 100)?;
        Ok(())
    }),
    v3("COMMIT of a file without writes succeeds", |b| {
        let fh = b.file("f")?;
        b.c.commit(&fh, 0, 0)?;
        Ok(())
    }),
    v3("COMMIT returns attributes after", |b| {
        let fh = b.file_with("f", b"hello")?;
        let after = b.c.commit(&fh, 0, 0)?.0.after.context("there are none")?;
        same("the size", after.size, 5)
    }),
    v3("COMMIT of a directory fails", |b| {
        let dir = b.dir.clone();
        match b.c.commit(&dir, 0, 0) {
            // The server need not do anything, because its directories are always stable.
            Ok(_) => Ok(()),
            result => refused_as(&[ISDIR, INVAL], result),
        }
    }),
    v3("COMMIT of a symbolic link fails", |b| {
        let fh = b.link_to("l", "target")?;
        refused_as(&[INVAL], b.c.commit(&fh, 0, 0))
    }),
    v3("WRITE at the end makes the file longer", |b| {
        let fh = b.file_with("f", b"hello")?;
        b.c.write(&fh, 5, FILE_SYNC, b" world")?;
        same("the data", b.c.read(&fh, 0, 100)?.data, b"hello world".to_vec())
    }),
    v3("WRITE in the middle changes those bytes alone", |b| {
        let fh = b.file_with("f", b"hello")?;
        b.c.write(&fh, 1, FILE_SYNC, b"ipp")?;
        same("the data", b.c.read(&fh, 0, 100)?.data, b"hippo".to_vec())
    }),
    v3("WRITE behind the end leaves zeros between", |b| {
        let fh = b.file_with("f", b"he")?;
        b.c.write(&fh, 6, FILE_SYNC, b"x")?;
        same("the data", b.c.read(&fh, 0, 100)?.data, b"he\0\0\0\0x".to_vec())
    }),
    v3("WRITE of no bytes succeeds and changes nothing", |b| {
        let fh = b.file_with("f", b"hello")?;
        let before = b.c.getattr(&fh)?;
        same("the count", b.c.write(&fh, 100, FILE_SYNC, b"")?.count, 0)?;
        same("the size", b.c.getattr(&fh)?.size, before.size)
    }),
    v3("WRITE at odd offsets and lengths writes the right bytes", |b| {
        let mut model = vec![0; 20_000];
        let fh = b.file_with("f", &model)?;
        let places = [(1, 1), (3, 4095), (4095, 2), (4097, 8191), (12_345, 6789), (19_999, 1)];
        for (index, (offset, length)) in places.into_iter().enumerate() {
            let data = vec![index as u8 + 1; length];
            b.c.write(&fh, offset as u64, (index % 3) as u32, &data)?;
            model[offset..offset + length].copy_from_slice(&data);
        }
        ensure!(b.c.read(&fh, 0, 20_000)?.data == model, "the data differs");
        Ok(())
    }),
    v3("WRITE of FSINFO's maximum writes all of it", |b| {
        let max = b.c.fsinfo(&b.root)?.wtmax.min(1 << 20);
        let data = pattern(max as usize);
        let fh = b.file("f")?;
        let written = b.c.write(&fh, 3, FILE_SYNC, &data)?;
        same("the count", written.count, max)?;
        let read = b.c.read(&fh, 3, max)?;
        ensure!(read.data == data[..read.data.len()], "the data differs");
        Ok(())
    }),
    v3("many writes that follow each other at odd places are all kept", |b| {
        let fh = b.file("f")?;
        let data = pattern(300_007);
        let mut offset = 0;
        for part in data.chunks(9973) {
            b.c.write(&fh, offset, UNSTABLE, part)?;
            offset += part.len() as u64;
        }
        b.c.commit(&fh, 0, 0)?;
        let mut found = Vec::new();
        while found.len() < data.len() {
            let read = b.c.read(&fh, found.len() as u64, 65_521)?;
            ensure!(!read.data.is_empty(), "the file ends at {}", found.len());
            found.extend(read.data);
        }
        ensure!(found == data, "the data differs");
        Ok(())
    }),
    v3("WRITE with a count below the length of the data writes the count", |b| {
        let fh = b.file("f")?;
        match b.c.write_count(&fh, 0, 3, FILE_SYNC, b"hello") {
            Ok(written) => {
                same("the count", written.count, 3)?;
                same("the data", b.c.read(&fh, 0, 10)?.data, b"hel".to_vec())
            }
            Err(Fault::NotDone { .. }) => Ok(()),
            result => refused(INVAL, result),
        }
    }),
    v3("WRITE with a count above the length of the data is refused", |b| {
        let fh = b.file("f")?;
        match b.c.write_count(&fh, 0, 9, FILE_SYNC, b"hello") {
            Ok(written) => same("whether more than the data was written", written.count > 5, false),
            Err(Fault::NotDone { .. }) => Ok(()),
            result => refused(INVAL, result),
        }
    }),
    v3("WRITE returns the attributes before and after", |b| {
        let fh = b.file_with("f", b"hello")?;
        let before = b.c.getattr(&fh)?;
        let wcc = b.c.write(&fh, 5, FILE_SYNC, b" world")?.wcc;
        if let Some(pre) = wcc.before {
            same("before", pre, (5, before.mtime, before.ctime))?;
        }
        same("after", wcc.after.context("there are none")?, b.c.getattr(&fh)?)
    }),
    v3("WRITE changes the times of modification and change", |b| {
        let fh = b.file("f")?;
        let old = Sattr { mtime: SetTime::To((1000, 0)), ..Sattr::default() };
        b.c.setattr(&fh, old, None)?;
        let before = b.c.getattr(&fh)?;
        await_tick();
        b.c.write(&fh, 0, FILE_SYNC, b"x")?;
        let after = b.c.getattr(&fh)?;
        ensure!(after.mtime > before.mtime && after.ctime > before.ctime, "{after:?}");
        Ok(())
    }),
    v3("each of two writes in a row changes the change time or the size", |b| {
        let fh = b.file("f")?;
        let mut last = b.c.getattr(&fh)?;
        for index in 0..20 {
            b.c.write(&fh, index, UNSTABLE, b"x")?;
            let attr = b.c.getattr(&fh)?;
            let is_new = (attr.ctime, attr.size) != (last.ctime, last.size);
            ensure!(is_new, "write {index} cannot be seen in the attributes");
            last = attr;
        }
        Ok(())
    }),
    v3("WRITE to a directory fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[ISDIR, INVAL], b.c.write(&dir, 0, FILE_SYNC, b"x"))
    }),
    v3("WRITE to a symbolic link fails with INVAL", |b| {
        let fh = b.link_to("l", "target")?;
        refused(INVAL, b.c.write(&fh, 0, FILE_SYNC, b"x"))
    }),
    v3("WRITE to a named pipe fails with INVAL and does not hang", |b| {
        let dir = b.dir.clone();
        let made = b.c.mknod(&dir, "p", kind::FIFO, Sattr::mode(0o666), (0, 0))?;
        let fh = made.fh.unwrap_or_default();
        refused(INVAL, b.c.write(&fh, 0, FILE_SYNC, b"x"))
    }),
    v3("WRITE without the right fails with ACCES and attributes", |b| {
        let fh = b.file_with("f", b"hello")?;
        let wcc = refusal(&[ACCESS], b.user(USER)?.write(&fh, 0, FILE_SYNC, b"x"))?;
        if let Some(after) = wcc[0].after {
            same("the size", after.size, 5)?;
        }
        same("the data", b.c.read(&fh, 0, 10)?.data, b"hello".to_vec())
    }),
    v3("WRITE by the owner succeeds whatever the mode", |b| {
        let fh = b.file("f")?;
        b.c.setattr(&fh, Sattr { mode: Some(0o400), ..Sattr::owner(USER, USER) }, None)?;
        same("the count", b.user(USER)?.write(&fh, 0, FILE_SYNC, b"x")?.count, 1)
    }),
    v3("WRITE with the right of others succeeds", |b| {
        let fh = b.file_with_mode("f", 0o602)?;
        same("the count", b.user(USER)?.write(&fh, 0, FILE_SYNC, b"x")?.count, 1)
    }),
    v3("WRITE at the largest offset fails with FBIG", |b| {
        let fh = b.file("f")?;
        refused_as(&[FBIG, INVAL], b.c.write(&fh, u64::MAX - 10, FILE_SYNC, b"x"))
    }),
    v3("WRITE that wraps around the largest offset fails with FBIG", |b| {
        let fh = b.file("f")?;
        refused_as(&[FBIG, INVAL], b.c.write(&fh, u64::MAX, FILE_SYNC, b"xyz"))
    }),
    v3("WRITE beyond FSINFO's maximum size fails with FBIG", |b| {
        let fh = b.file("f")?;
        let max = b.c.fsinfo(&fh)?.maxfilesize;
        refused_as(&[FBIG, INVAL], b.c.write(&fh, max, FILE_SYNC, b"x"))
    }),
    v3("a write in one client is seen in the attributes by another", |b| {
        let fh = b.file("f")?;
        let mut other = b.user(0)?;
        same("the size", other.getattr(&fh)?.size, 0)?;
        b.c.write(&fh, 0, UNSTABLE, b"hello")?;
        same("the size", other.getattr(&fh)?.size, 5)
    }),
];
