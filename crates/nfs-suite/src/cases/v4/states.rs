//! Cases of TEST_STATEID and FREE_STATEID, and of operations such as those on layouts, which a
//! server need not support.

use anyhow::{Result, bail};

use super::v41;
use crate::bench::{Bench, refusal, same};
use crate::nfs4::ops::{self, Locker, Op, lock_type};
use crate::nfs4::{Body, Session, StateId};
use crate::status::{
    BAD_STATEID, BADIOMODE, BADLAYOUT, DIRDELEG_UNAVAIL, INVAL, LAYOUTUNAVAILABLE, LOCKS_HELD,
    NOENT, NOMATCHING_LAYOUT, NOTSUPP, OLD_STATEID, STALE_STATEID, TOOSMALL, UNKNOWN_LAYOUTTYPE,
};
use crate::suite::Case;

/// Returns the status of each state id.
fn test(s: &mut Session, states: &[StateId]) -> Result<Vec<u32>> {
    match s.ok(&[ops::test_stateid(states)])?.body(0)? {
        Body::Statuses(statuses) => Ok(statuses.clone()),
        other => bail!("{other:?} are no statuses"),
    }
}

/// Opens a file, and locks a range of it.
fn locked(s: &mut Session) -> Result<(StateId, StateId, Vec<u8>)> {
    let (open, fh) = s.opened("f")?;
    let locker = Locker::New(open, b"l".to_vec());
    let lock = ops::lock(lock_type::WRITE, false, 0, 10, &locker);
    let state = s.ok(&[ops::putfh(&fh), lock])?.state(1)?;
    Ok((open, state, fh))
}

/// Calls an operation that a server need not support. Checks that it fails with NOTSUPP or with one
/// of the other statuses.
fn lacks(b: &mut Bench, op: Op, others: &[u32]) -> Result<()> {
    let mut s = b.session()?;
    let fh = s.file("f", b"data")?;
    let reply = s.run(&[ops::putfh(&fh), op])?;
    refusal(&[&[NOTSUPP], others].concat(), reply.all_ok()).map(drop)
}

