//! Cases of COPY, CLONE, OFFLOAD_STATUS, OFFLOAD_CANCEL and COPY_NOTIFY.

use anyhow::{Result, bail, ensure};

use super::v42;
use crate::bench::{Bench, refusal, same};
use crate::nfs4::attributes::SIZE;
use crate::nfs4::callback::Callback;
use crate::nfs4::ops::{self, How, Op, share};
use crate::nfs4::{Body, Session, Set, StateId};
use crate::status::{
    BAD_STATEID, INVAL, ISDIR, NOTSUPP, OFFLOAD_NO_REQS, OPENMODE, PARTNER_NO_AUTH,
    PARTNER_NOTSUPP, STALE_STATEID, UNION_NOTSUPP, WRONG_TYPE, XDEV,
};
use crate::suite::{Case, Skip};

/// Two open files: the source, which contains data, and the target.
struct Pair {
    s: Session,
    from: (StateId, Vec<u8>),
    to: (StateId, Vec<u8>),
}

impl Pair {
    fn new(b: &mut Bench, data: &[u8]) -> Result<Self> {
        let mut s = b.session()?;
        let from = s.opened("from")?;
        for (index, part) in data.chunks(64 << 10).enumerate() {
            let write = ops::write(from.0, (index as u64) << 16, 0, part);
            s.ok(&[ops::putfh(&from.1), write])?;
        }
        s.ok(&[ops::putfh(&from.1), ops::commit(0, 0)])?;
        let to = s.opened("to")?;
        Ok(Self { s, from, to })
    }

    /// Returns operations that save the handle of the source, set that of the target, and then run
    /// `op`.
    fn with(&self, op: Op) -> Vec<Op> {
        vec![ops::putfh(&self.from.1), ops::savefh(), ops::putfh(&self.to.1), op]
    }

    fn copy_op(&self, offsets: (u64, u64), count: u64, synchronous: bool) -> Op {
        ops::copy(self.from.0, self.to.0, offsets, count, synchronous)
    }

    /// Copies a range, and waits for the end of the copy. Returns the number of bytes copied.
    fn copy(&mut self, offsets: (u64, u64), count: u64, synchronous: bool) -> Result<u64> {
        let op = self.copy_op(offsets, count, synchronous);
        let ops = self.with(op);
        let reply = self.s.ok(&ops)?;
        match reply.body(3)? {
            Body::Copied { callback: None, count, .. } => Ok(*count),
            Body::Copied { callback: Some(id), .. } => {
                for callback in self.s.callback()? {
                    let Callback::Offload { state, status, .. } = callback else { continue };
                    same("the copy", state.other, id.other)?;
                    same("the status", status, 0)?;
                    return Ok(count);
                }
                bail!("the callback is not about the copy")
            }
            other => bail!("{other:?} is no copy"),
        }
    }

    fn target(&mut self, count: u32) -> Result<Vec<u8>> {
        let read = ops::read(self.to.0, 0, count);
        Ok(self.s.ok(&[ops::putfh(&self.to.1), read])?.data(1)?.1.to_vec())
    }

    fn refuses(&mut self, statuses: &[u32], op: Op) -> Result<()> {
        let ops = self.with(op);
        self.s.fails(statuses, &ops).map(drop)
    }
}

