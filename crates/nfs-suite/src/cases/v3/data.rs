//! Cases of the procedure READ.

use anyhow::ensure;

use super::v3;
use crate::bench::{USER, pattern, refused, refused_as, same};
use crate::nfs3::{Sattr, kind};
use crate::rpc::Auth;
use crate::status::{ACCESS, INVAL, ISDIR};
use crate::suite::Case;

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("READ returns the data and the end", |b| {
        let fh = b.file_with("f", b"hello")?;
        let read = b.c.read(&fh, 0, 100)?;
        same("data, count and end", (read.data, read.count, read.eof), (b"hello".to_vec(), 5, true))
    }),
    v3("READ returns attributes of the file", |b| {
        let fh = b.file_with("f", b"hello")?;
        if let Some(attr) = b.c.read(&fh, 0, 100)?.attr {
            same("size and type", (attr.size, attr.kind), (5, kind::REG))?;
        }
        Ok(())
    }),
    v3("READ of the first bytes does not reach the end", |b| {
        let fh = b.file_with("f", b"hello")?;
        let read = b.c.read(&fh, 0, 4)?;
        same("data and end", (read.data, read.eof), (b"hell".to_vec(), false))
    }),
    v3("READ of exactly all bytes reaches the end", |b| {
        let fh = b.file_with("f", b"hello")?;
        let read = b.c.read(&fh, 0, 5)?;
        same("data and end", (read.data, read.eof), (b"hello".to_vec(), true))
    }),
    v3("READ in the middle of a file returns that part", |b| {
        let fh = b.file_with("f", b"hello")?;
        let read = b.c.read(&fh, 1, 3)?;
        same("data and end", (read.data, read.eof), (b"ell".to_vec(), false))
    }),
    v3("READ at the end returns nothing and the end", |b| {
        let fh = b.file_with("f", b"hello")?;
        let read = b.c.read(&fh, 5, 3)?;
        same("data and end", (read.data, read.eof), (vec![], true))
    }),
    v3("READ behind the end returns nothing and the end", |b| {
        let fh = b.file_with("f", b"hello")?;
        let read = b.c.read(&fh, 1 << 40, 3)?;
        same("data and end", (read.data, read.eof), (vec![], true))
    }),
    v3("READ at the largest offset returns nothing or fails", |b| {
        let fh = b.file_with("f", b"hello")?;
        match b.c.read(&fh, u64::MAX, 3) {
            Ok(read) => same("data and end", (read.data, read.eof), (vec![], true)),
            result => refused(INVAL, result),
        }
    }),
    v3("READ of no bytes returns no bytes", |b| {
        let fh = b.file_with("f", b"hello")?;
        let read = b.c.read(&fh, 0, 0)?;
        same("data and end", (read.data, read.eof), (vec![], false))
    }),
    v3("READ of an empty file returns the end", |b| {
        let fh = b.file("f")?;
        let read = b.c.read(&fh, 0, 100)?;
        same("data and end", (read.data, read.eof), (vec![], true))
    }),
    v3("READ of more than the server's maximum returns what fits", |b| {
        let data = pattern(3 << 20);
        let fh = b.file("f")?;
        for (index, part) in data.chunks(1 << 16).enumerate() {
            b.c.write(&fh, (index as u64) << 16, 0, part)?;
        }
        b.c.commit(&fh, 0, 0)?;
        let read = b.c.read(&fh, 0, u32::MAX)?;
        ensure!(!read.data.is_empty(), "nothing is returned");
        same("the data", &read.data[..], &data[..read.data.len()])?;
        same("the end", read.eof, read.data.len() == data.len())
    }),
    v3("READ of FSINFO's maximum returns all of it", |b| {
        let max = b.c.fsinfo(&b.root)?.rtmax.min(1 << 20);
        let data = pattern(max as usize + 10);
        let fh = b.file("f")?;
        for (index, part) in data.chunks(1 << 16).enumerate() {
            b.c.write(&fh, (index as u64) << 16, 0, part)?;
        }
        let read = b.c.read(&fh, 0, max)?;
        same("the count", read.count, max)?;
        ensure!(read.data == data[..max as usize], "the data differs");
        same("the end", read.eof, false)
    }),
    v3("READ at odd offsets and lengths returns the right bytes", |b| {
        let data = pattern(40_000);
        let fh = b.file_with("f", &data)?;
        for (offset, length) in
            [(1, 1), (3, 4095), (4095, 2), (4097, 8191), (39_999, 1), (12_345, 6789)]
        {
            let read = b.c.read(&fh, offset as u64, length as u32)?;
            ensure!(read.data == data[offset..offset + length], "the bytes at {offset} differ");
        }
        Ok(())
    }),
    v3("READ of a hole returns zeros", |b| {
        let fh = b.file("f")?;
        b.c.write(&fh, 1_000_000, 2, b"end")?;
        let read = b.c.read(&fh, 500_000, 1000)?;
        same("data and end", (read.data, read.eof), (vec![0; 1000], false))
    }),
    v3("READ across the border of a hole returns both parts", |b| {
        let fh = b.file("f")?;
        b.c.write(&fh, 8190, 2, b"data")?;
        let read = b.c.read(&fh, 8188, 100)?;
        same("the data", read.data, b"\0\0data".to_vec())
    }),
    v3("READ beyond four gigabytes returns what was written there", |b| {
        let fh = b.file("f")?;
        let offset = (5 << 30) + 3;
        b.c.write(&fh, offset, 2, b"far")?;
        let read = b.c.read(&fh, offset, 10)?;
        same("data and end", (read.data, read.eof), (b"far".to_vec(), true))
    }),
    v3("READ of a directory fails", |b| {
        let dir = b.dir.clone();
        refused_as(&[ISDIR, INVAL], b.c.read(&dir, 0, 100))
    }),
    v3("READ of a symbolic link fails with INVAL", |b| {
        let fh = b.link_to("l", "target")?;
        refused(INVAL, b.c.read(&fh, 0, 100))
    }),
    v3("READ of a named pipe fails with INVAL and does not hang", |b| {
        let dir = b.dir.clone();
        let made = b.c.mknod(&dir, "p", kind::FIFO, Sattr::mode(0o666), (0, 0))?;
        let fh = made.fh.unwrap_or_default();
        refused(INVAL, b.c.read(&fh, 0, 100))
    }),
    v3("READ without the right fails with ACCES", |b| {
        let fh = b.file_with_mode("f", 0o600)?;
        refused(ACCESS, b.user(USER)?.read(&fh, 0, 100))
    }),
    v3("READ with the right of others succeeds", |b| {
        let fh = b.file_with("f", b"hello")?;
        same("the data", b.user(USER)?.read(&fh, 0, 100)?.data, b"hello".to_vec())
    }),
    v3("READ with the right of a second group succeeds", |b| {
        let fh = b.file_with("f", b"hello")?;
        b.c.setattr(&fh, Sattr { mode: Some(0o640), ..Sattr::owner(0, 4711) }, None)?;
        let mut user = b.client(Auth::Sys { uid: USER, gid: USER, gids: vec![1, 2, 4711] })?;
        same("the data", user.read(&fh, 0, 100)?.data, b"hello".to_vec())
    }),
    v3("READ by the owner succeeds whatever the mode", |b| {
        let fh = b.file_with("f", b"hello")?;
        b.c.setattr(&fh, Sattr { mode: Some(0), ..Sattr::owner(USER, USER) }, None)?;
        same("the data", b.user(USER)?.read(&fh, 0, 100)?.data, b"hello".to_vec())
    }),
    v3("READ with the right to execute alone succeeds", |b| {
        let fh = b.file_with("f", b"hello")?;
        b.c.setattr(&fh, Sattr::mode(0o711), None)?;
        // RFC 1813 section 4.4: to execute a program, a client must be able to read it.
        same("the data", b.user(USER)?.read(&fh, 0, 100)?.data, b"hello".to_vec())
    }),
    v3("READ after the right was taken away fails with ACCES", |b| {
        let fh = b.file_with("f", b"hello")?;
        let mut user = b.user(USER)?;
        user.read(&fh, 0, 100)?;
        b.c.setattr(&fh, Sattr::mode(0o600), None)?;
        refused(ACCESS, user.read(&fh, 0, 100))
    }),
    v3("two connections read what a third has written", |b| {
        let fh = b.file("f")?;
        b.user(0)?.write(&fh, 0, 0, b"hello")?;
        for _ in 0..2 {
            same("the data", b.user(0)?.read(&fh, 0, 100)?.data, b"hello".to_vec())?;
        }
        Ok(())
    }),
];
