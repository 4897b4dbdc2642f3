//! Cases of READ, WRITE and COMMIT of version 4.

use anyhow::{Result, bail, ensure};

use super::{as_user, v41};
use crate::bench::{Bench, pattern, refusal, same};
use crate::nfs4::{Body, Session, Set, StateId, ops};
use crate::status::{
    ACCESS, BAD_STATEID, BADXDR, FBIG, INVAL, ISDIR, ROFS, STALE_STATEID, SYMLINK, WRONG_TYPE,
};
use crate::suite::Case;
use crate::xdr::Put;

const ANONYMOUS: StateId = StateId::ANONYMOUS;

/// Reads a range of a file of five bytes. Checks the data and the end-of-file flag.
fn reads(b: &mut Bench, at: (u64, u32), wanted: (&[u8], bool)) -> Result<()> {
    let mut s = b.session()?;
    let fh = s.file("f", b"hello")?;
    let reply = s.ok(&[ops::putfh(&fh), ops::read(ANONYMOUS, at.0, at.1)])?;
    let (eof, data) = reply.data(1)?;
    same("data and end", (data, eof), wanted)
}

/// Writes data. Returns the count, the stability and the verifier in the reply.
fn write(
    s: &mut Session,
    fh: &[u8],
    state: StateId,
    at: (u64, u32),
    data: &[u8],
) -> Result<(u32, u32, [u8; 8])> {
    let reply = s.ok(&[ops::putfh(fh), ops::write(state, at.0, at.1, data)])?;
    match reply.body(1)? {
        Body::Written { count, committed, verifier } => Ok((*count, *committed, *verifier)),
        other => bail!("{other:?} is no result of WRITE"),
    }
}

fn read_all(s: &mut Session, fh: &[u8]) -> Result<Vec<u8>> {
    let reply = s.ok(&[ops::putfh(fh), ops::read(ANONYMOUS, 0, 65_536)])?;
    Ok(reply.data(1)?.1.to_vec())
}

/// Creates an object that is not a regular file. Checks that READ, WRITE and COMMIT of it fail.
fn no_file(b: &mut Bench, kind: Put, statuses: &[u32]) -> Result<()> {
    let mut s = b.session()?;
    let create = ops::create(kind, "x", &Set::new().mode(0o666));
    let fh = s.ok(&[s.dir(), create, ops::getfh()])?.fh(2)?;
    s.fails(statuses, &[ops::putfh(&fh), ops::read(ANONYMOUS, 0, 1)])?;
    s.fails(statuses, &[ops::putfh(&fh), ops::write(ANONYMOUS, 0, 2, b"x")])?;
    s.fails(statuses, &[ops::putfh(&fh), ops::commit(0, 0)]).map(drop)
}