/// The number of the layout type for files.
const FILES: u32 = 1;

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("TEST_STATEID of an open and a lock returns OK", |b| {
        let mut s = b.session()?;
        let (open, lock, _) = locked(&mut s)?;
        same("the statuses", test(&mut s, &[open, lock])?, vec![0, 0])
    }),
    v41("TEST_STATEID of nothing returns nothing", |b| {
        same("the statuses", test(&mut b.session()?, &[])?, vec![])
    }),
    v41("TEST_STATEID of closed states returns BAD_STATEID", |b| {
        let mut s = b.session()?;
        let (open, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::close(open)])?;
        same("the statuses", test(&mut s, &[open])?, vec![BAD_STATEID])
    }),
    v41("TEST_STATEID of an old number returns OLD_STATEID", |b| {
        let mut s = b.session()?;
        let (_, lock, fh) = locked(&mut s)?;
        let op = ops::locku(lock_type::WRITE, lock, 0, 5);
        let new = s.ok(&[ops::putfh(&fh), op])?.state(1)?;
        same("the statuses", test(&mut s, &[lock, new])?, vec![OLD_STATEID, 0])
    }),
    v41("TEST_STATEID of special and wrong state ids returns BAD_STATEID", |b| {
        let mut s = b.session()?;
        let wrong = StateId::UNKNOWN;
        for state in [StateId::ANONYMOUS, StateId::BYPASS, StateId::INVALID, wrong] {
            let statuses = test(&mut s, &[state])?;
            let is_bad = matches!(statuses[..], [BAD_STATEID | STALE_STATEID]);
            anyhow::ensure!(is_bad, "{state:?} has the status {statuses:?}");
        }
        Ok(())
    }),
    v41("TEST_STATEID of another client's state returns BAD_STATEID", |b| {
        let mut one = b.session()?;
        let (open, _) = one.opened("f")?;
        same("the statuses", test(&mut b.session()?, &[open])?, vec![BAD_STATEID])
    }),
    v41("FREE_STATEID of an open fails with LOCKS_HELD", |b| {
        let mut s = b.session()?;
        let (open, _) = s.opened("f")?;
        s.fails(&[LOCKS_HELD], &[ops::free_stateid(open)]).map(drop)
    }),
    v41("FREE_STATEID of locks that are held fails with LOCKS_HELD", |b| {
        let mut s = b.session()?;
        let (_, lock, _) = locked(&mut s)?;
        s.fails(&[LOCKS_HELD], &[ops::free_stateid(lock)]).map(drop)
    }),
    v41("FREE_STATEID after LOCKU ends the state", |b| {
        let mut s = b.session()?;
        let (_, lock, fh) = locked(&mut s)?;
        let op = ops::locku(lock_type::WRITE, lock, 0, 10);
        let state = s.ok(&[ops::putfh(&fh), op])?.state(1)?;
        s.ok(&[ops::free_stateid(state)])?;
        same("the statuses", test(&mut s, &[state])?, vec![BAD_STATEID])
    }),
    v41("FREE_STATEID of special and wrong state ids fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let wrong = StateId::UNKNOWN;
        for state in [StateId::ANONYMOUS, StateId::BYPASS, wrong] {
            s.fails(&[BAD_STATEID, STALE_STATEID], &[ops::free_stateid(state)])?;
        }
        Ok(())
    }),
    v41("FREE_STATEID of another client's state fails with BAD_STATEID", |b| {
        let mut one = b.session()?;
        let (_, lock, _) = locked(&mut one)?;
        b.session()?.fails(&[BAD_STATEID], &[ops::free_stateid(lock)])?;
        same("the statuses", test(&mut one, &[lock])?, vec![0])
    }),
    v41("LAYOUTGET of a server without layouts fails", |b| {
        let op = ops::layoutget(FILES, StateId::ANONYMOUS);
        lacks(b, op, &[LAYOUTUNAVAILABLE, UNKNOWN_LAYOUTTYPE, BAD_STATEID, BADIOMODE])
    }),
    v41("LAYOUTGET of an unknown type fails", |b| {
        let op = ops::layoutget(999, StateId::ANONYMOUS);
        lacks(b, op, &[LAYOUTUNAVAILABLE, UNKNOWN_LAYOUTTYPE, BAD_STATEID])
    }),
    v41("LAYOUTRETURN without a layout fails", |b| {
        let op = ops::layoutreturn(FILES, StateId::ANONYMOUS);
        let others = [BAD_STATEID, UNKNOWN_LAYOUTTYPE, NOMATCHING_LAYOUT, LAYOUTUNAVAILABLE];
        lacks(b, op, &others)
    }),
    v41("LAYOUTCOMMIT without a layout fails", |b| {
        let op = ops::layoutcommit(FILES, StateId::ANONYMOUS);
        let others = [BADLAYOUT, BAD_STATEID, UNKNOWN_LAYOUTTYPE, INVAL, NOMATCHING_LAYOUT];
        lacks(b, op, &others)
    }),
    v41("GETDEVICEINFO of an unknown device fails", |b| {
        let others = [NOENT, INVAL, UNKNOWN_LAYOUTTYPE, TOOSMALL, LAYOUTUNAVAILABLE];
        lacks(b, ops::getdeviceinfo(FILES), &others)
    }),
    v41("GETDEVICELIST fails", |b| {
        let others = [NOENT, INVAL, UNKNOWN_LAYOUTTYPE, LAYOUTUNAVAILABLE];
        lacks(b, ops::getdevicelist(FILES), &others)
    }),
    v41("SET_SSV of a session without a secret fails", |b| {
        lacks(b, ops::set_ssv(), &[INVAL, crate::status::BAD_SESSION_DIGEST, crate::status::ACCESS])
    }),
    v41("OPENATTR goes to a directory or is not supported", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"data")?;
        let reply = s.run(&[ops::putfh(&fh), ops::openattr(true), ops::getattr(&[1])])?;
        match reply.status {
            0 => same("the type", reply.attrs(2)?.number(1)?, 8),
            _ => refusal(&[NOTSUPP], reply.all_ok()).map(drop),
        }
    }),
    v41("GET_DIR_DELEGATION of a directory is answered", |b| {
        let mut s = b.session()?;
        let reply = s.run(&[s.dir(), ops::get_dir_delegation()])?;
        match (reply.status, reply.results.last().map(|last| last.body.clone())) {
            (0, Some(Body::DirDelegation(Some(state)))) => {
                s.ok(&[s.dir(), ops::delegreturn(state)])?;
                Ok(())
            }
            (0, _) => Ok(()),
            _ => refusal(&[NOTSUPP, DIRDELEG_UNAVAIL], reply.all_ok()).map(drop),
        }
    }),
    v41("WANT_DELEGATION is answered", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"data")?;
        let reply = s.run(&[ops::putfh(&fh), ops::want_delegation(ops::share::WANT_READ)])?;
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[NOTSUPP], reply.all_ok()).map(drop),
        }
    }),
    v41("DELEGPURGE is done or not supported", |b| {
        let mut s = b.session()?;
        let reply = s.run(&[ops::delegpurge(0)])?;
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[NOTSUPP], reply.all_ok()).map(drop),
        }
    }),
    v41("DELEGRETURN of a state that is no delegation fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let (open, fh) = s.opened("f")?;
        let wrong = StateId::UNKNOWN;
        for state in [open, StateId::ANONYMOUS, wrong] {
            let statuses = [BAD_STATEID, STALE_STATEID, INVAL, NOTSUPP];
            s.fails(&statuses, &[ops::putfh(&fh), ops::delegreturn(state)])?;
        }
        Ok(())
    }),
];
