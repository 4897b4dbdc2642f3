//! Cases of GETATTR, SETATTR, VERIFY, NVERIFY and ACCESS.

use anyhow::{Result, ensure};

use super::{as_user, v41, v42};
use crate::bench::{Bench, OTHER, USER, await_tick, refusal, same};
use crate::nfs4::attributes as a;
use crate::nfs4::{Attrs, Body, Op, Session, Set, StateId, ops};
use crate::status::{
    ACCESS, ATTRNOTSUPP, BAD_STATEID, BADOWNER, BADXDR, FBIG, INVAL, ISDIR, NOT_SAME, OPENMODE,
    PERM, SAME,
};
use crate::suite::Case;
use crate::xdr::Put;

/// Returns attributes of a file.
fn get(s: &mut Session, fh: &[u8], numbers: &[u32]) -> Result<Attrs> {
    Ok(s.ok(&[ops::putfh(fh), ops::getattr(numbers)])?.attrs(1)?.clone())
}

/// Sets attributes of a file, with the anonymous state id.
fn set(s: &mut Session, fh: &[u8], set: &Set) -> Result<()> {
    s.ok(&[ops::putfh(fh), ops::setattr(StateId::ANONYMOUS, set)])?;
    Ok(())
}

fn set_fails(s: &mut Session, fh: &[u8], set: &Set, statuses: &[u32]) -> Result<()> {
    s.fails(statuses, &[ops::putfh(fh), ops::setattr(StateId::ANONYMOUS, set)]).map(drop)
}

/// Checks that an operation that changes a file also raises the file's change attribute.
fn changes(b: &mut Bench, change: impl Fn(&mut Session, &[u8]) -> Result<()>) -> Result<()> {
    let mut s = b.session()?;
    let fh = s.file("f", b"hello")?;
    let mut last = get(&mut s, &fh, &[a::CHANGE])?.number(a::CHANGE)?;
    for _ in 0..5 {
        change(&mut s, &fh)?;
        let now = get(&mut s, &fh, &[a::CHANGE])?.number(a::CHANGE)?;
        ensure!(now > last, "the value goes from {last} to {now}");
        last = now;
    }
    Ok(())
}

fn supported(s: &mut Session) -> Result<Vec<u32>> {
    let dir = s.dir.clone();
    Ok(get(s, &dir, &[a::SUPPORTED_ATTRS])?.bits(a::SUPPORTED_ATTRS)?)
}

/// Creates a file of user 0 with a mode. Returns the rights that ACCESS grants another user.
fn rights(b: &mut Bench, mode: u32) -> Result<u32> {
    let (_root, mut user, fh) = as_user(b, mode)?;
    match user.ok(&[ops::putfh(&fh), ops::access(0x3f)])?.body(1)? {
        Body::Access { granted, .. } => Ok(*granted),
        other => anyhow::bail!("{other:?} is no right"),
    }
}