/// Calls an operation of another user on a file with this mode, without an open. Checks that it
/// fails with one of the statuses, or that it succeeds if there are none.
fn user(b: &mut Bench, mode: u32, op: ops::Op, statuses: &[u32]) -> Result<()> {
    let (_root, mut user, fh) = as_user(b, mode)?;
    match statuses {
        [] => user.ok(&[ops::putfh(&fh), op]).map(drop).map_err(Into::into),
        _ => user.fails(statuses, &[ops::putfh(&fh), op]).map(drop),
    }
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("READ of more than the file returns all and the end", |b| {
        reads(b, (0, 100), (b"hello", true))
    }),
    v41("READ of exactly the file returns the end", |b| reads(b, (0, 5), (b"hello", true))),
    v41("READ of a part does not return the end", |b| reads(b, (1, 3), (b"ell", false))),
    v41("READ at the end returns nothing and the end", |b| reads(b, (5, 3), (b"", true))),
    v41("READ behind the end returns nothing and the end", |b| reads(b, (1 << 40, 3), (b"", true))),
    v41("READ of no bytes returns no bytes", |b| reads(b, (0, 0), (b"", false))),
    v41("READ at the largest offset returns nothing or fails", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let reply = s.run(&[ops::putfh(&fh), ops::read(ANONYMOUS, u64::MAX, 5)])?;
        match reply.status {
            0 => same("data and end", reply.data(1)?, (true, &b""[..])),
            _ => refusal(&[INVAL], reply.all_ok()).map(drop),
        }
    }),
    v41("READ with the state id of an open", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        write(&mut s, &fh, state, (0, 2), b"hello")?;
        let reply = s.ok(&[ops::putfh(&fh), ops::read(state, 0, 9)])?;
        same("the data", reply.data(1)?.1, b"hello")
    }),
    v41("READ with the state id that passes by locks", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let reply = s.ok(&[ops::putfh(&fh), ops::read(StateId::BYPASS, 0, 9)])?;
        same("the data", reply.data(1)?.1, b"hello")
    }),
    v41("READ and WRITE with special state ids that do not exist fail with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        for state in [ANONYMOUS.at(7), StateId::BYPASS.at(7), StateId::INVALID] {
            s.fails(&[BAD_STATEID], &[ops::putfh(&fh), ops::read(state, 0, 1)])?;
            s.fails(&[BAD_STATEID], &[ops::putfh(&fh), ops::write(state, 0, 2, b"x")])?;
        }
        Ok(())
    }),
    v41("READ and WRITE with a state id that no server made fail", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let state = StateId::UNKNOWN;
        let statuses = [BAD_STATEID, STALE_STATEID];
        s.fails(&statuses, &[ops::putfh(&fh), ops::read(state, 0, 1)])?;
        s.fails(&statuses, &[ops::putfh(&fh), ops::write(state, 0, 2, b"x")]).map(drop)
    }),
    v41("READ and WRITE of 256 KiB at odd places keep the data", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let data = pattern(256 << 10);
        let (count, ..) = write(&mut s, &fh, state, (3, 0), &data)?;
        same("the count", count as usize, data.len())?;
        let reply = s.ok(&[ops::putfh(&fh), ops::read(state, 3, 256 << 10)])?;
        let found = reply.data(1)?.1;
        ensure!(!found.is_empty() && *found == data[..found.len()], "the data differs");
        Ok(())
    }),
    v41("two READs in one compound return both parts", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let ops = [ops::putfh(&fh), ops::read(ANONYMOUS, 0, 2), ops::read(ANONYMOUS, 2, 9)];
        let reply = s.ok(&ops)?;
        same("the parts", (reply.data(1)?.1, reply.data(2)?.1), (&b"he"[..], &b"llo"[..]))
    }),
    v41("a WRITE and a READ in one compound see each other", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let write = ops::write(ANONYMOUS, 1, 0, b"ipp");
        let reply = s.ok(&[ops::putfh(&fh), write, ops::read(ANONYMOUS, 0, 9)])?;
        same("the data", reply.data(2)?.1, b"hippo")
    }),
    v41("READ of a hole returns zeros", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        write(&mut s, &fh, state, (100_000, 2), b"end")?;
        let reply = s.ok(&[ops::putfh(&fh), ops::read(state, 50_000, 100)])?;
        same("the data", reply.data(1)?, (false, &[0; 100][..]))
    }),
    v41("WRITE FILE_SYNC is stable at once", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let (count, committed, _) = write(&mut s, &fh, state, (0, 2), b"hello")?;
        same("count and stability", (count, committed), (5, 2))
    }),
    v41("WRITE DATA_SYNC is at least that stable", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let (_, committed, _) = write(&mut s, &fh, state, (0, 1), b"hello")?;
        ensure!(committed >= 1, "the stability is {committed}");
        Ok(())
    }),
    v41("COMMIT returns the verifier of the WRITE before it", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let (.., verifier) = write(&mut s, &fh, state, (0, 0), b"hello")?;
        let reply = s.ok(&[ops::putfh(&fh), ops::commit(0, 0)])?;
        same("the verifier", reply.body(1)?, &Body::Verifier(verifier))
    }),
    v41("WRITE with an unknown stability fails with BADXDR", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.fails(&[BADXDR, INVAL], &[ops::putfh(&fh), ops::write(state, 0, 9, b"x")]).map(drop)
    }),
    v41("WRITE of no bytes succeeds and changes nothing", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let (count, ..) = write(&mut s, &fh, state, (100, 2), b"")?;
        same("count and data", (count, read_all(&mut s, &fh)?), (0, vec![]))
    }),
    v41("WRITE behind the end leaves zeros between", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"he")?;
        write(&mut s, &fh, ANONYMOUS, (6, 2), b"x")?;
        same("the data", read_all(&mut s, &fh)?, b"he\0\0\0\0x".to_vec())
    }),
    v41("WRITE at the largest offset fails with FBIG", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        for offset in [u64::MAX - 10, u64::MAX] {
            let write = ops::write(state, offset, 2, b"xyz");
            s.fails(&[FBIG, INVAL], &[ops::putfh(&fh), write])?;
        }
        Ok(())
    }),
    v41("COMMIT of ranges behind the end succeeds", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        s.ok(&[ops::putfh(&fh), ops::commit(1 << 40, 100)])?;
        Ok(())
    }),
    v41("COMMIT of a range that wraps around fails with INVAL or is done", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let reply = s.run(&[ops::putfh(&fh), ops::commit(u64::MAX, 100)])?;
        ensure!(matches!(reply.status, 0 | INVAL), "the status is {}", reply.status);
        Ok(())
    }),
    v41("COMMIT of a directory fails", |b| {
        let mut s = b.session()?;
        s.fails(&[ISDIR, INVAL, WRONG_TYPE], &[s.dir(), ops::commit(0, 0)]).map(drop)
    }),
    v41("READ, WRITE and COMMIT of a symbolic link fail", |b| {
        no_file(b, Put::new().u32(5).opaque("t"), &[SYMLINK, INVAL, WRONG_TYPE])
    }),
    v41("READ, WRITE and COMMIT of a named pipe fail and do not hang", |b| {
        no_file(b, Put::new().u32(7), &[INVAL, WRONG_TYPE])
    }),
    v41("READ, WRITE and COMMIT of a socket fail", |b| {
        no_file(b, Put::new().u32(6), &[INVAL, WRONG_TYPE])
    }),
    v41("anonymous reading without the right fails with ACCESS", |b| {
        user(b, 0o602, ops::read(ANONYMOUS, 0, 1), &[ACCESS])
    }),
    v41("anonymous writing without the right fails with ACCESS", |b| {
        user(b, 0o604, ops::write(ANONYMOUS, 0, 2, b"x"), &[ACCESS])
    }),
    v41("anonymous reading with the right succeeds", |b| {
        user(b, 0o604, ops::read(ANONYMOUS, 0, 1), &[])
    }),
    v41("anonymous writing with the right succeeds", |b| {
        user(b, 0o602, ops::write(ANONYMOUS, 0, 2, b"x"), &[])
    }),
    v41("WRITE in the read-only export fails with ROFS", |b| {
        let path = b.read_only_path()?;
        let mut s = b.session()?;
        let fh = b.walk_from(&mut s, &format!("{path}/file"))?;
        s.ok(&[ops::putfh(&fh), ops::read(ANONYMOUS, 0, 1)])?;
        s.fails(&[ROFS], &[ops::putfh(&fh), ops::write(ANONYMOUS, 0, 2, b"x")])?;
        let set = ops::setattr(ANONYMOUS, &Set::new().mode(0o600));
        s.fails(&[ROFS], &[ops::putfh(&fh), set]).map(drop)
    }),
    v41("what version 4 writes is what version 3 reads", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        let dir = b.dir.clone();
        let fh = b.c.lookup(&dir, "f")?.fh;
        same("the data", b.c.read(&fh, 0, 9)?.data, b"hello".to_vec())?;
        b.c.write(&fh, 0, 0, b"J")?;
        let found = s.ok(&[s.dir(), ops::lookup("f"), ops::read(ANONYMOUS, 0, 9)])?;
        same("the data", found.data(2)?.1, b"Jello")
    }),
];
