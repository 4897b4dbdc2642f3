//! Cases of ALLOCATE, DEALLOCATE, SEEK, READ_PLUS and IO_ADVISE.

use anyhow::{Result, bail, ensure};

use super::v42;
use crate::bench::{Bench, refusal, same};
use crate::nfs4::attributes::{SIZE, SPACE_USED};
use crate::nfs4::ops::{self, How, Op, share};
use crate::nfs4::results::Part;
use crate::nfs4::{Body, Session, StateId};
use crate::status::{
    BAD_STATEID, BADXDR, FBIG, INVAL, ISDIR, NOSPC, NOTSUPP, NXIO, OPENMODE, STALE_STATEID,
    UNION_NOTSUPP, WRONG_TYPE,
};
use crate::suite::Case;

const DATA: u32 = 0;
const HOLE: u32 = 1;
const MIB: u64 = 1 << 20;

/// Creates a file of 3 MiB with data in the first and in the last MiB.
fn with_hole(s: &mut Session) -> Result<(StateId, Vec<u8>)> {
    let (state, fh) = s.opened("f")?;
    let data = vec![7; 256 << 10];
    for part in [0, 1, 2, 3, 8, 9, 10, 11] {
        let write = ops::write(state, part * (256 << 10), 2, &data);
        s.ok(&[ops::putfh(&fh), write])?;
    }
    Ok((state, fh))
}

fn seek(s: &mut Session, fh: &[u8], state: StateId, at: u64, what: u32) -> Result<(bool, u64)> {
    match s.ok(&[ops::putfh(fh), ops::seek(state, at, what)])?.body(1)? {
        Body::Found { eof, offset } => Ok((*eof, *offset)),
        other => bail!("{other:?} is no offset"),
    }
}

fn size(s: &mut Session, fh: &[u8]) -> Result<u64> {
    Ok(s.ok(&[ops::putfh(fh), ops::getattr(&[SIZE])])?.attrs(1)?.number(SIZE)?)
}

/// Checks that an operation with invalid state ids and ranges fails.
fn refuses(b: &mut Bench, op: impl Fn(StateId, u64, u64) -> Op) -> Result<()> {
    let mut s = b.session()?;
    let (state, fh) = s.opened("f")?;
    let wrong = StateId::UNKNOWN;
    s.fails(&[BAD_STATEID, STALE_STATEID], &[ops::putfh(&fh), op(wrong, 0, 10)])?;
    s.fails(&[INVAL, FBIG, NOSPC], &[ops::putfh(&fh), op(state, u64::MAX - 5, 100)])?;
    s.file("g", b"")?;
    let access = share::READ | share::WANT_NONE;
    let (opened, fh) = s.open("o", (access, 0), &How::Open, "g")?;
    s.fails(&[OPENMODE], &[ops::putfh(&fh), op(opened.state, 0, 10)])?;
    s.fails(&[ISDIR, WRONG_TYPE, INVAL], &[s.dir(), op(StateId::ANONYMOUS, 0, 10)]).map(drop)
}

/// Reads a range with READ_PLUS. Returns the end-of-file flag and the parts.
fn parts(s: &mut Session, fh: &[u8], at: (u64, u32)) -> Result<(bool, Vec<Part>)> {
    let op = ops::read_plus(StateId::ANONYMOUS, at.0, at.1);
    match s.ok(&[ops::putfh(fh), op])?.body(1)? {
        Body::Parts { eof, parts } => Ok((*eof, parts.clone())),
        other => bail!("{other:?} are no parts"),
    }
}

