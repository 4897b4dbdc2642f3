//! Cases of delegations: when the server grants them, recalls them and accepts their return.

use anyhow::{Result, bail, ensure};

use super::v41;
use crate::bench::{Bench, same};
use crate::fault::Fault;
use crate::nfs4::attributes::SIZE;
use crate::nfs4::callback::{self, Callback};
use crate::nfs4::ops::{self, Claim, How, Op, share};
use crate::nfs4::results::Delegation;
use crate::nfs4::{Body, Session, Set, StateId};
use crate::status::{BAD_STATEID, DELAY, OPENMODE};
use crate::suite::{Case, Skip};
use crate::xdr::Put;

/// The maximum number of times that a call of version 3 is repeated because the server delays it.
const RETRIES: u32 = 200;

/// A client that holds a delegation.
struct Delegate {
    s: Session,
    fh: Vec<u8>,
    open: StateId,
    state: StateId,
}

impl Delegate {
    /// Opens the file `f`, and asks for a delegation. Skips the case if the server grants none.
    fn new(b: &mut Bench, access: u32) -> Result<Self> {
        let want = if access & share::WRITE == 0 { share::WANT_READ } else { share::WANT_WRITE };
        b.session()?.file("f", b"hello")?;
        let mut s = b.session()?;
        let (opened, fh) = s.open("o", (access | want, 0), &How::Open, "f")?;
        match opened.delegation {
            Delegation::Read(state) | Delegation::Write(state) => {
                Ok(Self { s, fh, open: opened.state, state })
            }
            other => Err(Skip(format!("the server gives no delegation: {other:?}")).into()),
        }
    }

    /// Waits for the recall, and returns the delegation.
    fn give_back(&mut self) -> Result<()> {
        let callbacks = self.s.callback()?;
        let is_recall = matches!(
            &callbacks[..],
            [Callback::Recall { state, fh, .. }]
                if state.other == self.state.other && *fh == self.fh
        );
        ensure!(is_recall, "the callback is {callbacks:?}");
        self.s.ok(&[ops::putfh(&self.fh), ops::delegreturn(self.state)])?;
        Ok(())
    }
}

/// Checks that an operation of another client recalls a delegation, and succeeds after its return.
fn recalls(b: &mut Bench, access: u32, op: impl Fn(&Session, &[u8]) -> Vec<Op>) -> Result<()> {
    let mut holder = Delegate::new(b, access)?;
    let mut other = b.session()?;
    let all = op(&other, &holder.fh);
    let xid = other.send(0, false, &all)?;
    holder.give_back()?;
    finish_or_repeat(&mut other, xid, &all)
}

/// Waits for the reply to operations, and repeats them if the server has delayed them. They must
/// succeed.
fn finish_or_repeat(s: &mut Session, xid: u32, all: &[Op]) -> Result<()> {
    let reply = s.finish(0, xid)?;
    if reply.status == DELAY {
        s.ok(all)?;
    } else {
        reply.all_ok()?;
    }
    Ok(())
}

/// Checks that delegations of several files that are recalled at the same time all come back. The
/// holder has received no callback before, so that over RDMA there is one credit for callbacks.
fn recalls_many(b: &mut Bench) -> Result<()> {
    const NAMES: [&str; 3] = ["f", "g", "h"];
    let mut first = b.session()?;
    for name in NAMES {
        first.file(name, b"hello")?;
    }
    let (mut holder, mut held) = (b.session()?, Vec::new());
    for name in NAMES {
        let (opened, fh) =
            holder.open("o", (share::READ | share::WANT_READ, 0), &How::Open, name)?;
        match opened.delegation {
            Delegation::Read(state) => held.push((fh, state)),
            other => {
                return Err(Skip(format!("the server gives no delegation: {other:?}")).into());
            }
        }
    }
    let mut others = Vec::new();
    for (fh, _) in &held {
        let mut other = b.session()?;
        let all = [ops::putfh(fh), ops::write(StateId::ANONYMOUS, 0, 2, b"x")];
        let xid = other.send(0, false, &all)?;
        others.push((other, xid, all));
    }
    for _ in NAMES {
        let callbacks = holder.callback()?;
        let [Callback::Recall { state, .. }] = &callbacks[..] else {
            bail!("the callback is {callbacks:?}");
        };
        let found = held.iter().position(|(_, held)| held.other == state.other);
        let Some(found) = found else { bail!("another delegation is recalled, or one twice") };
        let (fh, state) = held.remove(found);
        holder.ok(&[ops::putfh(&fh), ops::delegreturn(state)])?;
    }
    for (mut other, xid, all) in others {
        finish_or_repeat(&mut other, xid, &all)?;
    }
    Ok(())
}

