//! Cases of LOCK, LOCKT and LOCKU.

use anyhow::{Result, bail, ensure};

use super::v41;
use crate::bench::{Bench, refusal, same};
use crate::nfs4::callback::Callback;
use crate::nfs4::ops::{self, How, Locker, Op, lock_type, share};
use crate::nfs4::session::Wish;
use crate::nfs4::{Body, Session, StateId};
use crate::status::{
    BAD_RANGE, BAD_STATEID, DENIED, INVAL, LOCK_NOTSUPP, LOCK_RANGE, LOCKS_HELD, NO_GRACE,
    OLD_STATEID, OPENMODE, RECLAIM_BAD,
};
use crate::suite::Case;

const READ: u32 = lock_type::READ;
const WRITE: u32 = lock_type::WRITE;
const ALL: u64 = u64::MAX;

/// A client with an open file, and the locks of one owner.
struct Holder {
    s: Session,
    open: StateId,
    fh: Vec<u8>,
    owner: Vec<u8>,
    locks: Option<StateId>,
}

impl Holder {
    /// Opens the file `f` with a new client.
    fn new(b: &mut Bench, owner: &str) -> Result<Self> {
        let mut s = b.session()?;
        let (open, fh) = s.opened("f")?;
        Ok(Self { s, open, fh, owner: owner.into(), locks: None })
    }

    fn lock_op(&self, kind: u32, offset: u64, length: u64) -> Op {
        let locker = match self.locks {
            Some(locks) => Locker::Known(locks),
            None => Locker::New(self.open, self.owner.clone()),
        };
        ops::lock(kind, false, offset, length, &locker)
    }

    fn lock(&mut self, kind: u32, offset: u64, length: u64) -> Result<StateId> {
        let op = self.lock_op(kind, offset, length);
        let state = self.s.ok(&[ops::putfh(&self.fh), op])?.state(1)?;
        self.locks = Some(state);
        Ok(state)
    }

    fn unlock(&mut self, offset: u64, length: u64) -> Result<StateId> {
        let Some(locks) = self.locks else { bail!("there are no locks") };
        let op = ops::locku(WRITE, locks, offset, length);
        let state = self.s.ok(&[ops::putfh(&self.fh), op])?.state(1)?;
        self.locks = Some(state);
        Ok(state)
    }

    fn refuses(&mut self, statuses: &[u32], op: Op) -> Result<()> {
        self.s.fails(statuses, &[ops::putfh(&self.fh), op]).map(drop)
    }

    /// Checks that a lock is denied. Returns the conflicting lock.
    fn denied(&mut self, kind: u32, offset: u64, length: u64) -> Result<(u64, u64, u32)> {
        let op = self.lock_op(kind, offset, length);
        let reply = self.s.fails(&[DENIED], &[ops::putfh(&self.fh), op])?;
        match reply.body(1)? {
            Body::Denied { offset, length, kind, .. } => Ok((*offset, *length, *kind)),
            other => bail!("{other:?} is no lock"),
        }
    }

    /// Tests whether a lock conflicts with another. Returns the status of LOCKT.
    fn test(&mut self, kind: u32, offset: u64, length: u64) -> Result<u32> {
        let op = ops::lockt(kind, offset, length, &self.owner);
        Ok(self.s.run(&[ops::putfh(&self.fh), op])?.status)
    }
}

/// Returns two clients that have the same file open.
fn two(b: &mut Bench) -> Result<(Holder, Holder)> {
    Ok((Holder::new(b, "one")?, Holder::new(b, "two")?))
}

/// Takes a lock, and requests a lock of another owner. Checks that the second lock is granted if
/// `wanted` is true, and denied otherwise.
fn second(
    b: &mut Bench,
    first: (u32, u64, u64),
    other: (u32, u64, u64),
    wanted: bool,
) -> Result<()> {
    let (mut one, mut two) = two(b)?;
    one.lock(first.0, first.1, first.2)?;
    match wanted {
        true => two.lock(other.0, other.1, other.2).map(drop),
        false => {
            same("the lock", two.denied(other.0, other.1, other.2)?, (first.1, first.2, first.0))
        }
    }
}