/// Combines the parts of a READ_PLUS to the bytes of the range.
fn whole(parts: &[Part], from: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (offset, length, data) in parts {
        ensure!(*offset == from + bytes.len() as u64, "there is a gap before {offset}");
        match data {
            Some(data) => bytes.extend_from_slice(data),
            None => bytes.resize(bytes.len() + usize::try_from(*length)?, 0),
        }
    }
    Ok(bytes)
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v42("ALLOCATE behind the end makes the file longer", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::allocate(state, 1000, 500)])?;
        same("the size", size(&mut s, &fh)?, 1500)
    }),
    v42("ALLOCATE leaves data as it is", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::write(state, 0, 2, b"hello")])?;
        s.ok(&[ops::putfh(&fh), ops::allocate(state, 0, 10)])?;
        let reply = s.ok(&[ops::putfh(&fh), ops::read(state, 0, 20)])?;
        same("the data", reply.data(1)?.1, b"hello\0\0\0\0\0")
    }),
    v42("ALLOCATE reserves space", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::allocate(state, 0, MIB)])?;
        let reply = s.ok(&[ops::putfh(&fh), ops::getattr(&[SPACE_USED])])?;
        let used = reply.attrs(1)?.number(SPACE_USED)?;
        ensure!(used >= MIB, "only {used} bytes are used");
        Ok(())
    }),
    v42("ALLOCATE with wrong arguments fails", |b| refuses(b, ops::allocate)),
    v42("DEALLOCATE makes zeros and keeps the size", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::write(state, 0, 2, &[7; 100])])?;
        s.ok(&[ops::putfh(&fh), ops::deallocate(state, 10, 20)])?;
        let mut wanted = [7; 100];
        wanted[10..30].fill(0);
        let reply = s.ok(&[ops::putfh(&fh), ops::read(state, 0, 200)])?;
        same("the data", reply.data(1)?.1, &wanted[..])
    }),
    v42("DEALLOCATE behind the end changes nothing", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::write(state, 0, 2, b"hello")])?;
        s.ok(&[ops::putfh(&fh), ops::deallocate(state, 100, 20)])?;
        same("the size", size(&mut s, &fh)?, 5)
    }),
    v42("DEALLOCATE gives space back", |b| {
        let mut s = b.session()?;
        let (state, fh) = with_hole(&mut s)?;
        let used = [ops::putfh(&fh), ops::commit(0, 0), ops::getattr(&[SPACE_USED])];
        let before = s.ok(&used)?.attrs(2)?.number(SPACE_USED)?;
        s.ok(&[ops::putfh(&fh), ops::deallocate(state, 0, MIB)])?;
        let after = s.ok(&used)?.attrs(2)?.number(SPACE_USED)?;
        ensure!(after < before, "{before} bytes become {after}");
        Ok(())
    }),
    v42("DEALLOCATE with wrong arguments fails", |b| refuses(b, ops::deallocate)),
    v42("SEEK finds the data and the hole of a sparse file", |b| {
        let mut s = b.session()?;
        let (state, fh) = with_hole(&mut s)?;
        s.ok(&[ops::putfh(&fh), ops::commit(0, 0)])?;
        same("data at the start", seek(&mut s, &fh, state, 0, DATA)?.1, 0)?;
        let (_, hole) = seek(&mut s, &fh, state, 0, HOLE)?;
        // A server may report only the hole at the end of the file.
        ensure!(hole == MIB || hole == 3 * MIB, "the hole is at {hole}");
        let (_, data) = seek(&mut s, &fh, state, MIB + 10, DATA)?;
        ensure!(data == 2 * MIB || data == MIB + 10, "the data is at {data}");
        Ok(())
    }),
    v42("SEEK for a hole finds the end of a file without holes", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::write(state, 0, 2, b"hello")])?;
        same("the hole", seek(&mut s, &fh, state, 0, HOLE)?.1, 5)
    }),
    v42("SEEK for data behind the last data finds the end", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let set = ops::setattr(state, &crate::nfs4::Set::new().size(MIB));
        s.ok(&[ops::putfh(&fh), set])?;
        let reply = s.run(&[ops::putfh(&fh), ops::seek(state, 0, DATA)])?;
        match (reply.status, reply.results.last().map(|last| &last.body)) {
            (0, Some(Body::Found { eof, .. })) => same("the end", *eof, true),
            _ => refusal(&[NXIO], reply.all_ok()).map(drop),
        }
    }),
    v42("SEEK behind the end fails with NXIO", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::write(state, 0, 2, b"hello")])?;
        s.fails(&[NXIO], &[ops::putfh(&fh), ops::seek(state, 100, DATA)])?;
        s.fails(&[NXIO], &[ops::putfh(&fh), ops::seek(state, 100, HOLE)]).map(drop)
    }),
    v42("SEEK for an unknown content fails", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let statuses = [UNION_NOTSUPP, BADXDR, INVAL, NOTSUPP];
        s.fails(&statuses, &[ops::putfh(&fh), ops::seek(state, 0, 9)]).map(drop)
    }),
    v42("SEEK with a wrong state id fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let wrong = StateId::UNKNOWN;
        let op = ops::seek(wrong, 0, DATA);
        s.fails(&[BAD_STATEID, STALE_STATEID], &[ops::putfh(&fh), op]).map(drop)
    }),
    v42("READ_PLUS of a small file returns its data and the end", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let (eof, parts) = parts(&mut s, &fh, (0, 100))?;
        same("data and end", (whole(&parts, 0)?, eof), (b"hello".to_vec(), true))
    }),
    v42("READ_PLUS of a part does not return the end", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let (eof, parts) = parts(&mut s, &fh, (1, 3))?;
        same("data and end", (whole(&parts, 1)?, eof), (b"ell".to_vec(), false))
    }),
    v42("READ_PLUS behind the end returns nothing and the end", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let (eof, parts) = parts(&mut s, &fh, (100, 10))?;
        let bytes: usize = parts.iter().map(|part| part.2.as_ref().map_or(1, Vec::len)).sum();
        same("bytes and end", (bytes, eof), (0, true))
    }),
    v42("READ_PLUS of a sparse file returns what READ returns", |b| {
        let mut s = b.session()?;
        let (state, fh) = with_hole(&mut s)?;
        for at in [0, MIB - 5000, 2 * MIB - 5000, 3 * MIB - 5000] {
            let (_, parts) = parts(&mut s, &fh, (at, 20_000))?;
            let bytes = whole(&parts, at)?;
            ensure!(!bytes.is_empty(), "nothing is returned at {at}");
            let count = u32::try_from(bytes.len())?;
            let reply = s.ok(&[ops::putfh(&fh), ops::read(state, at, count.min(20_000))])?;
            let read = reply.data(1)?.1;
            ensure!(bytes[..read.len()] == *read, "the data at {at} differs");
        }
        Ok(())
    }),
    v42("READ_PLUS returns what was just written into a hole", |b| {
        let mut s = b.session()?;
        let (state, fh) = with_hole(&mut s)?;
        s.ok(&[ops::putfh(&fh), ops::commit(0, 0)])?;
        parts(&mut s, &fh, (MIB, 20_000))?;
        s.ok(&[ops::putfh(&fh), ops::write(state, MIB + 8192, 0, b"unstable")])?;
        let (_, parts) = parts(&mut s, &fh, (MIB, 20_000))?;
        let mut wanted = vec![0; 20_000];
        wanted[8192..8200].copy_from_slice(b"unstable");
        ensure!(whole(&parts, MIB)? == wanted, "the bytes differ");
        Ok(())
    }),
    v42("READ_PLUS of a hole at the end returns the end", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let set = ops::setattr(state, &crate::nfs4::Set::new().size(MIB));
        s.ok(&[ops::putfh(&fh), set])?;
        let (eof, before) = parts(&mut s, &fh, (MIB - 20_000, 10_000))?;
        same("bytes and end", (whole(&before, MIB - 20_000)?.len(), eof), (10_000, false))?;
        let (eof, last) = parts(&mut s, &fh, (MIB - 10_000, 20_000))?;
        same("bytes and end", (whole(&last, MIB - 10_000)?.len(), eof), (10_000, true))
    }),
    v42("READ_PLUS two times in a compound returns both ranges", |b| {
        let mut s = b.session()?;
        let (_, fh) = with_hole(&mut s)?;
        let op = |at| ops::read_plus(StateId::ANONYMOUS, at, 20_000);
        let reply = s.ok(&[ops::putfh(&fh), op(MIB - 10_000), op(2 * MIB - 10_000)])?;
        for (index, from) in [(1, MIB - 10_000), (2, 2 * MIB - 10_000)] {
            let Body::Parts { parts, .. } = reply.body(index)? else { bail!("no parts") };
            let zeros = if index == 1 { 10_000..20_000 } else { 0..10_000 };
            let mut wanted = vec![7; 20_000];
            wanted[zeros].fill(0);
            ensure!(whole(parts, from)? == wanted, "the bytes at {from} differ");
        }
        Ok(())
    }),
    v42("READ_PLUS of a directory fails", |b| {
        let mut s = b.session()?;
        let op = ops::read_plus(StateId::ANONYMOUS, 0, 10);
        s.fails(&[ISDIR, INVAL, WRONG_TYPE], &[s.dir(), op]).map(drop)
    }),
    v42("IO_ADVISE returns a part of the hints", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let hints = [0, 1, 2, 5];
        let reply = s.run(&[ops::putfh(&fh), ops::io_advise(state, 0, 100, &hints)])?;
        match (reply.status, reply.results.last().map(|last| &last.body)) {
            (0, Some(Body::Bits(used))) => {
                ensure!(used.iter().all(|hint| hints.contains(hint)), "{used:?} are used");
                Ok(())
            }
            _ => refusal(&[NOTSUPP], reply.all_ok()).map(drop),
        }
    }),
    v42("IO_ADVISE with a wrong state id fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let wrong = StateId::UNKNOWN;
        let op = ops::io_advise(wrong, 0, 10, &[1]);
        s.fails(&[BAD_STATEID, STALE_STATEID, NOTSUPP], &[ops::putfh(&fh), op]).map(drop)
    }),
];
