//! Cases of share reservations and of OPEN_DOWNGRADE.

use anyhow::{Result, ensure};

use super::v41;
use crate::bench::{Bench, refusal, same};
use crate::nfs3::{self, Sattr};
use crate::nfs4::ops::{self, Claim, How, share};
use crate::nfs4::{Session, Set, StateId};
use crate::status::{
    ACCESS, BAD_STATEID, DELAY, INVAL, LOCKED, OLD_STATEID, OPENMODE, SHARE_DENIED,
};
use crate::suite::Case;

const NONE: u32 = 0;
const READ: u32 = share::READ;
const WRITE: u32 = share::WRITE;
const BOTH: u32 = share::BOTH;

/// Opens a file two times, by two owners of one client or of two clients. Returns the second
/// status.
fn second(b: &mut Bench, first: (u32, u32), second: (u32, u32), is_other: bool) -> Result<u32> {
    let mut one = b.session()?;
    one.file("f", b"data")?;
    one.open("first", (first.0 | share::WANT_NONE, first.1), &How::Open, "f")?;
    let access = second.0 | share::WANT_NONE;
    let claim = Claim::Name(b"f".to_vec());
    let op = ops::open(b"second", access, second.1, &How::Open, &claim);
    let mut two = b.session()?;
    let s = if is_other { &mut two } else { &mut one };
    Ok(s.run(&[s.dir(), op])?.status)
}

/// Checks that two opens conflict, by two owners of one client and by two clients.
fn conflict(b: &mut Bench, first: (u32, u32), other: (u32, u32)) -> Result<()> {
    same("the status of one client", second(b, first, other, false)?, SHARE_DENIED)?;
    let mut s = b.session()?;
    s.ok(&[s.dir(), ops::remove("f")])?;
    same("the status of two clients", second(b, first, other, true)?, SHARE_DENIED)
}

/// Checks that two opens do not conflict.
fn agree(b: &mut Bench, first: (u32, u32), other: (u32, u32)) -> Result<()> {
    same("the status", second(b, first, other, true)?, 0)
}

/// Opens a file for reading, and then for reading and writing. Checks that an OPEN_DOWNGRADE fails
/// with one of the statuses.
fn downgrade(b: &mut Bench, statuses: &[u32], change: impl Fn(StateId) -> ops::Op) -> Result<()> {
    let mut s = b.session()?;
    let (state, fh) = both_ways(&mut s)?;
    s.fails(statuses, &[ops::putfh(&fh), change(state)]).map(drop)
}

