//! Cases of slots and sequence numbers: exactly-once execution, and the limits of a session.

use anyhow::{Result, bail, ensure};

use super::v41;
use crate::bench::{Bench, refusal, same};
use crate::fault::Fault;
use crate::nfs4::ops::{self, Channel, Claim, How, Op, share};
use crate::nfs4::session::{Session, Wish};
use crate::nfs4::{Body, Reply, Set, StateId, call_of, decode_record, run};
use crate::status::{
    BAD_HIGH_SLOT, BADSESSION, BADSLOT, CONN_NOT_BOUND_TO_SESSION, EXIST, NOENT, OP_NOT_IN_SESSION,
    REP_TOO_BIG, REP_TOO_BIG_TO_CACHE, REQ_TOO_BIG, RETRY_UNCACHED_REP, SEQ_FALSE_RETRY,
    SEQ_MISORDERED, TOO_MANY_OPS,
};
use crate::suite::Case;

/// Sends a compound without adding a SEQUENCE. Returns the record of the reply.
fn record(s: &mut Session, ops: &[Op]) -> Result<Vec<u8>, Fault> {
    let call = call_of(&s.auth, b"", s.minor, ops);
    let xid = s.connection.send(&call)?;
    let mut record = s.connection.reply(xid)?;
    // Clear the identifier (XID), which is different in each reply.
    record[..4].fill(0);
    Ok(record)
}

/// Sends a compound without adding a SEQUENCE, and decodes the reply.
fn plain(s: &mut Session, ops: &[Op]) -> Result<Reply, Fault> {
    decode_record(&record(s, ops)?)
}

/// Checks that a SEQUENCE is refused and leaves the slot unchanged.
fn refuses(b: &mut Bench, status: u32, op: impl Fn(&Session) -> Op) -> Result<()> {
    let mut s = b.session()?;
    let op = op(&s);
    refusal(&[status], plain(&mut s, &[op, ops::putrootfh()])?.all_ok())?;
    s.ok(&[ops::putrootfh()])?;
    Ok(())
}

/// Sends a compound two times with the same slot and sequence number. Checks that the replies are
/// equal.
fn twice(b: &mut Bench, prepare: impl Fn(&mut Session) -> Result<Vec<Op>>) -> Result<()> {
    let mut s = b.session()?;
    let mut all = prepare(&mut s)?;
    all.insert(0, s.sequence(0, true));
    let first = record(&mut s, &all)?;
    decode_record(&first)?.all_ok()?;
    ensure!(record(&mut s, &all)? == first, "the second reply differs from the first");
    s.next[0] += 1;
    s.ok(&[ops::putrootfh()])?;
    Ok(())
}

fn create_guarded(name: &str) -> Op {
    let how = How::Guarded(Set::new().mode(0o644));
    let access = share::BOTH | share::WANT_NONE;
    ops::open(b"owner", access, 0, &how, &Claim::Name(name.into()))
}

/// Checks that a length is within its limit.
fn at_most(what: &str, bytes: usize, limit: usize) -> Result<()> {
    ensure!(bytes <= limit, "{what} has {bytes} bytes, more than {limit}");
    Ok(())
}