/// Checks that an operation of another client succeeds while a delegation stays valid.
fn leaves(b: &mut Bench, access: u32, op: impl Fn(&Session, &[u8]) -> Vec<Op>) -> Result<()> {
    let mut holder = Delegate::new(b, access)?;
    let mut other = b.session()?;
    let all = op(&other, &holder.fh);
    other.ok(&all)?;
    let reply = holder.s.ok(&[ops::test_stateid(&[holder.state])])?;
    same("the status", reply.body(0)?, &Body::Statuses(vec![0]))
}

fn open(access: u32) -> Op {
    let access = access | share::WANT_NONE;
    ops::open(b"other", access, 0, &How::Open, &Claim::Name(b"f".to_vec()))
}

/// Checks that a call of version 3 recalls a delegation, and succeeds after its return.
fn version_3_recalls(
    b: &mut Bench,
    access: u32,
    call: impl Fn(&mut Bench, &[u8]) -> Result<(), Fault>,
) -> Result<()> {
    let mut holder = Delegate::new(b, access)?;
    let dir = b.dir.clone();
    let fh = b.c.lookup(&dir, "f")?.fh;
    let mut is_back = false;
    for _ in 0..RETRIES {
        match call(b, &fh) {
            Ok(()) if is_back => return Ok(()),
            Ok(()) => bail!("the call was done while the file was delegated"),
            Err(Fault::Status { status: DELAY, .. }) if !is_back => {
                holder.give_back()?;
                is_back = true;
            }
            Err(Fault::Status { status: DELAY, .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    bail!("the call is delayed for ever")
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("an open without a wish for a delegation is served", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let (opened, _) = s.open("o", (share::READ | share::WANT_NONE, 0), &How::Open, "f")?;
        let is_none = matches!(opened.delegation, Delegation::None | Delegation::Refused(_));
        ensure!(is_none, "the delegation is {:?}", opened.delegation);
        Ok(())
    }),
    v41("a session without callbacks gets no delegation", |b| {
        b.session()?.file("f", b"")?;
        let wish = crate::nfs4::session::Wish { flags: 0, ..b.wish() };
        let mut s = b.session_of(&wish)?;
        let (opened, _) = s.open("o", (share::READ | share::WANT_READ, 0), &How::Open, "f")?;
        let is_none = matches!(opened.delegation, Delegation::None | Delegation::Refused(_));
        ensure!(is_none, "the delegation is {:?}", opened.delegation);
        Ok(())
    }),
    v41("the holder of a delegation to write sets the size by it after its open is closed", |b| {
        let mut holder = Delegate::new(b, share::READ | share::WRITE)?;
        let (fh, open, state) = (holder.fh.clone(), holder.open, holder.state);
        let data = vec![7; 100_000];
        holder.s.ok(&[ops::putfh(&fh), ops::write(state, 0, 0, &data)])?;
        holder.s.ok(&[ops::putfh(&fh), ops::close(open)])?;
        let size = ops::setattr(state, &Set::new().size(5));
        holder.s.ok(&[ops::putfh(&fh), size, ops::getattr(&[SIZE])])?;
        Ok(())
    }),
    v41("DELEGRETURN ends a delegation", |b| {
        let mut holder = Delegate::new(b, share::READ)?;
        holder.s.ok(&[ops::putfh(&holder.fh), ops::delegreturn(holder.state)])?;
        let again = [ops::putfh(&holder.fh), ops::delegreturn(holder.state)];
        holder.s.fails(&[BAD_STATEID], &again)?;
        let reply = holder.s.ok(&[ops::test_stateid(&[holder.state])])?;
        same("the status", reply.body(0)?, &Body::Statuses(vec![BAD_STATEID]))
    }),
    v41("READ with the state id of a delegation is served", |b| {
        let mut holder = Delegate::new(b, share::READ)?;
        let reply = holder.s.ok(&[ops::putfh(&holder.fh), ops::read(holder.state, 0, 9)])?;
        same("the data", reply.data(1)?.1, b"hello")
    }),
    v41("WRITE with the state id of a delegation for reading fails with OPENMODE", |b| {
        let mut holder = Delegate::new(b, share::READ)?;
        let write = ops::write(holder.state, 0, 2, b"x");
        holder.s.fails(&[OPENMODE], &[ops::putfh(&holder.fh), write]).map(drop)
    }),
    v41("WRITE with the state id of a delegation for writing is served", |b| {
        let mut holder = Delegate::new(b, share::BOTH)?;
        let write = ops::write(holder.state, 0, 2, b"x");
        holder.s.ok(&[ops::putfh(&holder.fh), write])?;
        Ok(())
    }),
    v41("two clients have delegations for reading of one file", |b| {
        let one = Delegate::new(b, share::READ)?;
        let mut s = b.session()?;
        let (opened, _) = s.open("o", (share::READ | share::WANT_READ, 0), &How::Open, "f")?;
        let Delegation::Read(state) = opened.delegation else {
            return Err(Skip("the server gives no second delegation".into()).into());
        };
        ensure!(state.other != one.state.other, "the state ids are equal");
        Ok(())
    }),
    v41("a delegation outlives the CLOSE of its open", |b| {
        let mut holder = Delegate::new(b, share::READ)?;
        holder.s.ok(&[ops::putfh(&holder.fh), ops::close(holder.open)])?;
        holder.s.ok(&[ops::putfh(&holder.fh), ops::read(holder.state, 0, 9)])?;
        Ok(())
    }),
    v41("OPEN under a delegation by handle succeeds", |b| {
        let mut holder = Delegate::new(b, share::READ)?;
        let claim = Claim::DelegCurFh(holder.state);
        let op = ops::open(b"another", share::READ, 0, &How::Open, &claim);
        holder.s.ok(&[ops::putfh(&holder.fh), op])?;
        Ok(())
    }),
    v41("OPEN under a delegation by name succeeds", |b| {
        let mut holder = Delegate::new(b, share::READ)?;
        let claim = Claim::DelegateCur(holder.state, b"f".to_vec());
        let op = ops::open(b"another", share::READ, 0, &How::Open, &claim);
        holder.s.ok(&[holder.s.dir(), op])?;
        Ok(())
    }),
    v41("an open for reading leaves a delegation for reading alone", |b| {
        leaves(b, share::READ, |s, _| vec![s.dir(), open(share::READ)])
    }),
    v41("READ and GETATTR leave a delegation for reading alone", |b| {
        leaves(b, share::READ, |_, fh| {
            vec![ops::putfh(fh), ops::read(StateId::ANONYMOUS, 0, 5), ops::getattr(&[3, 4])]
        })
    }),
    v41("delegations of several files are recalled at the same time", recalls_many),
    v41("an open for writing recalls a delegation for reading", |b| {
        recalls(b, share::READ, |s, _| vec![s.dir(), open(share::WRITE)])
    }),
    v41("an anonymous WRITE recalls a delegation for reading", |b| {
        recalls(b, share::READ, |_, fh| {
            vec![ops::putfh(fh), ops::write(StateId::ANONYMOUS, 0, 2, b"x")]
        })
    }),
    v41("SETATTR of the size recalls a delegation for reading", |b| {
        recalls(b, share::READ, |_, fh| {
            vec![ops::putfh(fh), ops::setattr(StateId::ANONYMOUS, &Set::new().size(1))]
        })
    }),
    v41("SETATTR of the mode recalls a delegation for reading", |b| {
        recalls(b, share::READ, |_, fh| {
            vec![ops::putfh(fh), ops::setattr(StateId::ANONYMOUS, &Set::new().mode(0o600))]
        })
    }),
    v41("REMOVE recalls a delegation for reading", |b| {
        recalls(b, share::READ, |s, _| vec![s.dir(), ops::remove("f")])
    }),
    v41("RENAME recalls a delegation for reading", |b| {
        recalls(b, share::READ, |s, _| vec![s.dir(), ops::savefh(), s.dir(), ops::rename("f", "g")])
    }),
    v41("LINK recalls a delegation for reading", |b| {
        recalls(b, share::READ, |s, fh| {
            vec![ops::putfh(fh), ops::savefh(), s.dir(), ops::link("g")]
        })
    }),
    v41("an open for reading recalls a delegation for writing", |b| {
        recalls(b, share::BOTH, |s, _| vec![s.dir(), open(share::READ)])
    }),
    v41("an anonymous READ recalls a delegation for writing", |b| {
        recalls(b, share::BOTH, |_, fh| vec![ops::putfh(fh), ops::read(StateId::ANONYMOUS, 0, 5)])
    }),
    v41("REMOVE recalls a delegation for writing", |b| {
        recalls(b, share::BOTH, |s, _| vec![s.dir(), ops::remove("f")])
    }),
    v41("what the holder of a delegation writes is read after the recall", |b| {
        let mut holder = Delegate::new(b, share::BOTH)?;
        let mut other = b.session()?;
        let all = [other.dir(), open(share::READ), ops::read(StateId::CURRENT, 0, 9)];
        let xid = other.send(0, false, &all)?;
        let write = ops::write(holder.state, 0, 2, b"jelly");
        holder.s.ok(&[ops::putfh(&holder.fh), write])?;
        holder.give_back()?;
        let mut reply = other.finish(0, xid)?;
        if reply.status == DELAY {
            reply = other.ok(&all)?;
        }
        same("the data", reply.data(2)?.1, b"jelly")
    }),
    v41("GETATTR by another asks the holder of a delegation for writing, or recalls it", |b| {
        let mut holder = Delegate::new(b, share::BOTH)?;
        let mut other = b.session()?;
        let all = [ops::putfh(&holder.fh), ops::getattr(&[3, 4])];
        let xid = other.send(0, false, &all)?;
        other.connection.set_patience(2)?;
        let first = other.finish(0, xid);
        other.connection.set_patience(crate::rpc::PATIENCE_SECONDS)?;
        match first {
            // A server may know that the holder has changed nothing, because the holder writes
            // through.
            Ok(reply) if reply.status == 0 => return Ok(()),
            Ok(reply) if reply.status == DELAY => {}
            Ok(reply) => bail!("the status is {}", reply.status),
            Err(Fault::Hangs(_)) => {}
            Err(fault) => return Err(fault.into()),
        }
        match &holder.s.callback()?[..] {
            [Callback::GetAttr { .. }] => Ok(()),
            [Callback::Recall { .. }] => {
                holder.s.ok(&[ops::putfh(&holder.fh), ops::delegreturn(holder.state)])?;
                Ok(())
            }
            other => bail!("the callback is {other:?}"),
        }
    }),
    v41("GETATTR by another shows what the holder of a delegation for writing reports", |b| {
        let mut holder = Delegate::new(b, share::BOTH)?;
        let mut other = b.session()?;
        let xid = other.send(0, false, &[ops::putfh(&holder.fh), ops::getattr(&[3, 4])])?;
        let attributes = Put::new().u32(1).u32(1 << 3 | 1 << 4);
        let attributes = attributes.opaque(Put::new().u64(u64::MAX / 3).u64(777).0).0;
        let asked = callback::answer(&mut holder.s.connection, &attributes)?;
        let reply = other.finish(0, xid)?;
        if asked.iter().any(|asked| matches!(asked, Callback::Recall { .. })) {
            same("the status", reply.status, DELAY)?;
            return Err(Skip("the server recalls the delegation".into()).into());
        }
        same("the size", reply.all_ok()?.attrs(1)?.number(4)?, 777)
    }),
    v41("WRITE of version 3 recalls a delegation for reading", |b| {
        version_3_recalls(b, share::READ, |b, fh| b.c.write(fh, 0, 2, b"x").map(drop))
    }),
    v41("READ of version 3 recalls a delegation for writing", |b| {
        version_3_recalls(b, share::BOTH, |b, fh| b.c.read(fh, 0, 5).map(drop))
    }),
    v41("REMOVE of version 3 recalls a delegation for reading", |b| {
        version_3_recalls(b, share::READ, |b, _| {
            let dir = b.dir.clone();
            b.c.remove(&dir, "f").map(drop)
        })
    }),
    v41("the holder's own operations do not recall its delegation", |b| {
        let mut holder = Delegate::new(b, share::BOTH)?;
        let all = [
            ops::putfh(&holder.fh),
            ops::write(holder.open, 0, 2, b"x"),
            ops::setattr(holder.open, &Set::new().size(3)),
            ops::getattr(&[3, 4]),
        ];
        holder.s.ok(&all)?;
        let reply = holder.s.ok(&[ops::test_stateid(&[holder.state])])?;
        same("the status", reply.body(0)?, &Body::Statuses(vec![0]))
    }),
    v41("a new instance of the holder ends its delegation", |b| {
        b.session()?.file("f", b"hello")?;
        let wish = b.wish();
        let mut s = b.session_of(&wish)?;
        let access = share::BOTH | share::WANT_WRITE;
        let (opened, _) = s.open("o", (access, 0), &How::Open, "f")?;
        if !matches!(opened.delegation, Delegation::Write(_)) {
            return Err(Skip("the server gives no delegation for writing".into()).into());
        }
        let new = crate::nfs4::session::Wish { verifier: *b"restart!", ..wish };
        let _new = b.session_of(&new)?;
        let mut other = b.session()?;
        other.ok(&[other.dir(), open(share::BOTH)])?;
        Ok(())
    }),
];