/// Creates a file that one owner has opened for reading, and then for reading and writing.
fn both_ways(s: &mut Session) -> Result<(StateId, Vec<u8>)> {
    s.file("f", b"data")?;
    s.open("o", (READ | share::WANT_NONE, NONE), &How::Open, "f")?;
    let (two, fh) = s.open("o", (BOTH | share::WANT_NONE, NONE), &How::Open, "f")?;
    Ok((two.state, fh))
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("an open that denies reading stands against one for reading", |b| {
        conflict(b, (WRITE, READ), (READ, NONE))
    }),
    v41("an open that denies writing stands against one for writing", |b| {
        conflict(b, (READ, WRITE), (WRITE, NONE))
    }),
    v41("an open that denies both stands against one for reading", |b| {
        conflict(b, (READ, BOTH), (READ, NONE))
    }),
    v41("an open that denies both stands against one for writing", |b| {
        conflict(b, (READ, BOTH), (WRITE, NONE))
    }),
    v41("an open that denies writing stands against one for both", |b| {
        conflict(b, (READ, WRITE), (BOTH, NONE))
    }),
    v41("an open for reading stands against one that denies reading", |b| {
        conflict(b, (READ, NONE), (WRITE, READ))
    }),
    v41("an open for writing stands against one that denies writing", |b| {
        conflict(b, (WRITE, NONE), (READ, WRITE))
    }),
    v41("an open for both stands against one that denies writing", |b| {
        conflict(b, (BOTH, NONE), (READ, WRITE))
    }),
    v41("opens that deny nothing go together", |b| agree(b, (BOTH, NONE), (BOTH, NONE))),
    v41("two opens for reading that deny writing go together", |b| {
        agree(b, (READ, WRITE), (READ, WRITE))
    }),
    v41("two opens for writing that deny reading go together", |b| {
        agree(b, (WRITE, READ), (WRITE, READ))
    }),
    v41("an open that denies reading leaves one for writing alone", |b| {
        agree(b, (WRITE, READ), (WRITE, NONE))
    }),
    v41("CLOSE gives up what the open denies", |b| {
        let mut one = b.session()?;
        one.file("f", b"")?;
        let (opened, fh) = one.open("o", (BOTH | share::WANT_NONE, BOTH), &How::Open, "f")?;
        one.ok(&[ops::putfh(&fh), ops::close(opened.state)])?;
        b.session()?.open("o", (BOTH | share::WANT_NONE, BOTH), &How::Open, "f")?;
        Ok(())
    }),
    v41("an owner does not stand against itself", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.open("o", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let claim = Claim::Name(b"f".to_vec());
        let op = ops::open(b"o", WRITE | share::WANT_NONE, NONE, &How::Open, &claim);
        let reply = s.run(&[s.dir(), op])?;
        match reply.status {
            0 => Ok(()),
            // In Linux, the first open of an owner also conflicts with the second open of the same
            // owner.
            _ => refusal(&[SHARE_DENIED], reply.all_ok()).map(drop),
        }
    }),
    v41("SHARE_DENIED comes before a file is emptied", |b| {
        let mut one = b.session()?;
        let fh = one.file("f", b"data")?;
        one.open("o", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let mut two = b.session()?;
        let how = How::Unchecked(Set::new().size(0));
        let claim = Claim::Name(b"f".to_vec());
        let op = ops::open(b"o", WRITE | share::WANT_NONE, NONE, &how, &claim);
        two.fails(&[SHARE_DENIED], &[two.dir(), op])?;
        let reply = two.ok(&[ops::putfh(&fh), ops::getattr(&[4])])?;
        same("the size", reply.attrs(1)?.number(4)?, 4)
    }),
    v41("anonymous writing fails with LOCKED while an open denies it", |b| {
        let mut one = b.session()?;
        let fh = one.file("f", b"data")?;
        one.open("o", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let write = ops::write(StateId::ANONYMOUS, 0, 2, b"x");
        b.session()?.fails(&[LOCKED, ACCESS], &[ops::putfh(&fh), write]).map(drop)
    }),
    v41("anonymous reading fails with LOCKED while an open denies it", |b| {
        let mut one = b.session()?;
        let fh = one.file("f", b"data")?;
        one.open("o", (WRITE | share::WANT_NONE, READ), &How::Open, "f")?;
        let read = ops::read(StateId::ANONYMOUS, 0, 1);
        b.session()?.fails(&[LOCKED, ACCESS], &[ops::putfh(&fh), read]).map(drop)
    }),
    v41("anonymous setting of the size fails with LOCKED while an open denies it", |b| {
        let mut one = b.session()?;
        let fh = one.file("f", b"data")?;
        one.open("o", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let set = ops::setattr(StateId::ANONYMOUS, &Set::new().size(1));
        let mut two = b.session()?;
        two.fails(&[LOCKED, ACCESS, SHARE_DENIED], &[ops::putfh(&fh), set])?;
        let reply = two.ok(&[ops::putfh(&fh), ops::getattr(&[4])])?;
        same("the size", reply.attrs(1)?.number(4)?, 4)
    }),
    v41("anonymous setting of the mode succeeds while an open denies writing", |b| {
        let mut one = b.session()?;
        let fh = one.file("f", b"data")?;
        one.open("o", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let set = ops::setattr(StateId::ANONYMOUS, &Set::new().mode(0o600));
        b.session()?.ok(&[ops::putfh(&fh), set])?;
        Ok(())
    }),
    v41("the size can be set under an open that denies writing to others", |b| {
        let mut s = b.session()?;
        s.file("f", b"data")?;
        let (opened, fh) = s.open("o", (BOTH | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let set = ops::setattr(opened.state, &Set::new().size(1));
        let reply = s.ok(&[ops::putfh(&fh), set, ops::getattr(&[4])])?;
        same("the size", reply.attrs(2)?.number(4)?, 1)
    }),
    v41("version 3 cannot set the size while an open denies writing", |b| {
        let mut one = b.session()?;
        one.file("f", b"data")?;
        one.open("o", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let dir = b.dir.clone();
        let fh = b.c.lookup(&dir, "f")?.fh;
        crate::bench::refused_as(&[ACCESS, DELAY], b.c.setattr(&fh, Sattr::size(1), None))?;
        same("the size", b.c.getattr(&fh)?.size, 4)
    }),
    v41("version 3 cannot empty a file by CREATE while an open denies writing", |b| {
        let mut one = b.session()?;
        one.file("f", b"data")?;
        one.open("o", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let dir = b.dir.clone();
        let fh = b.c.lookup(&dir, "f")?.fh;
        let created = b.c.create(&dir, "f", nfs3::How::Unchecked(Sattr::size(0)));
        crate::bench::refused_as(&[ACCESS, DELAY], created)?;
        same("the size", b.c.getattr(&fh)?.size, 4)
    }),
    v41("version 3 cannot write while an open denies it", |b| {
        let mut one = b.session()?;
        one.file("f", b"data")?;
        one.open("o", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        let dir = b.dir.clone();
        let fh = b.c.lookup(&dir, "f")?.fh;
        crate::bench::refused_as(&[ACCESS, DELAY], b.c.write(&fh, 0, 2, b"x"))
    }),
    v41("OPEN_DOWNGRADE gives access up and raises the number", |b| {
        let mut s = b.session()?;
        let (state, fh) = both_ways(&mut s)?;
        let less = s.ok(&[ops::putfh(&fh), ops::downgrade(state, READ, NONE)])?.state(1)?;
        same("the state id", less, state.at(state.seqid + 1))?;
        s.ok(&[ops::putfh(&fh), ops::read(less, 0, 4)])?;
        s.fails(&[OPENMODE], &[ops::putfh(&fh), ops::write(less, 0, 2, b"x")]).map(drop)
    }),
    v41("OPEN_DOWNGRADE lets others in", |b| {
        let mut s = b.session()?;
        let (_, fh) = both_ways(&mut s)?;
        let (state, _) = s.open("o", (READ | share::WANT_NONE, NONE), &How::Open, "f")?;
        s.ok(&[ops::putfh(&fh), ops::downgrade(state.state, READ, NONE)])?;
        b.session()?.open("p", (READ | share::WANT_NONE, WRITE), &How::Open, "f")?;
        Ok(())
    }),
    v41("OPEN_DOWNGRADE to nothing fails with INVAL", |b| {
        downgrade(b, &[INVAL], |state| ops::downgrade(state, 0, NONE))
    }),
    v41("OPEN_DOWNGRADE to more than the open has fails with INVAL", |b| {
        downgrade(b, &[INVAL], |state| ops::downgrade(state, BOTH, WRITE))
    }),
    v41("OPEN_DOWNGRADE with unknown bits fails with INVAL", |b| {
        downgrade(b, &[INVAL, crate::status::BADXDR], |state| ops::downgrade(state, READ, 8))
    }),
    v41("OPEN_DOWNGRADE with an old number fails with OLD_STATEID", |b| {
        downgrade(b, &[OLD_STATEID], |state| ops::downgrade(state.at(1), READ, NONE))
    }),
    v41("OPEN_DOWNGRADE with a wrong state id fails with BAD_STATEID", |b| {
        let wrong = StateId::UNKNOWN;
        let statuses = [BAD_STATEID, crate::status::STALE_STATEID];
        downgrade(b, &statuses, move |_| ops::downgrade(wrong, READ, NONE))
    }),
    v41("OPEN_DOWNGRADE to access that no open had fails with INVAL or is done", |b| {
        let mut s = b.session()?;
        s.file("f", b"data")?;
        let (opened, fh) = s.open("o", (BOTH | share::WANT_NONE, NONE), &How::Open, "f")?;
        let reply = s.run(&[ops::putfh(&fh), ops::downgrade(opened.state, READ, NONE)])?;
        ensure!(matches!(reply.status, 0 | INVAL), "the status is {}", reply.status);
        Ok(())
    }),
];