/// Creates a session with these limits.
fn limited(b: &mut Bench, fore: Channel) -> Result<Session> {
    let wish = Wish { fore, ..b.wish() };
    b.session_of(&wish)
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("SEQUENCE returns session, number and slot", |b| {
        let mut s = b.session()?;
        let number = s.next[0];
        s.ok(&[])?;
        let Some(last) = s.last else { bail!("there is no result") };
        same("the result", (last.id, last.number, last.slot), (s.created.id, number, 0))?;
        ensure!(last.target < s.created.fore.requests, "the target is {}", last.target);
        ensure!(last.highest < s.created.fore.requests, "the highest slot is {}", last.highest);
        Ok(())
    }),
    v41("SEQUENCE returns no flags when all is well", |b| {
        let mut s = b.session()?;
        s.ok(&[])?;
        same("the flags", s.last.map(|last| last.flags), Some(0))
    }),
    v41("the first number of every slot is 1", |b| {
        let mut s = b.session()?;
        for slot in (1..s.created.fore.requests).rev() {
            let xid = s.send(slot, false, &[ops::putrootfh()])?;
            s.finish(slot, xid)?.all_ok()?;
        }
        Ok(())
    }),
    v41("the first number of a slot is not 0", |b| {
        refuses(b, SEQ_MISORDERED, |s| ops::sequence(s.created.id, 0, 1, 1, false))
    }),
    v41("a number that is too high fails with SEQ_MISORDERED", |b| {
        refuses(b, SEQ_MISORDERED, |s| ops::sequence(s.created.id, s.next[0] + 1, 0, 0, false))
    }),
    v41("an old number fails with SEQ_MISORDERED", |b| {
        let mut s = b.session()?;
        for _ in 0..3 {
            s.ok(&[])?;
        }
        let old = ops::sequence(s.created.id, s.next[0] - 3, 0, 0, false);
        refusal(&[SEQ_MISORDERED], plain(&mut s, &[old])?.all_ok())?;
        s.ok(&[])?;
        Ok(())
    }),
    v41("a slot that the session does not have fails with BADSLOT", |b| {
        refuses(b, BADSLOT, |s| {
            let slot = s.created.fore.requests;
            ops::sequence(s.created.id, 1, slot, slot, false)
        })
    }),
    v41("the largest slot fails with BADSLOT", |b| {
        refuses(b, BADSLOT, |s| ops::sequence(s.created.id, 1, u32::MAX, u32::MAX, false))
    }),
    v41("a highest slot that the session does not have fails with BAD_HIGH_SLOT", |b| {
        refuses(b, BAD_HIGH_SLOT, |s| {
            let highest = s.created.fore.requests;
            ops::sequence(s.created.id, s.next[0], 0, highest, false)
        })
    }),
    v41("a highest slot below the slot fails with BAD_HIGH_SLOT", |b| {
        let mut s = b.session()?;
        if s.created.fore.requests < 2 {
            bail!("the session has only one slot");
        }
        let op = ops::sequence(s.created.id, 1, 1, 0, false);
        let reply = plain(&mut s, &[op])?;
        // RFC 8881 also allows a server to treat the request as new.
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[BAD_HIGH_SLOT], reply.all_ok()).map(drop),
        }
    }),
    v41("an unknown session fails with BADSESSION", |b| {
        refuses(b, BADSESSION, |_| ops::sequence([7; 16], 1, 0, 0, false))
    }),
    v41("a session id with a changed bit fails with BADSESSION", |b| {
        for at in 0..16 {
            let wanted = [BADSESSION];
            let mut s = b.session()?;
            let mut id = s.created.id;
            id[at] ^= 1;
            let op = ops::sequence(id, s.next[0], 0, 0, false);
            refusal(&wanted, plain(&mut s, &[op])?.all_ok())?;
        }
        Ok(())
    }),
    v41("a compound without SEQUENCE fails with OP_NOT_IN_SESSION", |b| {
        let wish = b.wish();
        let reply = run(&mut b.connection()?, &wish.auth, wish.minor, &[ops::putrootfh()])?;
        refusal(&[OP_NOT_IN_SESSION], reply.all_ok()).map(drop)
    }),
    v41("a repeated compound returns the first reply", |b| {
        twice(b, |s| Ok(vec![s.dir(), ops::getattr(&[1, 3]), ops::getfh()]))
    }),
    v41("a repeated OPEN that creates is not done twice", |b| {
        twice(b, |s| Ok(vec![s.dir(), create_guarded("f"), ops::getfh()]))
    }),
    v41("a repeated CREATE is not done twice", |b| {
        twice(b, |s| Ok(vec![s.dir(), ops::mkdir("d")]))
    }),
    v41("a repeated REMOVE is not done twice", |b| {
        twice(b, |s| {
            s.file("f", b"data")?;
            Ok(vec![s.dir(), ops::remove("f")])
        })
    }),
    v41("a repeated RENAME is not done twice", |b| {
        twice(b, |s| {
            s.file("f", b"data")?;
            Ok(vec![s.dir(), ops::savefh(), s.dir(), ops::rename("f", "g")])
        })
    }),
    v41("a repeated LINK is not done twice", |b| {
        twice(b, |s| {
            let fh = s.file("f", b"data")?;
            Ok(vec![ops::putfh(&fh), ops::savefh(), s.dir(), ops::link("g")])
        })
    }),
    v41("a repeated WRITE is not done twice", |b| {
        twice(b, |s| {
            let (state, fh) = s.opened("f")?;
            let write = ops::write(state, 0, 2, b"data");
            Ok(vec![ops::putfh(&fh), write, ops::getattr(&[3, 4])])
        })
    }),
    v41("a repeated LOCK is not done twice", |b| {
        twice(b, |s| {
            let (state, fh) = s.opened("f")?;
            let locker = ops::Locker::New(state, b"locker".to_vec());
            Ok(vec![ops::putfh(&fh), ops::lock(2, false, 0, 10, &locker)])
        })
    }),
    v41("a repeated CLOSE is not done twice", |b| {
        twice(b, |s| {
            let (state, fh) = s.opened("f")?;
            Ok(vec![ops::putfh(&fh), ops::close(state)])
        })
    }),
    v41("a repeated compound that failed fails in the same way", |b| {
        let mut s = b.session()?;
        s.file("f", b"data")?;
        let all = [s.sequence(0, true), s.dir(), create_guarded("f")];
        let first = record(&mut s, &all)?;
        refusal(&[EXIST], decode_record(&first)?.all_ok())?;
        s.next[0] += 1;
        s.next[1] = 1;
        let removed = [s.sequence(1, false), s.dir(), ops::remove("f")];
        plain(&mut s, &removed)?.all_ok()?;
        ensure!(record(&mut s, &all)? == first, "the second reply differs from the first");
        Ok(())
    }),
    v41("a repeat on another connection returns the first reply", |b| {
        let mut s = b.session()?;
        let all = [s.sequence(0, true), s.dir(), create_guarded("f")];
        let first = record(&mut s, &all)?;
        decode_record(&first)?.all_ok()?;
        let mut other = s.another_connection()?;
        run(&mut other, &s.auth, s.minor, &[ops::bind_conn(s.created.id, 1)])?.all_ok()?;
        let xid = other.send(&call_of(&s.auth, b"", s.minor, &all))?;
        let mut second = other.reply(xid)?;
        second[..4].fill(0);
        ensure!(second == first, "the second reply differs from the first");
        Ok(())
    }),
    v41("a repeat after the connection was lost returns the first reply", |b| {
        let mut s = b.session()?;
        let all = [s.sequence(0, true), s.dir(), create_guarded("f")];
        let xid = s.connection.send(&call_of(&s.auth, b"", s.minor, &all))?;
        // The server has sent the reply, but the client behaves as if it never received the reply.
        s.connection.reply(xid)?;
        s.connection = s.another_connection()?;
        let bind = ops::bind_conn(s.created.id, 3);
        run(&mut s.connection, &s.auth, s.minor, &[bind])?.all_ok()?;
        plain(&mut s, &all)?.all_ok()?;
        s.next[0] += 1;
        s.ok(&[s.dir(), ops::lookup("f")])?;
        Ok(())
    }),
    v41("a repeat of a compound that was not to be kept is kept or refused", |b| {
        let mut s = b.session()?;
        let all = [s.sequence(0, false), s.dir(), create_guarded("f")];
        plain(&mut s, &all)?.all_ok()?;
        let reply = plain(&mut s, &all)?;
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[RETRY_UNCACHED_REP], reply.all_ok()).map(drop),
        }
    }),
    v41("a repeat with other operations is refused or answered as before", |b| {
        let mut s = b.session()?;
        let sequence = s.sequence(0, true);
        let first = [sequence.clone(), s.dir(), ops::mkdir("one")];
        plain(&mut s, &first)?.all_ok()?;
        let other = [sequence, s.dir(), ops::mkdir("two")];
        let reply = plain(&mut s, &other)?;
        if reply.status != 0 {
            refusal(&[SEQ_FALSE_RETRY, RETRY_UNCACHED_REP], reply.all_ok())?;
        }
        s.next[0] += 1;
        s.fails(&[NOENT], &[s.dir(), ops::lookup("two")]).map(drop)
    }),
    v41("a repeat with fewer operations does nothing new", |b| {
        let mut s = b.session()?;
        let sequence = s.sequence(0, true);
        let first = [sequence.clone(), s.dir(), ops::mkdir("one")];
        plain(&mut s, &first)?.all_ok()?;
        let reply = plain(&mut s, &[sequence])?;
        if reply.status != 0 {
            refusal(&[SEQ_FALSE_RETRY, RETRY_UNCACHED_REP], reply.all_ok())?;
        }
        s.next[0] += 1;
        s.ok(&[s.dir(), ops::lookup("one")])?;
        Ok(())
    }),
    v41("slots count independently of each other", |b| {
        let mut s = b.session()?;
        for round in 0..4 {
            for slot in 0..=round {
                let xid = s.send(slot, false, &[ops::putrootfh()])?;
                s.finish(slot, xid)?.all_ok()?;
            }
        }
        Ok(())
    }),
    v41("compounds on all slots in flight get their own replies", |b| {
        let mut s = b.session()?;
        let slots = s.created.fore.requests;
        let mut sent = Vec::new();
        for slot in 0..slots {
            let name = format!("name-{slot}");
            sent.push((slot, s.send(slot, true, &[s.dir(), ops::mkdir(&name), ops::getfh()])?));
        }
        let mut made = Vec::new();
        for (slot, xid) in sent.into_iter().rev() {
            made.push((slot, s.finish(slot, xid)?.all_ok()?.fh(2)?));
        }
        for (slot, fh) in made {
            let found = s.ok(&[s.dir(), ops::lookup(format!("name-{slot}")), ops::getfh()])?;
            same("the handle", found.fh(2)?, fh)?;
        }
        Ok(())
    }),
    v41("a compound with too many operations fails with TOO_MANY_OPS", |b| {
        let mut s = limited(b, Channel { operations: 8, ..Channel::FORE })?;
        let limit = s.created.fore.operations as usize;
        ensure!(limit <= 8, "the limit is {limit}");
        let mut all = vec![s.sequence(0, false)];
        all.extend(vec![ops::putrootfh(); limit]);
        refusal(&[TOO_MANY_OPS], plain(&mut s, &all)?.all_ok()).map(drop)
    }),
    v41("a request that is too long fails with REQ_TOO_BIG", |b| {
        let mut s = limited(b, Channel { request_max: 4096, ..Channel::FORE })?;
        let limit = s.created.fore.request_max as usize;
        ensure!(limit <= 4096, "the limit is {limit}");
        let (state, fh) = s.opened("f")?;
        let write = ops::write(state, 0, 2, &vec![7; limit]);
        let all = [s.sequence(0, false), ops::putfh(&fh), write];
        refusal(&[REQ_TOO_BIG], plain(&mut s, &all)?.all_ok()).map(drop)
    }),
    v41("a reply that would be too long fails with REP_TOO_BIG", |b| {
        let fh = b.session()?.file("f", &[7; 10_000])?;
        let mut s = limited(b, Channel { response_max: 4096, ..Channel::FORE })?;
        let read = ops::read(StateId::ANONYMOUS, 0, 10_000);
        let reply = s.run(&[ops::putfh(&fh), read])?;
        match reply.status {
            // A server may also succeed and return less data.
            0 => at_most("the reply", reply.data(1)?.1.len(), 4096),
            _ => refusal(&[REP_TOO_BIG], reply.all_ok()).map(drop),
        }
    }),
    v41("a reply that is too long to be kept fails with REP_TOO_BIG_TO_CACHE", |b| {
        let fh = b.session()?.file("f", &[7; 100_000])?;
        let mut s = limited(b, Channel { cached_max: 2048, ..Channel::FORE })?;
        let limit = s.created.fore.cached_max;
        ensure!(limit <= 2048, "the limit is {limit}");
        let read = ops::read(StateId::ANONYMOUS, 0, 100_000);
        let xid = s.send(0, true, &[ops::putfh(&fh), read])?;
        let reply = s.finish(0, xid)?;
        match reply.status {
            0 => at_most("the reply", reply.data(1)?.1.len(), 2048),
            _ => refusal(&[REP_TOO_BIG_TO_CACHE], reply.all_ok()).map(drop),
        }
    }),
    v41("READDIR in a session of short replies returns short pages", |b| {
        let mut s = limited(b, Channel { response_max: 2048, ..Channel::FORE })?;
        for index in 0..40 {
            s.ok(&[s.dir(), ops::mkdir(format!("a-name-of-some-length-{index}"))])?;
        }
        let list = ops::readdir(0, [0; 8], (65_536, 65_536), &[1, 20, 33]);
        let reply = s.run(&[s.dir(), list])?;
        match (reply.status, reply.results.last().map(|last| &last.body)) {
            (0, Some(Body::Page(page))) => at_most("the page", page.bytes, 2048),
            _ => refusal(&[REP_TOO_BIG], reply.all_ok()).map(drop),
        }
    }),
    v41("a second connection uses the session", |b| {
        let mut s = b.session()?;
        let mut other = s.another_connection()?;
        let bind = ops::bind_conn(s.created.id, 1);
        run(&mut other, &s.auth, s.minor, &[bind])?.all_ok()?;
        for slot in 0..2 {
            let all = [s.sequence(slot, false), s.dir(), ops::getfh()];
            run(&mut other, &s.auth, s.minor, &all)?.all_ok()?;
            s.next[slot as usize] += 1;
        }
        s.ok(&[s.dir()])?;
        Ok(())
    }),
    v41("a connection that is not bound is bound by SEQUENCE or refused", |b| {
        let s = b.session()?;
        let mut other = s.another_connection()?;
        let all = [s.sequence(1, false), s.dir()];
        let reply = run(&mut other, &s.auth, s.minor, &all)?;
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[CONN_NOT_BOUND_TO_SESSION], reply.all_ok()).map(drop),
        }
    }),
    v41("two sessions of a client share its opens", |b| {
        let wish = b.wish();
        let mut one = b.session_of(&wish)?;
        let (state, fh) = one.opened("f")?;
        let mut connection = b.connection()?;
        let number = one.client.sequence + 1;
        let two = crate::nfs4::session::create(&mut connection, &wish, one.client.id, number)?;
        let sequence = ops::sequence(two.id, 1, 0, 0, false);
        let all = [sequence, ops::putfh(&fh), ops::write(state, 0, 2, b"x")];
        run(&mut connection, &wish.auth, wish.minor, &all)?.all_ok()?;
        Ok(())
    }),
    v41("a client that lost its connection goes on with its opens", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.connection = s.another_connection()?;
        let bind = ops::bind_conn(s.created.id, 3);
        run(&mut s.connection, &s.auth, s.minor, &[bind])?.all_ok()?;
        s.ok(&[ops::putfh(&fh), ops::write(state, 0, 2, b"x"), ops::close(state)])?;
        Ok(())
    }),
];