/// Returns a VERIFY or NVERIFY that compares the mode.
fn compare(number: u32, mode: u32) -> Op {
    let set = Set::new().mode(mode);
    if number == ops::VERIFY { ops::verify(&set) } else { ops::nverify(&set) }
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("the required attributes are supported", |b| {
        let supported = supported(&mut b.session()?)?;
        let missing: Vec<_> =
            a::REQUIRED.iter().filter(|number| !supported.contains(number)).collect();
        ensure!(missing.is_empty(), "{missing:?} are missing");
        Ok(())
    }),
    v41("the attributes that the Linux client needs are supported", |b| {
        let supported = supported(&mut b.session()?)?;
        let needed = [a::FILEID, a::MODE, a::NUMLINKS, a::OWNER, a::OWNER_GROUP, a::RAWDEV];
        let times = [a::TIME_ACCESS, a::TIME_METADATA, a::TIME_MODIFY, a::SPACE_USED];
        let limits = [a::MAXREAD, a::MAXWRITE, a::MAXFILESIZE, a::MAXNAME, a::MAXLINK];
        let all = [&needed[..], &times, &limits, &[a::MOUNTED_ON_FILEID]].concat();
        let missing: Vec<_> = all.iter().filter(|number| !supported.contains(number)).collect();
        ensure!(missing.is_empty(), "{missing:?} are missing");
        Ok(())
    }),
    v41("every supported attribute can be read from a file, alone and together", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let mut all = supported(&mut s)?;
        all.retain(|number| a::ALL.contains(number) && *number != a::RDATTR_ERROR);
        for number in &all {
            get(&mut s, &fh, &[*number])?;
        }
        let together = get(&mut s, &fh, &all)?;
        ensure!(together.0.contains_key(&a::SIZE), "the size is missing");
        Ok(())
    }),
    v41("GETATTR returns the required attributes of a directory", |b| {
        let mut s = b.session()?;
        let dir = s.dir.clone();
        let attrs = get(&mut s, &dir, a::REQUIRED)?;
        same("the number of attributes", attrs.0.len(), a::REQUIRED.len())?;
        same("the type", attrs.number(a::TYPE)?, 2)?;
        same("the handle", attrs.bytes(a::FILEHANDLE)?, dir)
    }),
    v41("GETATTR returns no attribute that was not asked for", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let attrs = get(&mut s, &fh, &[a::SIZE, a::TYPE])?;
        same("the attributes", attrs.0.keys().copied().collect(), vec![a::TYPE, a::SIZE])
    }),
    v41("GETATTR of nothing returns nothing", |b| {
        let mut s = b.session()?;
        let dir = s.dir.clone();
        same("the attributes", get(&mut s, &dir, &[])?, Attrs::default())
    }),
    v41("GETATTR of an unknown attribute leaves it out", |b| {
        let mut s = b.session()?;
        let dir = s.dir.clone();
        let attrs = get(&mut s, &dir, &[a::TYPE, 200])?;
        same("the attributes", attrs.0.keys().copied().collect(), vec![a::TYPE])
    }),
    v41("GETATTR of an attribute that can only be set fails with INVAL", |b| {
        let mut s = b.session()?;
        s.fails(&[INVAL], &[s.dir(), ops::getattr(&[a::TIME_MODIFY_SET])])?;
        s.fails(&[INVAL], &[s.dir(), ops::getattr(&[a::TIME_ACCESS_SET])]).map(drop)
    }),
    v41("GETATTR shows what was made", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let attrs = get(&mut s, &fh, &[a::TYPE, a::SIZE, a::MODE, a::NUMLINKS])?;
        let got = (attrs.number(a::TYPE)?, attrs.number(a::SIZE)?, attrs.number(a::MODE)?);
        same("type, size and mode", got, (1, 5, 0o644))?;
        same("the links", attrs.number(a::NUMLINKS)?, 1)
    }),
    v41("owner and group are shown as numbers or names", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set(&mut s, &fh, &Set::new().owner("12001").group("12002"))?;
        let attrs = get(&mut s, &fh, &[a::OWNER, a::OWNER_GROUP])?;
        same("the owner", attrs.bytes(a::OWNER)?, b"12001".to_vec())?;
        same("the group", attrs.bytes(a::OWNER_GROUP)?, b"12002".to_vec())
    }),
    v41("the lease time is between 1 and 3,600 seconds", |b| {
        let mut s = b.session()?;
        let dir = s.dir.clone();
        let lease = get(&mut s, &dir, &[a::LEASE_TIME])?.number(a::LEASE_TIME)?;
        ensure!((1..=3600).contains(&lease), "it is {lease}");
        Ok(())
    }),
    v41("handles are persistent", |b| {
        let mut s = b.session()?;
        let dir = s.dir.clone();
        same("the lifetime", get(&mut s, &dir, &[a::FH_EXPIRE_TYPE])?.number(a::FH_EXPIRE_TYPE)?, 0)
    }),
    v41(
        "the server's root has another file system number than the export, or the same path",
        |b| {
            let mut s = b.session()?;
            let dir = s.dir.clone();
            let inside = get(&mut s, &dir, &[a::FSID])?;
            let reply = s.ok(&[ops::putrootfh(), ops::getattr(&[a::FSID])])?;
            let is_root = b.target.path == "/";
            ensure!(is_root || *reply.attrs(1)? != inside, "the numbers are equal");
            Ok(())
        },
    ),
    v41("the attributes for exclusive creation are a part of all", |b| {
        let mut s = b.session()?;
        let all = supported(&mut s)?;
        let dir = s.dir.clone();
        let some = get(&mut s, &dir, &[a::SUPPATTR_EXCLCREAT])?.bits(a::SUPPATTR_EXCLCREAT)?;
        ensure!(some.iter().all(|number| all.contains(number)), "{some:?} are not in {all:?}");
        Ok(())
    }),
    v41("WRITE raises the change attribute", |b| {
        changes(b, |s, fh| {
            let write = ops::write(StateId::ANONYMOUS, 0, 0, b"x");
            s.ok(&[ops::putfh(fh), write]).map(drop).map_err(Into::into)
        })
    }),
    v41("SETATTR of the mode raises the change attribute", |b| {
        changes(b, |s, fh| set(s, fh, &Set::new().mode(0o600)))
    }),
    v41("SETATTR of the size raises the change attribute", |b| {
        changes(b, |s, fh| set(s, fh, &Set::new().size(3)))
    }),
    v41("LINK raises the change attribute of the file", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let before = get(&mut s, &fh, &[a::CHANGE])?.number(a::CHANGE)?;
        s.ok(&[ops::putfh(&fh), ops::savefh(), s.dir(), ops::link("g")])?;
        let after = get(&mut s, &fh, &[a::CHANGE])?.number(a::CHANGE)?;
        ensure!(after > before, "it stays {before}");
        Ok(())
    }),
    v41("a new name raises the change attribute of the directory", |b| {
        let mut s = b.session()?;
        let dir = s.dir.clone();
        let before = get(&mut s, &dir, &[a::CHANGE])?.number(a::CHANGE)?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        let after = get(&mut s, &dir, &[a::CHANGE])?.number(a::CHANGE)?;
        ensure!(after > before, "it stays {before}");
        Ok(())
    }),
    v41("reading leaves the change attribute as it is", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        await_tick();
        let before = get(&mut s, &fh, &[a::CHANGE])?;
        s.ok(&[ops::putfh(&fh), ops::read(StateId::ANONYMOUS, 0, 5)])?;
        same("the value", get(&mut s, &fh, &[a::CHANGE])?, before)
    }),
    v41("SETATTR sets the mode and says so", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let op = ops::setattr(StateId::ANONYMOUS, &Set::new().mode(0o604));
        let reply = s.ok(&[ops::putfh(&fh), op])?;
        same("what was set", reply.body(1)?, &Body::Bits(vec![a::MODE]))?;
        same("the mode", get(&mut s, &fh, &[a::MODE])?.number(a::MODE)?, 0o604)
    }),
    v41("SETATTR sets the size with the anonymous state id", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        set(&mut s, &fh, &Set::new().size(2))?;
        same("the size", get(&mut s, &fh, &[a::SIZE])?.number(a::SIZE)?, 2)
    }),
    v41("SETATTR sets the size with the state id of an open", |b| {
        let mut s = b.session()?;
        let (state, fh) = s.opened("f")?;
        s.ok(&[ops::putfh(&fh), ops::setattr(state, &Set::new().size(7))])?;
        same("the size", get(&mut s, &fh, &[a::SIZE])?.number(a::SIZE)?, 7)
    }),
    v41("SETATTR of the size with an open for reading fails with OPENMODE", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        let access = ops::share::READ | ops::share::WANT_NONE;
        let (opened, fh) = s.open("o", (access, 0), &ops::How::Open, "f")?;
        let op = ops::setattr(opened.state, &Set::new().size(1));
        s.fails(&[OPENMODE], &[ops::putfh(&fh), op]).map(drop)
    }),
    v41("SETATTR of the size with an unknown state id fails with BAD_STATEID", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let state = StateId::UNKNOWN;
        let op = ops::setattr(state, &Set::new().size(1));
        s.fails(&[BAD_STATEID, crate::status::STALE_STATEID], &[ops::putfh(&fh), op]).map(drop)
    }),
    v41("SETATTR of a directory's size fails", |b| {
        let mut s = b.session()?;
        let dir = s.dir.clone();
        set_fails(&mut s, &dir, &Set::new().size(0), &[ISDIR, INVAL])
    }),
    v41("SETATTR of the largest size fails with FBIG", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set_fails(&mut s, &fh, &Set::new().size(u64::MAX), &[FBIG, INVAL])
    }),
    v41("SETATTR sets the time of modification", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set(&mut s, &fh, &Set::new().mtime(1_000_000, 5000))?;
        same("it", get(&mut s, &fh, &[a::TIME_MODIFY])?.time(a::TIME_MODIFY)?, (1_000_000, 5000))
    }),
    v41("SETATTR sets a time before 1970", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set(&mut s, &fh, &Set::new().mtime(-1000, 0))?;
        same("it", get(&mut s, &fh, &[a::TIME_MODIFY])?.time(a::TIME_MODIFY)?, (-1000, 0))
    }),
    v41("SETATTR of a time with a billion nanoseconds fails with INVAL", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set_fails(&mut s, &fh, &Set::new().mtime(1, 1_000_000_000), &[INVAL])
    }),
    v41("SETATTR sets the time of the last access to the server's clock", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set(&mut s, &fh, &Set::new().atime_now())?;
        let (seconds, _) = get(&mut s, &fh, &[a::TIME_ACCESS])?.time(a::TIME_ACCESS)?;
        ensure!(seconds > 1_000_000_000, "it is {seconds}");
        Ok(())
    }),
    v41("SETATTR changes the time of metadata", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let before = get(&mut s, &fh, &[a::TIME_METADATA])?.time(a::TIME_METADATA)?;
        await_tick();
        set(&mut s, &fh, &Set::new().mode(0o600))?;
        let after = get(&mut s, &fh, &[a::TIME_METADATA])?.time(a::TIME_METADATA)?;
        ensure!(after > before, "it stays {before:?}");
        Ok(())
    }),
    v41("SETATTR of an attribute that can only be read fails with INVAL", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set_fails(&mut s, &fh, &Set::new().with(a::TYPE, Put::new().u32(1)), &[INVAL])?;
        set_fails(&mut s, &fh, &Set::new().with(a::FILEID, Put::new().u64(1)), &[INVAL])
    }),
    v41("SETATTR of an unknown attribute fails with ATTRNOTSUPP", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set_fails(&mut s, &fh, &Set::new().with(150, Put::new().u32(1)), &[ATTRNOTSUPP])
    }),
    v41("SETATTR with values that are too short fails with BADXDR", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set_fails(&mut s, &fh, &Set::new().with(a::SIZE, Put::new().u32(1)), &[BADXDR])
    }),
    v41("SETATTR with values that are too long fails with BADXDR", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let long = Put::new().u32(0o600).u32(7);
        set_fails(&mut s, &fh, &Set::new().with(a::MODE, long), &[BADXDR])
    }),
    v41("SETATTR of a mode with bits of the file type fails or ignores them", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let op = ops::setattr(StateId::ANONYMOUS, &Set::new().mode(0o100_600));
        let reply = s.run(&[ops::putfh(&fh), op])?;
        match reply.status {
            0 => same("the mode", get(&mut s, &fh, &[a::MODE])?.number(a::MODE)?, 0o600),
            _ => refusal(&[INVAL], reply.all_ok()).map(drop),
        }
    }),
    v41("SETATTR of an owner that does not exist fails with BADOWNER", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let owner = Set::new().owner("nobody-has-this-name@example.invalid");
        set_fails(&mut s, &fh, &owner, &[BADOWNER])?;
        set_fails(&mut s, &fh, &Set::new().owner(""), &[BADOWNER, INVAL])?;
        set_fails(&mut s, &fh, &Set::new().owner("99999999999"), &[BADOWNER])
    }),
    v41("SETATTR of nothing succeeds", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        set(&mut s, &fh, &Set::new())
    }),
    v41("SETATTR by a user who does not own the file fails", |b| {
        let (_root, mut user, fh) = as_user(b, 0o666)?;
        set_fails(&mut user, &fh, &Set::new().mode(0o777), &[PERM, ACCESS])
    }),
    v41("SETATTR of the owner by a user fails with PERM", |b| {
        let (mut root, mut user, fh) = as_user(b, 0o644)?;
        set(&mut root, &fh, &Set::new().owner(&USER.to_string()))?;
        set_fails(&mut user, &fh, &Set::new().owner(&OTHER.to_string()), &[PERM, ACCESS])
    }),
    v41("SETATTR of the size by a user without the right to write fails", |b| {
        let (_root, mut user, fh) = as_user(b, 0o644)?;
        set_fails(&mut user, &fh, &Set::new().size(1), &[ACCESS, PERM])
    }),
    v41("a failed SETATTR of two attributes says what it has set", |b| {
        let (_root, mut user, fh) = as_user(b, 0o666)?;
        let op = ops::setattr(StateId::ANONYMOUS, &Set::new().size(1).mode(0o777));
        let reply = user.fails(&[PERM, ACCESS], &[ops::putfh(&fh), op])?;
        let Body::Bits(done) = reply.body(1)?.clone() else { anyhow::bail!("no bitmap") };
        ensure!(!done.contains(&a::MODE), "it says that the mode was set");
        Ok(())
    }),
    v41("VERIFY of equal attributes goes on", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let reply = s.ok(&[ops::putfh(&fh), compare(ops::VERIFY, 0o644), ops::getfh()])?;
        same("the handle", reply.fh(2)?, fh)
    }),
    v41("VERIFY of other attributes fails with NOT_SAME", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        s.fails(&[NOT_SAME], &[ops::putfh(&fh), compare(ops::VERIFY, 0o600)]).map(drop)
    }),
    v41("NVERIFY of equal attributes fails with SAME", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        s.fails(&[SAME], &[ops::putfh(&fh), compare(ops::NVERIFY, 0o644)]).map(drop)
    }),
    v41("NVERIFY of other attributes goes on", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        s.ok(&[ops::putfh(&fh), compare(ops::NVERIFY, 0o600), ops::getfh()])?;
        Ok(())
    }),
    v41("VERIFY and NVERIFY of the change attribute see a change", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        await_tick();
        let change = get(&mut s, &fh, &[a::CHANGE])?.number(a::CHANGE)?;
        let before = Set::new().with(a::CHANGE, Put::new().u64(change));
        s.ok(&[ops::putfh(&fh), ops::verify(&before)])?;
        set(&mut s, &fh, &Set::new().mode(0o600))?;
        s.ok(&[ops::putfh(&fh), ops::nverify(&before)])?;
        s.fails(&[NOT_SAME], &[ops::putfh(&fh), ops::verify(&before)]).map(drop)
    }),
    v41("VERIFY of an attribute that can only be set fails with INVAL", |b| {
        let mut s = b.session()?;
        let set = Set::new().mtime(1, 0);
        s.fails(&[INVAL], &[s.dir(), ops::verify(&set)])?;
        s.fails(&[INVAL], &[s.dir(), ops::nverify(&set)]).map(drop)
    }),
    v41("VERIFY of the error of listings fails with INVAL", |b| {
        let mut s = b.session()?;
        let set = Set::new().with(a::RDATTR_ERROR, Put::new().u32(0));
        s.fails(&[INVAL], &[s.dir(), ops::verify(&set)])?;
        s.fails(&[INVAL], &[s.dir(), ops::nverify(&set)]).map(drop)
    }),
    v41("VERIFY of an unknown attribute fails with ATTRNOTSUPP", |b| {
        let mut s = b.session()?;
        let set = Set::new().with(150, Put::new().u32(1));
        s.fails(&[ATTRNOTSUPP], &[s.dir(), ops::verify(&set)])?;
        s.fails(&[ATTRNOTSUPP], &[s.dir(), ops::nverify(&set)]).map(drop)
    }),
    v41("ACCESS grants others what the mode says", |b| same("the rights", rights(b, 0o604)?, 0x1)),
    v41("ACCESS grants others to write", |b| same("the rights", rights(b, 0o602)? & 0x2d, 0xc)),
    v41("ACCESS grants others nothing with mode 770", |b| same("the rights", rights(b, 0o770)?, 0)),
    v41("ACCESS supports no right that was not asked about", |b| {
        let mut s = b.session()?;
        let reply = s.ok(&[s.dir(), ops::access(0x1)])?;
        same("the rights", reply.body(1)?, &Body::Access { supported: 1, granted: 1 })
    }),
    v41("ACCESS about unknown rights fails with INVAL or ignores them", |b| {
        let mut s = b.session()?;
        let reply = s.run(&[s.dir(), ops::access(0x8000_0001)])?;
        match (reply.status, reply.results.last().map(|last| &last.body)) {
            (0, Some(Body::Access { granted, .. })) => same("the rights", *granted, 1),
            _ => refusal(&[INVAL], reply.all_ok()).map(drop),
        }
    }),
    v42("the supported arguments of OPEN include what every server has", |b| {
        let mut s = b.session()?;
        if !supported(&mut s)?.contains(&a::OPEN_ARGUMENTS) {
            return Err(crate::suite::Skip("open_arguments is not supported".into()).into());
        }
        let dir = s.dir.clone();
        let attrs = get(&mut s, &dir, &[a::OPEN_ARGUMENTS])?;
        let [access, deny, _, claims, creations] = attrs.open_arguments()?;
        ensure!([1, 2, 3].iter().all(|number| access.contains(number)), "access: {access:?}");
        ensure!(deny.contains(&0), "deny: {deny:?}");
        ensure!([0, 1, 4].iter().all(|number| claims.contains(number)), "claims: {claims:?}");
        ensure!([0, 1].iter().all(|number| creations.contains(number)), "modes: {creations:?}");
        Ok(())
    }),
    v42("the change attribute's behavior is told", |b| {
        let mut s = b.session()?;
        let dir = s.dir.clone();
        let kind = get(&mut s, &dir, &[a::CHANGE_ATTR_TYPE])?.number(a::CHANGE_ATTR_TYPE)?;
        ensure!(kind <= 4, "it is {kind}");
        Ok(())
    }),
    v42("mode_umask applies the umask to a new file", |b| {
        let mut s = b.session()?;
        if !supported(&mut s)?.contains(&a::MODE_UMASK) {
            return Err(crate::suite::Skip("mode_umask is not supported".into()).into());
        }
        let set = Set::new().with(a::MODE_UMASK, Put::new().u32(0o666).u32(0o027));
        let access = ops::share::BOTH | ops::share::WANT_NONE;
        let (_, fh) = s.open("o", (access, 0), &ops::How::Guarded(set), "f")?;
        same("the mode", get(&mut s, &fh, &[a::MODE])?.number(a::MODE)?, 0o640)
    }),
];