/// Checks that LOCK, LOCKT and LOCKU refuse an invalid range.
fn bad_range(b: &mut Bench, offset: u64, length: u64) -> Result<()> {
    let mut one = Holder::new(b, "one")?;
    let statuses = [INVAL, BAD_RANGE];
    let op = one.lock_op(READ, offset, length);
    one.refuses(&statuses, op)?;
    one.refuses(&statuses, ops::lockt(READ, offset, length, b"two"))?;
    let state = one.lock(READ, 0, 10)?;
    one.refuses(&statuses, ops::locku(READ, state, offset, length))
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("LOCK by a new owner returns a state id", |b| {
        let mut one = Holder::new(b, "one")?;
        let state = one.lock(WRITE, 0, 10)?;
        same("the number", state.seqid, 1)?;
        ensure!(state.other != one.open.other, "it is the state id of the open");
        Ok(())
    }),
    v41("LOCK by a known owner raises the number", |b| {
        let mut one = Holder::new(b, "one")?;
        let first = one.lock(WRITE, 0, 10)?;
        same("the state id", one.lock(WRITE, 20, 10)?, first.at(first.seqid + 1))
    }),
    v41("shared locks go together", |b| second(b, (READ, 0, 10), (READ, 5, 10), true)),
    v41("a lock beside another is granted", |b| second(b, (WRITE, 0, 10), (WRITE, 10, 10), true)),
    v41("an exclusive lock stands against an exclusive one", |b| {
        second(b, (WRITE, 0, 10), (WRITE, 9, 1), false)
    }),
    v41("an exclusive lock stands against a shared one", |b| {
        second(b, (WRITE, 0, 10), (READ, 0, 1), false)
    }),
    v41("a shared lock stands against an exclusive one", |b| {
        second(b, (READ, 5, 10), (WRITE, 0, 6), false)
    }),
    v41("a lock to the end stands against one far behind", |b| {
        second(b, (WRITE, 100, ALL), (READ, 1 << 40, 1), false)
    }),
    v41("a lock to the end leaves the bytes before it alone", |b| {
        second(b, (WRITE, 100, ALL), (WRITE, 0, 100), true)
    }),
    v41("a lock of the last byte is possible", |b| {
        let mut one = Holder::new(b, "one")?;
        let op = one.lock_op(WRITE, u64::MAX - 1, 1);
        let reply = one.s.run(&[ops::putfh(&one.fh), op])?;
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[BAD_RANGE, INVAL], reply.all_ok()).map(drop),
        }
    }),
    v41("LOCKT says who stands against a lock", |b| {
        let (mut one, mut two) = two(b)?;
        one.lock(WRITE, 5, 10)?;
        let op = ops::lockt(READ, 0, 6, b"two");
        let reply = two.s.fails(&[DENIED], &[ops::putfh(&two.fh), op])?;
        let Body::Denied { offset, length, kind, owner } = reply.body(1)?.clone() else {
            bail!("no lock")
        };
        let got = (offset, length, kind, &owner[..]);
        same("the lock", got, (5, 10, WRITE, &b"one"[..]))
    }),
    v41("LOCKT of a free range succeeds and locks nothing", |b| {
        let (mut one, mut two) = two(b)?;
        same("the status", one.test(WRITE, 0, 10)?, 0)?;
        two.lock(WRITE, 0, 10).map(drop)
    }),
    v41("LOCKT does not see the locks of its own owner", |b| {
        let mut one = Holder::new(b, "one")?;
        one.lock(WRITE, 0, 10)?;
        same("the status", one.test(WRITE, 0, 10)?, 0)
    }),
    v41("LOCKT needs no open", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        s.ok(&[ops::putfh(&fh), ops::lockt(READ, 0, 10, b"o")])?;
        Ok(())
    }),
    v41("LOCKU frees the range and raises the number", |b| {
        let (mut one, mut two) = two(b)?;
        let state = one.lock(WRITE, 0, 10)?;
        same("the state id", one.unlock(0, 10)?, state.at(state.seqid + 1))?;
        two.lock(WRITE, 0, 10).map(drop)
    }),
    v41("LOCKU in the middle leaves both ends locked", |b| {
        let (mut one, mut two) = two(b)?;
        one.lock(WRITE, 0, 30)?;
        let op = match one.locks {
            Some(locks) => ops::locku(WRITE, locks, 10, 10),
            None => bail!("there are no locks"),
        };
        let reply = one.s.run(&[ops::putfh(&one.fh), op])?;
        if reply.status != 0 {
            return refusal(&[LOCK_RANGE], reply.all_ok()).map(drop);
        }
        same("before", two.test(WRITE, 9, 1)?, DENIED)?;
        same("inside", two.test(WRITE, 10, 10)?, 0)?;
        same("behind", two.test(WRITE, 20, 1)?, DENIED)
    }),
    v41("LOCKU of a range that is not locked succeeds", |b| {
        let mut one = Holder::new(b, "one")?;
        one.lock(WRITE, 0, 10)?;
        one.unlock(100, 10).map(drop)
    }),
    v41("LOCKU of everything frees all locks", |b| {
        let (mut one, mut two) = two(b)?;
        one.lock(WRITE, 0, 10)?;
        one.lock(WRITE, 100, 10)?;
        one.unlock(0, ALL)?;
        two.lock(WRITE, 0, ALL).map(drop)
    }),
    v41("an owner makes its exclusive lock shared", |b| {
        let (mut one, mut two) = two(b)?;
        one.lock(WRITE, 0, 10)?;
        let op = one.lock_op(READ, 0, 10);
        let reply = one.s.run(&[ops::putfh(&one.fh), op])?;
        if reply.status != 0 {
            return refusal(&[LOCK_NOTSUPP, LOCK_RANGE], reply.all_ok()).map(drop);
        }
        two.lock(READ, 0, 10).map(drop)
    }),
    v41("an owner makes its shared lock exclusive", |b| {
        let (mut one, mut two) = two(b)?;
        one.lock(READ, 0, 10)?;
        one.lock(WRITE, 0, 10)?;
        two.denied(READ, 0, 1).map(drop)
    }),
    v41("two owners of one client exclude each other", |b| {
        let mut one = Holder::new(b, "one")?;
        one.lock(WRITE, 0, 10)?;
        let locker = Locker::New(one.open, b"two".to_vec());
        one.refuses(&[DENIED], ops::lock(WRITE, false, 0, 10, &locker))
    }),
    v41("the same owner name of two clients is two owners", |b| {
        let (mut one, mut two) = (Holder::new(b, "same")?, Holder::new(b, "same")?);
        one.lock(WRITE, 0, 10)?;
        two.denied(WRITE, 0, 10).map(drop)
    }),
    v41("locks of two files do not meet", |b| {
        let mut one = Holder::new(b, "one")?;
        one.lock(WRITE, 0, ALL)?;
        let mut s = b.session()?;
        let (open, fh) = s.opened("g")?;
        let lock = ops::lock(WRITE, false, 0, ALL, &Locker::New(open, b"two".to_vec()));
        s.ok(&[ops::putfh(&fh), lock])?;
        Ok(())
    }),
    v41("a range without bytes is refused", |b| bad_range(b, 10, 0)),
    v41("a range that wraps around is refused", |b| bad_range(b, u64::MAX - 5, 100)),
    v41("an exclusive lock with an open for reading fails with OPENMODE", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let access = share::READ | share::WANT_NONE;
        let (opened, fh) = s.open("o", (access, 0), &How::Open, "f")?;
        let lock = ops::lock(WRITE, false, 0, 10, &Locker::New(opened.state, b"l".to_vec()));
        s.fails(&[OPENMODE], &[ops::putfh(&fh), lock]).map(drop)
    }),
    v41("LOCK with a wrong open fails with BAD_STATEID", |b| {
        let mut one = Holder::new(b, "one")?;
        let statuses = [BAD_STATEID, crate::status::STALE_STATEID];
        for state in [StateId::UNKNOWN, StateId::ANONYMOUS] {
            let locker = Locker::New(state, b"l".to_vec());
            one.refuses(&statuses, ops::lock(WRITE, false, 0, 10, &locker))?;
        }
        Ok(())
    }),
    v41("LOCK with the open where the locks belong fails with BAD_STATEID", |b| {
        let mut one = Holder::new(b, "one")?;
        let lock = ops::lock(WRITE, false, 0, 10, &Locker::Known(one.open));
        one.refuses(&[BAD_STATEID], lock)
    }),
    v41("LOCK and LOCKU with an old number fail with OLD_STATEID", |b| {
        let mut one = Holder::new(b, "one")?;
        let old = one.lock(WRITE, 0, 10)?;
        one.lock(WRITE, 20, 10)?;
        let lock = ops::lock(WRITE, false, 40, 10, &Locker::Known(old));
        one.refuses(&[OLD_STATEID], lock)?;
        one.refuses(&[OLD_STATEID], ops::locku(WRITE, old, 0, 10))
    }),
    v41("LOCKU with a wrong state id fails with BAD_STATEID", |b| {
        let mut one = Holder::new(b, "one")?;
        one.lock(WRITE, 0, 10)?;
        let open = one.open;
        one.refuses(&[BAD_STATEID], ops::locku(WRITE, open, 0, 10))?;
        one.refuses(&[BAD_STATEID], ops::locku(WRITE, StateId::ANONYMOUS, 0, 10))
    }),
    v41("LOCK of an unknown kind fails with BADXDR", |b| {
        let mut one = Holder::new(b, "one")?;
        let op = one.lock_op(9, 0, 10);
        one.refuses(&[crate::status::BADXDR, INVAL], op)
    }),
    v41("a reclaim outside of the grace period fails with NO_GRACE", |b| {
        let mut one = Holder::new(b, "one")?;
        let locker = Locker::New(one.open, b"one".to_vec());
        one.refuses(&[NO_GRACE, RECLAIM_BAD], ops::lock(WRITE, true, 0, 10, &locker))
    }),
    v41("CLOSE with locks fails with LOCKS_HELD or frees them", |b| {
        let (mut one, mut two) = two(b)?;
        one.lock(WRITE, 0, 10)?;
        let reply = one.s.run(&[ops::putfh(&one.fh), ops::close(one.open)])?;
        match reply.status {
            0 => two.lock(WRITE, 0, 10).map(drop),
            _ => refusal(&[LOCKS_HELD], reply.all_ok()).map(drop),
        }
    }),
    v41("CLOSE after LOCKU succeeds and ends the state of the locks", |b| {
        let mut one = Holder::new(b, "one")?;
        one.lock(WRITE, 0, 10)?;
        let state = one.unlock(0, 10)?;
        one.s.ok(&[ops::putfh(&one.fh), ops::close(one.open)])?;
        one.refuses(&[BAD_STATEID], ops::lock(READ, false, 0, 1, &Locker::Known(state)))
    }),
    v41("READ and WRITE with the state id of locks are served", |b| {
        let mut one = Holder::new(b, "one")?;
        let state = one.lock(WRITE, 0, 10)?;
        let all = [ops::putfh(&one.fh), ops::write(state, 0, 2, b"x"), ops::read(state, 0, 9)];
        same("the data", one.s.ok(&all)?.data(2)?.1, b"x")
    }),
    v41("locks of NFS do not stand against READ and WRITE of others", |b| {
        let (mut one, mut two) = two(b)?;
        one.lock(WRITE, 0, 10)?;
        let write = ops::write(two.open, 0, 2, b"x");
        two.s.ok(&[ops::putfh(&two.fh), write, ops::read(two.open, 0, 1)])?;
        Ok(())
    }),
    v41("a new instance of a client frees the locks of the old one", |b| {
        let wish = b.wish();
        let mut old = b.session_of(&wish)?;
        let (open, fh) = old.opened("f")?;
        let lock = ops::lock(WRITE, false, 0, 10, &Locker::New(open, b"o".to_vec()));
        old.ok(&[ops::putfh(&fh), lock])?;
        let new = Wish { verifier: *b"restart!", ..wish };
        let _new = b.session_of(&new)?;
        Holder::new(b, "other")?.lock(WRITE, 0, 10).map(drop)
    }),
    v41("a client that waits for a lock is denied and may ask again", |b| {
        let (mut one, mut two) = two(b)?;
        one.lock(WRITE, 0, 10)?;
        two.denied(lock_type::WRITEW, 0, 10)?;
        one.unlock(0, 10)?;
        two.lock(lock_type::WRITEW, 0, 10).map(drop)
    }),
    v41("a client that waits for a lock is told when it is free, if the open said so", |b| {
        let (mut one, mut two) = two(b)?;
        two.s.file("g", b"")?;
        let (opened, _) = two.s.open("o", (share::BOTH, 0), &How::Open, "g")?;
        if opened.flags & 0x20 == 0 {
            return Err(crate::suite::Skip("the server does not notify of locks".into()).into());
        }
        one.lock(WRITE, 0, 10)?;
        two.denied(lock_type::WRITEW, 0, 10)?;
        one.unlock(0, 10)?;
        let told = two.s.callback()?;
        let is_told = matches!(&told[..], [Callback::NotifyLock { fh, .. }] if *fh == two.fh);
        ensure!(is_told, "the callback is {told:?}");
        two.lock(lock_type::WRITEW, 0, 10).map(drop)
    }),
    v41("the current state id stands for the lock before it", |b| {
        let mut one = Holder::new(b, "one")?;
        let lock = one.lock_op(WRITE, 0, 10);
        let now = StateId::CURRENT;
        let all = [ops::putfh(&one.fh), lock, ops::write(now, 0, 2, b"x")];
        one.s.ok(&[&all[..], &[ops::locku(WRITE, now, 0, 10)]].concat())?;
        Ok(())
    }),
    v41("a thousand locks of one owner are kept apart", |b| {
        let (mut one, mut two) = two(b)?;
        for index in 0..1000 {
            one.lock(WRITE, index * 10, 5)?;
        }
        same("locked", two.test(WRITE, 5002, 1)?, DENIED)?;
        same("free", two.test(WRITE, 5006, 1)?, 0)?;
        one.unlock(0, ALL).map(drop)
    }),
];