/// Clones a range. Skips the case if the file system does not support clones.
fn clone(pair: &mut Pair, offsets: (u64, u64), count: u64) -> Result<()> {
    let ops = pair.with(ops::clone(pair.from.0, pair.to.0, offsets, count));
    let reply = pair.s.run(&ops)?;
    match reply.status {
        0 => Ok(()),
        NOTSUPP | XDEV => Err(Skip("the file system cannot share blocks".into()).into()),
        _ => reply.all_ok().map(drop).map_err(Into::into),
    }
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v42("COPY copies a part of a file", |b| {
        let mut pair = Pair::new(b, b"hello world")?;
        let count = pair.copy((6, 0), 5, true)?;
        same("count and data", (count, pair.target(20)?), (5, b"world".to_vec()))
    }),
    v42("COPY with the count 0 copies up to the end", |b| {
        let mut pair = Pair::new(b, b"hello world")?;
        pair.copy((6, 0), 0, true)?;
        same("the data", pair.target(20)?, b"world".to_vec())
    }),
    v42("COPY into the middle of a file leaves the rest", |b| {
        let mut pair = Pair::new(b, b"hello world")?;
        let write = ops::write(pair.to.0, 0, 2, b"..........");
        pair.s.ok(&[ops::putfh(&pair.to.1), write])?;
        pair.copy((0, 2), 5, true)?;
        same("the data", pair.target(20)?, b"..hello...".to_vec())
    }),
    v42("COPY of a megabyte copies all of it", |b| {
        let data: Vec<u8> = (0..1_000_003_u32).map(|at| (at / 7) as u8).collect();
        let mut pair = Pair::new(b, &data)?;
        let mut done = 0;
        while done < data.len() as u64 {
            let rest = data.len() as u64 - done;
            let count = pair.copy((done, done), rest, true)?;
            ensure!(count > 0, "nothing is copied at {done}");
            done += count;
        }
        let mut found = Vec::new();
        while found.len() < data.len() {
            let read = ops::read(pair.to.0, found.len() as u64, 65_536);
            let reply = pair.s.ok(&[ops::putfh(&pair.to.1), read])?;
            ensure!(!reply.data(1)?.1.is_empty(), "the copy is too short");
            found.extend_from_slice(reply.data(1)?.1);
        }
        ensure!(found == data, "the data differs");
        Ok(())
    }),
    v42("COPY that need not be synchronous is done or calls back", |b| {
        let mut pair = Pair::new(b, b"hello world")?;
        pair.copy((0, 0), 11, false)?;
        same("the data", pair.target(20)?, b"hello world".to_vec())
    }),
    v42("COPY of a long file that need not be synchronous is done or calls back", |b| {
        let mut pair = Pair::new(b, b"hello world")?;
        let size = 80 << 20;
        let longer = ops::setattr(pair.from.0, &Set::new().size(size));
        pair.s.ok(&[ops::putfh(&pair.from.1), longer])?;
        pair.copy((0, 0), size, false)?;
        same("the data", pair.target(11)?, b"hello world".to_vec())?;
        let reply = pair.s.ok(&[ops::putfh(&pair.to.1), ops::getattr(&[SIZE])])?;
        // A server may copy a part only.
        let copied = reply.attrs(1)?.number(SIZE)?;
        ensure!((11..=size).contains(&copied), "{copied} bytes are copied");
        Ok(())
    }),
    v42("COPY within a file copies to another place", |b| {
        let mut pair = Pair::new(b, b"hello world")?;
        let copy = ops::copy(pair.from.0, pair.from.0, (0, 20), 5, true);
        let fh = ops::putfh(&pair.from.1);
        let reply = pair.s.run(&[fh.clone(), ops::savefh(), copy])?;
        if reply.status != 0 {
            return refusal(&[INVAL, NOTSUPP], reply.all_ok()).map(drop);
        }
        let reply = pair.s.ok(&[fh, ops::read(pair.from.0, 20, 9)])?;
        same("the data", reply.data(1)?.1, b"hello")
    }),
    v42("COPY within a file to an overlapping place fails with INVAL", |b| {
        let mut pair = Pair::new(b, b"hello world")?;
        let copy = ops::copy(pair.from.0, pair.from.0, (0, 2), 5, true);
        let fh = ops::putfh(&pair.from.1);
        pair.s.fails(&[INVAL], &[fh, ops::savefh(), copy]).map(drop)
    }),
    v42("COPY from behind the end fails with INVAL or copies nothing", |b| {
        let mut pair = Pair::new(b, b"hello")?;
        let op = pair.copy_op((100, 0), 5, true);
        let ops = pair.with(op);
        let reply = pair.s.run(&ops)?;
        match (reply.status, reply.results.last().map(|last| &last.body)) {
            (0, Some(Body::Copied { count, .. })) => same("the count", *count, 0),
            _ => refusal(&[INVAL], reply.all_ok()).map(drop),
        }
    }),
    v42("COPY of a range that wraps around fails with INVAL", |b| {
        let mut pair = Pair::new(b, b"hello")?;
        let op = pair.copy_op((u64::MAX - 2, 0), 100, true);
        pair.refuses(&[INVAL], op)?;
        let op = pair.copy_op((0, u64::MAX - 2), 100, true);
        pair.refuses(&[INVAL, crate::status::FBIG], op)
    }),
    v42("COPY with a wrong state id fails with BAD_STATEID", |b| {
        let mut pair = Pair::new(b, b"hello")?;
        let wrong = StateId::UNKNOWN;
        let (from, to) = (pair.from.0, pair.to.0);
        pair.refuses(&[BAD_STATEID, STALE_STATEID], ops::copy(wrong, to, (0, 0), 5, true))?;
        pair.refuses(&[BAD_STATEID, STALE_STATEID], ops::copy(from, wrong, (0, 0), 5, true))
    }),
    v42("COPY into a file that is open for reading fails with OPENMODE", |b| {
        let mut pair = Pair::new(b, b"hello")?;
        pair.s.file("other", b"")?;
        let access = share::READ | share::WANT_NONE;
        let (opened, fh) = pair.s.open("r", (access, 0), &How::Open, "other")?;
        pair.to.1 = fh;
        let op = ops::copy(pair.from.0, opened.state, (0, 0), 5, true);
        pair.refuses(&[OPENMODE], op)
    }),
    v42("COPY of a directory fails", |b| {
        let mut s = b.session()?;
        let state = StateId::ANONYMOUS;
        let copy = ops::copy(state, state, (0, 0), 5, true);
        s.fails(&[ISDIR, WRONG_TYPE, INVAL], &[s.dir(), ops::savefh(), copy]).map(drop)
    }),
    v42("COPY from another server is refused", |b| {
        let mut pair = Pair::new(b, b"hello")?;
        let mut op = pair.copy_op((0, 0), 5, true);
        // Replace the empty list of servers by a list with one server name.
        op.arguments.truncate(op.arguments.len() - 4);
        op.arguments.extend(crate::xdr::Put::new().u32(1).u32(1).opaque("elsewhere").0);
        let statuses =
            [NOTSUPP, PARTNER_NOTSUPP, PARTNER_NO_AUTH, OFFLOAD_NO_REQS, UNION_NOTSUPP, INVAL];
        pair.refuses(&statuses, op)
    }),
    v42("CLONE copies a whole file", |b| {
        let data = vec![7; 128 << 10];
        let mut pair = Pair::new(b, &data)?;
        clone(&mut pair, (0, 0), 0)?;
        ensure!(pair.target(256 << 10)? == data, "the data differs");
        Ok(())
    }),
    v42("a change of a clone leaves the source as it is", |b| {
        let data = vec![7; 128 << 10];
        let mut pair = Pair::new(b, &data)?;
        clone(&mut pair, (0, 0), 0)?;
        let write = ops::write(pair.to.0, 0, 2, b"x");
        pair.s.ok(&[ops::putfh(&pair.to.1), write])?;
        let read = ops::read(pair.from.0, 0, 1);
        let reply = pair.s.ok(&[ops::putfh(&pair.from.1), read])?;
        same("the data", reply.data(1)?.1, &[7][..])
    }),
    v42("CLONE of a range that is not aligned fails with INVAL", |b| {
        let mut pair = Pair::new(b, &vec![7; 128 << 10])?;
        clone(&mut pair, (0, 0), 0)?;
        let op = ops::clone(pair.from.0, pair.to.0, (1, 3), 5);
        pair.refuses(&[INVAL], op)
    }),
    v42("CLONE with a wrong state id fails", |b| {
        let mut pair = Pair::new(b, b"hello")?;
        let wrong = StateId::UNKNOWN;
        let to = pair.to.0;
        let statuses = [BAD_STATEID, STALE_STATEID, NOTSUPP];
        pair.refuses(&statuses, ops::clone(wrong, to, (0, 0), 0))
    }),
    v42("OFFLOAD_STATUS of an unknown copy fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let wrong = StateId::UNKNOWN;
        let statuses = [BAD_STATEID, STALE_STATEID, NOTSUPP];
        s.fails(&statuses, &[s.dir(), ops::offload_status(wrong)]).map(drop)
    }),
    v42("OFFLOAD_CANCEL of an unknown copy fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let wrong = StateId::UNKNOWN;
        let statuses = [BAD_STATEID, STALE_STATEID, NOTSUPP];
        s.fails(&statuses, &[s.dir(), ops::offload_cancel(wrong)]).map(drop)
    }),
    v42("COPY_NOTIFY is answered or not supported", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let reply = s.once(&[ops::putfh(&fh), ops::copy_notify(state)])?;
        refusal(&[NOTSUPP, PARTNER_NOTSUPP], reply.all_ok()).map(drop)
    }),
    v42("WRITE_SAME is not supported", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let statuses = [NOTSUPP, UNION_NOTSUPP];
        s.fails(&statuses, &[ops::putfh(&fh), ops::write_same(state)]).map(drop)
    }),
];
