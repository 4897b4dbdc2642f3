//! Cases of OPEN and CLOSE: claims, ways to create a file, names and permissions.

use anyhow::{Result, bail, ensure};

use super::{as_user, v41};
use crate::bench::{Bench, USER, await_tick, refusal, same};
use crate::nfs4::attributes::{
    CHANGE, FILEID, MODE, SIZE, SUPPATTR_EXCLCREAT, TIME_ACCESS, TIME_METADATA, TIME_MODIFY,
};
use crate::nfs4::ops::{self, Claim, How, Op, share};
use crate::nfs4::{Body, Session, Set, StateId};
use crate::rpc::Auth;
use crate::status::{
    ACCESS, ATTRNOTSUPP, BAD_STATEID, BADCHAR, BADNAME, BADXDR, EXIST, INVAL, ISDIR, NAMETOOLONG,
    NO_GRACE, NOENT, NOTSUPP, OLD_STATEID, OPENMODE, PERM, RECLAIM_BAD, ROFS, STALE, SYMLINK,
    WRONG_TYPE,
};
use crate::suite::Case;
use crate::xdr::Put;

const BOTH: u32 = share::BOTH | share::WANT_NONE;
const READ: u32 = share::READ | share::WANT_NONE;
const WRITE: u32 = share::WRITE | share::WANT_NONE;
const VERIFIER: [u8; 8] = *b"verifier";

fn open(access: u32, deny: u32, how: &How, name: impl AsRef<[u8]>) -> Op {
    ops::open(b"owner", access, deny, how, &Claim::Name(name.as_ref().to_vec()))
}

fn guarded() -> How {
    How::Guarded(Set::new().mode(0o644))
}

/// Checks that an OPEN of a name in the case's directory is refused.
fn refuses(b: &mut Bench, statuses: &[u32], op: Op) -> Result<()> {
    let mut s = b.session()?;
    s.fails(statuses, &[s.dir(), op]).map(drop)
}

/// Checks that another user may not open an existing file with this mode.
fn refuses_user(b: &mut Bench, mode: u32, access: u32) -> Result<()> {
    let (_root, mut user, _fh) = as_user(b, mode)?;
    user.fails(&[ACCESS], &[user.dir(), open(access, 0, &How::Open, "f")]).map(drop)
}

/// Checks that READ, WRITE and CLOSE with a state id all fail.
fn state_fails(s: &mut Session, fh: &[u8], state: StateId, statuses: &[u32]) -> Result<()> {
    let all = [ops::read(state, 0, 1), ops::write(state, 0, 2, b"x"), ops::close(state)];
    for op in all {
        s.fails(statuses, &[ops::putfh(fh), op])?;
    }
    Ok(())
}

/// Creates a file with a verifier two times. Returns the second reply. If it is a success, checks
/// that it is the same file.
fn exclusive(b: &mut Bench, first: &How, second: &How) -> Result<crate::nfs4::Reply> {
    let mut s = b.session()?;
    let one = s.ok(&[s.dir(), open(BOTH, 0, first, "f"), ops::getfh()])?;
    let reply = s.run(&[s.dir(), open(BOTH, 0, second, "f"), ops::getfh()])?;
    if reply.status == 0 {
        same("the handle", reply.fh(2)?, one.fh(2)?)?;
    }
    Ok(reply)
}

/// Returns a mode if exclusive creation can set it, and nothing if not.
fn exclusive_set(s: &mut Session) -> Result<Set> {
    let reply = s.ok(&[s.dir(), ops::getattr(&[SUPPATTR_EXCLCREAT])])?;
    let supported = reply.attrs(1)?.bits(SUPPATTR_EXCLCREAT)?;
    Ok(if supported.contains(&MODE) { Set::new().mode(0o640) } else { Set::new() })
}

/// Creates a file with a verifier. Checks that the reply names the times in which the server keeps
/// the verifier. A client that is not told does not set the real times.
fn names_wrong_times(b: &mut Bench, how: &How) -> Result<()> {
    let mut s = b.session()?;
    let (opened, fh) = s.open("o", (BOTH, 0), how, "f")?;
    let reply =
        s.ok(&[ops::putfh(&fh), ops::getattr(&[TIME_ACCESS, TIME_METADATA, TIME_MODIFY])])?;
    let attrs = reply.attrs(1)?;
    let now = attrs.time(TIME_METADATA)?.0;
    for time in [TIME_ACCESS, TIME_MODIFY] {
        let is_right = attrs.time(time)?.0.abs_diff(now) < 60;
        ensure!(is_right || opened.attrs.contains(&time), "attribute {time} is wrong");
    }
    Ok(())
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("OPEN of a file that exists returns a state id and the handle", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let (opened, found) = s.open("o", (READ, 0), &How::Open, "f")?;
        same("the handle", found, fh)?;
        same("the number", opened.state.seqid, 1)?;
        ensure!(opened.state.other != [0; 12], "the state id is a special one");
        Ok(())
    }),
    v41("OPEN asks for no confirmation", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let (opened, _) = s.open("o", (READ, 0), &How::Open, "f")?;
        same("the flag", opened.flags & 0x2, 0)
    }),
    v41("OPEN of a missing name fails with NOENT", |b| {
        refuses(b, &[NOENT], open(READ, 0, &How::Open, "none"))
    }),
    v41("OPEN UNCHECKED makes a file", |b| {
        let mut s = b.session()?;
        let how = How::Unchecked(Set::new().mode(0o640).size(7));
        let (opened, fh) = s.open("o", (BOTH, 0), &how, "f")?;
        let reply = s.ok(&[ops::putfh(&fh), ops::getattr(&[MODE, SIZE])])?;
        let attrs = reply.attrs(1)?;
        same("mode and size", (attrs.number(MODE)?, attrs.number(SIZE)?), (0o640, 7))?;
        ensure!(opened.attrs.contains(&MODE), "the reply does not say that the mode was set");
        Ok(())
    }),
    v41("OPEN UNCHECKED of a file that exists opens it as it is", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        let how = How::Unchecked(Set::new().mode(0o600));
        let (_, fh) = s.open("o", (BOTH, 0), &how, "f")?;
        let reply = s.ok(&[ops::putfh(&fh), ops::getattr(&[MODE, SIZE])])?;
        let attrs = reply.attrs(1)?;
        same("mode and size", (attrs.number(MODE)?, attrs.number(SIZE)?), (0o644, 5))
    }),
    v41("OPEN UNCHECKED with size 0 empties a file that exists", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        let (_, fh) = s.open("o", (BOTH, 0), &How::Unchecked(Set::new().size(0)), "f")?;
        let reply = s.ok(&[ops::putfh(&fh), ops::getattr(&[SIZE])])?;
        same("the size", reply.attrs(1)?.number(SIZE)?, 0)
    }),
    v41("OPEN GUARDED of a file that exists fails with EXIST", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        s.fails(&[EXIST], &[s.dir(), open(BOTH, 0, &guarded(), "f")])?;
        s.ok(&[s.dir(), ops::symlink("l", "t")])?;
        s.fails(&[EXIST], &[s.dir(), open(BOTH, 0, &guarded(), "l")])?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        s.fails(&[EXIST], &[s.dir(), open(BOTH, 0, &guarded(), "d")]).map(drop)
    }),
    v41("OPEN EXCLUSIVE with the same verifier opens the file again", |b| {
        let how = How::Exclusive(VERIFIER);
        exclusive(b, &how, &how)?.all_ok().map(drop).map_err(Into::into)
    }),
    v41("OPEN EXCLUSIVE with another verifier fails with EXIST", |b| {
        let reply = exclusive(b, &How::Exclusive(VERIFIER), &How::Exclusive(*b"somewhat"))?;
        refusal(&[EXIST], reply.all_ok()).map(drop)
    }),
    v41("OPEN EXCLUSIVE names the times in which it keeps the verifier", |b| {
        names_wrong_times(b, &How::Exclusive(VERIFIER))
    }),
    v41("OPEN EXCLUSIVE4_1 names the times in which it keeps the verifier", |b| {
        names_wrong_times(b, &How::Exclusive41(VERIFIER, Set::new()))
    }),
    v41("OPEN EXCLUSIVE4_1 makes a file, with the attributes that it can set", |b| {
        let mut s = b.session()?;
        let set = exclusive_set(&mut s)?;
        let sets_mode = set.0.contains_key(&MODE);
        let how = How::Exclusive41(VERIFIER, set);
        let (opened, fh) = s.open("o", (BOTH, 0), &how, "f")?;
        let reply = s.ok(&[ops::putfh(&fh), ops::getattr(&[MODE])])?;
        let mode = reply.attrs(1)?.number(MODE)?;
        ensure!(!sets_mode || mode == 0o640, "the mode is {mode:o}");
        ensure!(!sets_mode || opened.attrs.contains(&MODE), "the reply does not name the mode");
        Ok(())
    }),
    v41("OPEN EXCLUSIVE4_1 with the same verifier opens the file again", |b| {
        let how = How::Exclusive41(VERIFIER, exclusive_set(&mut b.session()?)?);
        exclusive(b, &how, &how)?.all_ok().map(drop).map_err(Into::into)
    }),
    v41("OPEN EXCLUSIVE4_1 with another verifier fails with EXIST", |b| {
        let set = exclusive_set(&mut b.session()?)?;
        let first = How::Exclusive41(VERIFIER, set.clone());
        let second = How::Exclusive41(*b"somewhat", set);
        refusal(&[EXIST], exclusive(b, &first, &second)?.all_ok()).map(drop)
    }),
    v41("OPEN EXCLUSIVE4_1 with an attribute that it cannot set fails", |b| {
        let set = Set::new().with(FILEID, Put::new().u64(1));
        let how = How::Exclusive41(VERIFIER, set);
        refuses(b, &[INVAL, ATTRNOTSUPP], open(BOTH, 0, &how, "f"))
    }),
    v41("OPEN that creates with an unknown attribute fails with ATTRNOTSUPP", |b| {
        let how = How::Guarded(Set::new().with(150, Put::new().u32(1)));
        refuses(b, &[ATTRNOTSUPP], open(BOTH, 0, &how, "f"))
    }),
    v41("OPEN returns the change of the directory", |b| {
        let mut s = b.session()?;
        await_tick();
        let before = s.ok(&[s.dir(), ops::getattr(&[CHANGE])])?.attrs(1)?.number(CHANGE)?;
        let (opened, _) = s.open("o", (BOTH, 0), &guarded(), "f")?;
        let after = s.ok(&[s.dir(), ops::getattr(&[CHANGE])])?.attrs(1)?.number(CHANGE)?;
        same("the value before", opened.change.before, before)?;
        ensure!(opened.change.after != before && after != before, "the value stays {before}");
        Ok(())
    }),
    v41("OPEN of a directory fails with ISDIR", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        s.fails(&[ISDIR], &[s.dir(), open(READ, 0, &How::Open, "d")]).map(drop)
    }),
    v41("OPEN of a symbolic link fails with SYMLINK", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::symlink("l", "t")])?;
        s.fails(&[SYMLINK], &[s.dir(), open(READ, 0, &How::Open, "l")]).map(drop)
    }),
    v41("OPEN of a named pipe fails", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::create(Put::new().u32(7), "p", &Set::new().mode(0o666))])?;
        let op = open(READ, 0, &How::Open, "p");
        s.fails(&[WRONG_TYPE, SYMLINK, INVAL], &[s.dir(), op]).map(drop)
    }),
    v41("OPEN without access fails with INVAL", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.fails(&[INVAL], &[s.dir(), open(0, 0, &How::Open, "f")])?;
        s.fails(&[INVAL], &[s.dir(), open(share::WANT_NONE, 0, &How::Open, "f")]).map(drop)
    }),
    v41("OPEN with an unknown access or deny fails with INVAL", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.fails(&[INVAL, BADXDR], &[s.dir(), open(0x4, 0, &How::Open, "f")])?;
        s.fails(&[INVAL, BADXDR], &[s.dir(), open(READ, 4, &How::Open, "f")]).map(drop)
    }),
    v41("OPEN of a name that no file can have fails", |b| {
        let mut s = b.session()?;
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            let statuses = [BADNAME, BADCHAR, INVAL, EXIST, ISDIR];
            s.fails(&statuses, &[s.dir(), open(BOTH, 0, &guarded(), name)])?;
        }
        Ok(())
    }),
    v41("OPEN of a long name fails with NAMETOOLONG", |b| {
        refuses(b, &[NAMETOOLONG], open(BOTH, 0, &guarded(), [b'n'; 256]))
    }),
    v41("OPEN with an owner of 1,025 bytes fails with BADXDR", |b| {
        let claim = Claim::Name(b"f".to_vec());
        refuses(b, &[BADXDR], ops::open(&[7; 1025], BOTH, 0, &guarded(), &claim))
    }),
    v41("OPEN with an unknown way to create fails with BADXDR", |b| {
        let put = Put::new().u32(0).u32(BOTH).u32(0).u64(0).opaque("o").u32(1).u32(9);
        refuses(b, &[BADXDR], ops::op(ops::OPEN, put.u32(0).opaque("f")))
    }),
    v41("OPEN with an unknown claim fails with BADXDR", |b| {
        let put = Put::new().u32(0).u32(BOTH).u32(0).u64(0).opaque("o").u32(0).u32(99);
        refuses(b, &[BADXDR], ops::op(ops::OPEN, put.opaque("f")))
    }),
    v41("OPEN for reading without the right fails with ACCESS", |b| refuses_user(b, 0o602, READ)),
    v41("OPEN for writing without the right fails with ACCESS", |b| refuses_user(b, 0o604, WRITE)),
    v41("OPEN for both with the right to read alone fails with ACCESS", |b| {
        refuses_user(b, 0o604, BOTH)
    }),
    v41("OPEN that creates without the right to write the directory fails", |b| {
        let mut root = b.session()?;
        let set = ops::setattr(StateId::ANONYMOUS, &Set::new().mode(0o755));
        let fh = root.ok(&[root.dir(), ops::mkdir("d"), set, ops::getfh()])?.fh(3)?;
        let mut user = b.session_as(Auth::user(USER))?;
        let op = open(BOTH, 0, &guarded(), "f");
        user.fails(&[ACCESS, PERM], &[ops::putfh(&fh), op]).map(drop)
    }),
    v41("OPEN of a new file for writing with mode 0 succeeds for its maker", |b| {
        let mut user = b.session_as(Auth::user(USER))?;
        let how = How::Guarded(Set::new().mode(0));
        let (opened, fh) = user.open("o", (BOTH, 0), &how, "f")?;
        user.ok(&[ops::putfh(&fh), ops::write(opened.state, 0, 2, b"x")])?;
        Ok(())
    }),
    v41("an open stays usable when the mode takes the right away", |b| {
        let (mut root, mut user, fh) = as_user(b, 0o666)?;
        let (opened, _) = user.open("o", (BOTH, 0), &How::Open, "f")?;
        let set = ops::setattr(StateId::ANONYMOUS, &Set::new().mode(0o600));
        root.ok(&[ops::putfh(&fh), set])?;
        user.ok(&[ops::putfh(&fh), ops::read(opened.state, 0, 4)])?;
        Ok(())
    }),
    v41("OPEN that creates in the read-only export fails with ROFS", |b| {
        let path = b.read_only_path()?;
        let mut s = b.session()?;
        let fh = b.walk_from(&mut s, &path)?;
        s.fails(&[ROFS], &[ops::putfh(&fh), open(BOTH, 0, &guarded(), "x")])?;
        s.fails(&[ROFS], &[ops::putfh(&fh), open(WRITE, 0, &How::Open, "file")])?;
        s.ok(&[ops::putfh(&fh), open(READ, 0, &How::Open, "file")])?;
        Ok(())
    }),
    v41("OPEN by handle opens the current file", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let op = ops::open(b"o", READ, 0, &How::Open, &Claim::Fh);
        let state = s.ok(&[ops::putfh(&fh), op])?.state(1)?;
        let reply = s.ok(&[ops::putfh(&fh), ops::read(state, 0, 10)])?;
        same("the data", reply.data(1)?.1, b"hello")
    }),
    v41("OPEN by handle of a directory fails with ISDIR", |b| {
        let mut s = b.session()?;
        let op = ops::open(b"o", READ, 0, &How::Open, &Claim::Fh);
        s.fails(&[ISDIR], &[s.dir(), op]).map(drop)
    }),
    v41("OPEN that reclaims outside of the grace period fails with NO_GRACE", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let op = ops::open(b"o", READ, 0, &How::Open, &Claim::Previous(0));
        s.fails(&[NO_GRACE, RECLAIM_BAD], &[ops::putfh(&fh), op]).map(drop)
    }),
    v41("OPEN under a delegation that does not exist fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let state = StateId::UNKNOWN;
        let statuses = [BAD_STATEID, crate::status::STALE_STATEID, NOTSUPP];
        let op = ops::open(b"o", READ, 0, &How::Open, &Claim::DelegCurFh(state));
        s.fails(&statuses, &[ops::putfh(&fh), op])?;
        let claim = Claim::DelegateCur(state, b"f".to_vec());
        s.fails(&statuses, &[s.dir(), ops::open(b"o", READ, 0, &How::Open, &claim)]).map(drop)
    }),
    v41("OPEN under a delegation of the last instance is refused", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let op = ops::open(b"o", READ, 0, &How::Open, &Claim::DelegPrevFh);
        let statuses = [NOTSUPP, RECLAIM_BAD, NO_GRACE, BAD_STATEID, INVAL];
        s.fails(&statuses, &[ops::putfh(&fh), op]).map(drop)
    }),
    v41("OPEN again by the same owner raises the number of the state id", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let (one, _) = s.open("o", (READ, 0), &How::Open, "f")?;
        let (two, _) = s.open("o", (WRITE, 0), &How::Open, "f")?;
        same("the identity", two.state.other, one.state.other)?;
        same("the number", two.state.seqid, one.state.seqid + 1)
    }),
    v41("OPEN by another owner has another state id", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let (one, _) = s.open("o", (READ, 0), &How::Open, "f")?;
        let (two, _) = s.open("p", (READ, 0), &How::Open, "f")?;
        ensure!(one.state.other != two.state.other, "the state ids are equal");
        Ok(())
    }),
    v41("OPEN again adds access to what the first has", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        s.open("o", (READ, 0), &How::Open, "f")?;
        let (two, fh) = s.open("o", (WRITE, 0), &How::Open, "f")?;
        s.ok(&[ops::putfh(&fh), ops::write(two.state, 0, 2, b"x")])?;
        s.ok(&[ops::putfh(&fh), ops::read(two.state, 0, 5)])?;
        Ok(())
    }),
    v41("CLOSE ends the open", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::close(state)])?;
        state_fails(&mut s, &fh, state, &[BAD_STATEID])
    }),
    v41("CLOSE ends an open that was made twice by its owner", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.open("o", (BOTH, 0), &How::Open, "f")?;
        let (two, fh) = s.open("o", (BOTH, 0), &How::Open, "f")?;
        s.ok(&[ops::putfh(&fh), ops::close(two.state)])?;
        state_fails(&mut s, &fh, two.state, &[BAD_STATEID])
    }),
    v41("CLOSE with the number 0 takes the current one", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::close(state.at(0))])?;
        Ok(())
    }),
    v41("an old number of a state id fails with OLD_STATEID", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let (one, _) = s.open("o", (BOTH, 0), &How::Open, "f")?;
        let (_, fh) = s.open("o", (BOTH, 0), &How::Open, "f")?;
        state_fails(&mut s, &fh, one.state, &[OLD_STATEID])
    }),
    v41("a number of a state id from the future fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        state_fails(&mut s, &fh, state.at(state.seqid + 5), &[BAD_STATEID])
    }),
    v41("a state id that no server made fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let (_, fh) = s.opened("f")?;
        let statuses = [BAD_STATEID, crate::status::STALE_STATEID];
        state_fails(&mut s, &fh, StateId { seqid: 1, other: [0x5a; 12] }, &statuses)?;
        state_fails(&mut s, &fh, StateId::INVALID, &[BAD_STATEID])
    }),
    v41("a state id with a changed bit fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let statuses = [BAD_STATEID, crate::status::STALE_STATEID];
        for at in 0..12 {
            let mut other = state.other;
            other[at] ^= 0x10;
            let read = ops::read(StateId { other, ..state }, 0, 1);
            s.fails(&statuses, &[ops::putfh(&fh), read])?;
        }
        Ok(())
    }),
    v41("the state id of another client fails with BAD_STATEID", |b| {
        let mut one = b.session()?;
        let (state, fh) = one.opened("f")?;
        let mut other = b.session()?;
        let statuses = [BAD_STATEID, ACCESS, crate::status::STALE_STATEID];
        other.fails(&statuses, &[ops::putfh(&fh), ops::close(state)])?;
        other.fails(&statuses, &[ops::putfh(&fh), ops::write(state, 0, 2, b"x")]).map(drop)
    }),
    v41("the state id of another file fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let (state, _) = s.opened("f")?;
        let other = s.file("g", b"data")?;
        state_fails(&mut s, &other, state, &[BAD_STATEID, INVAL])
    }),
    v41("CLOSE with a special state id fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let (_, fh) = s.opened("f")?;
        for state in [StateId::ANONYMOUS, StateId::BYPASS, StateId::CURRENT] {
            s.fails(&[BAD_STATEID], &[ops::putfh(&fh), ops::close(state)])?;
        }
        Ok(())
    }),
    v41("CLOSE returns a state id that is invalid", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        let closed = s.ok(&[ops::putfh(&fh), ops::close(state)])?.state(1)?;
        s.fails(&[BAD_STATEID], &[ops::putfh(&fh), ops::read(closed, 0, 1)]).map(drop)
    }),
    v41("the current state id stands for the open before it", |b| {
        let mut s = b.session()?;
        let now = StateId::CURRENT;
        let make = open(BOTH, 0, &guarded(), "f");
        let rest = [ops::write(now, 0, 2, b"hello"), ops::read(now, 0, 9), ops::close(now)];
        let reply = s.ok(&[&[s.dir(), make][..], &rest].concat())?;
        same("the data", reply.data(3)?.1, b"hello")
    }),
    v41("the current state id is saved and restored with the handle", |b| {
        let mut s = b.session()?;
        let now = StateId::CURRENT;
        let all = [
            s.dir(),
            open(BOTH, 0, &guarded(), "f"),
            ops::savefh(),
            s.dir(),
            open(BOTH, 0, &guarded(), "g"),
            ops::write(now, 0, 2, b"into g"),
            ops::restorefh(),
            ops::write(now, 0, 2, b"into f"),
            ops::read(now, 0, 9),
        ];
        same("the data", s.ok(&all)?.data(8)?.1, b"into f")
    }),
    v41("PUTFH ends the current state id", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let read = ops::read(StateId::CURRENT, 0, 1);
        let all = [s.dir(), open(BOTH, 0, &How::Open, "f"), ops::putfh(&fh), read];
        s.fails(&[BAD_STATEID], &all).map(drop)
    }),
    v41("WRITE with an open for reading fails with OPENMODE", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        let (opened, fh) = s.open("o", (READ, 0), &How::Open, "f")?;
        let op = ops::write(opened.state, 0, 2, b"x");
        s.fails(&[OPENMODE], &[ops::putfh(&fh), op]).map(drop)
    }),
    v41("READ with an open for writing fails with OPENMODE or is served", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        let (opened, fh) = s.open("o", (WRITE, 0), &How::Open, "f")?;
        let reply = s.run(&[ops::putfh(&fh), ops::read(opened.state, 0, 5)])?;
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[OPENMODE], reply.all_ok()).map(drop),
        }
    }),
    v41("a file that is removed while open can be used until it is closed, or is stale", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        let (opened, fh) = s.open("o", (BOTH, 0), &How::Open, "f")?;
        s.ok(&[s.dir(), ops::remove("f")])?;
        let reply = s.run(&[ops::putfh(&fh), ops::read(opened.state, 0, 5)])?;
        let promised = opened.flags & 0x8 != 0;
        match reply.status {
            0 => same("the data", reply.data(1)?.1, b"hello"),
            _ if promised => bail!("the server has promised to keep the file"),
            _ => refusal(&[STALE], reply.all_ok()).map(drop),
        }
    }),
    v41("a file that is removed while open is gone after CLOSE", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[s.dir(), ops::remove("f")])?;
        let reply = s.run(&[ops::putfh(&fh), ops::close(state)])?;
        if reply.status != 0 {
            refusal(&[STALE, BAD_STATEID], reply.all_ok())?;
        }
        let reply = s.run(&[ops::putfh(&fh), ops::getattr(&[1])])?;
        refusal(&[STALE], reply.all_ok()).map(drop)
    }),
    v41("an open follows a file that is renamed", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[s.dir(), ops::savefh(), s.dir(), ops::rename("f", "g")])?;
        s.ok(&[ops::putfh(&fh), ops::write(state, 0, 2, b"x"), ops::close(state)])?;
        Ok(())
    }),
    v41("many opens of many owners are kept apart", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let mut states = Vec::new();
        for index in 0..50 {
            states.push(s.open(&format!("owner {index}"), (READ, 0), &How::Open, "f")?.0.state);
        }
        for state in states.iter().rev() {
            s.ok(&[ops::putfh(&fh), ops::read(*state, 0, 5), ops::close(*state)])?;
        }
        let reply = s.ok(&[ops::test_stateid(&states)])?;
        let Body::Statuses(statuses) = reply.body(0)? else { bail!("no statuses") };
        same("the valid ones", statuses.iter().filter(|status| **status == 0).count(), 0)
    }),
];
