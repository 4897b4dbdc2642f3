//! Cases of extended attributes (RFC 8276).

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};

use super::v42;
use crate::bench::{Bench, USER, await_tick, refusal, same};
use crate::nfs4::attributes::{CHANGE, XATTR_SUPPORT};
use crate::nfs4::{Body, Op, Session, ops};
use crate::rpc::Auth;
use crate::status::{
    ACCESS, BADNAME, BADXDR, EXIST, INVAL, NAMETOOLONG, NOSPC, NOXATTR, PERM, TOOSMALL, XATTR2BIG,
};
use crate::suite::{Case, Skip};

const EITHER: u32 = 0;
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// A file with extended attributes.
struct File {
    s: Session,
    fh: Vec<u8>,
}

impl File {
    /// Creates a file. Skips the case if the file system has no extended attributes.
    fn new(b: &mut Bench) -> Result<Self> {
        let mut s = b.session()?;
        let reply = s.ok(&[s.dir(), ops::getattr(&[XATTR_SUPPORT])])?;
        if reply.attrs(1)?.number(XATTR_SUPPORT).unwrap_or(0) == 0 {
            return Err(Skip("there are no extended attributes".into()).into());
        }
        let fh = s.file("f", b"")?;
        Ok(Self { s, fh })
    }

    fn ok(&mut self, op: Op) -> Result<Body> {
        let reply = self.s.ok(&[ops::putfh(&self.fh), op])?;
        Ok(reply.body(1)?.clone())
    }

    fn fails(&mut self, statuses: &[u32], op: Op) -> Result<()> {
        self.s.fails(statuses, &[ops::putfh(&self.fh), op]).map(drop)
    }

    fn set(&mut self, name: &str, value: &[u8]) -> Result<()> {
        self.ok(ops::setxattr(EITHER, name, value)).map(drop)
    }

    fn get(&mut self, name: &str) -> Result<Vec<u8>> {
        match self.ok(ops::getxattr(name))? {
            Body::Bytes(value) => Ok(value),
            other => bail!("{other:?} is no value"),
        }
    }

    fn names(&mut self, count: u32) -> Result<BTreeSet<Vec<u8>>> {
        let (mut found, mut at) = (BTreeSet::new(), 0);
        for _ in 0..1000 {
            let Body::Names { cookie, names, eof } = self.ok(ops::listxattrs(at, count))? else {
                bail!("no names")
            };
            ensure!(eof || !names.is_empty(), "a page is empty and not the last");
            found.extend(names);
            if eof {
                return Ok(found);
            }
            at = cookie;
        }
        bail!("1,000 pages do not reach the end")
    }
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v42("SETXATTR sets a value that GETXATTR returns", |b| {
        let mut file = File::new(b)?;
        file.set("color", b"blue")?;
        same("the value", file.get("color")?, b"blue".to_vec())
    }),
    v42("SETXATTR replaces a value", |b| {
        let mut file = File::new(b)?;
        file.set("color", b"blue")?;
        file.set("color", b"a longer value")?;
        same("the value", file.get("color")?, b"a longer value".to_vec())
    }),
    v42("an empty value is kept", |b| {
        let mut file = File::new(b)?;
        file.set("empty", b"")?;
        same("the value", file.get("empty")?, vec![])
    }),
    v42("a value of any bytes is kept", |b| {
        let mut file = File::new(b)?;
        let value: Vec<u8> = (0..=255).collect();
        file.set("bytes", &value)?;
        same("the value", file.get("bytes")?, value)
    }),
    v42("SETXATTR that creates fails with EXIST if there is one", |b| {
        let mut file = File::new(b)?;
        file.ok(ops::setxattr(CREATE, "color", b"blue"))?;
        file.fails(&[EXIST], ops::setxattr(CREATE, "color", b"red"))?;
        same("the value", file.get("color")?, b"blue".to_vec())
    }),
    v42("SETXATTR that replaces fails with NOXATTR if there is none", |b| {
        let mut file = File::new(b)?;
        file.fails(&[NOXATTR], ops::setxattr(REPLACE, "color", b"blue"))?;
        file.set("color", b"blue")?;
        file.ok(ops::setxattr(REPLACE, "color", b"red"))?;
        same("the value", file.get("color")?, b"red".to_vec())
    }),
    v42("SETXATTR with an unknown option fails", |b| {
        File::new(b)?.fails(&[BADXDR, INVAL], ops::setxattr(9, "color", b"blue"))
    }),
    v42("GETXATTR of a missing name fails with NOXATTR", |b| {
        File::new(b)?.fails(&[NOXATTR], ops::getxattr("none"))
    }),
    v42("REMOVEXATTR removes a name", |b| {
        let mut file = File::new(b)?;
        file.set("color", b"blue")?;
        file.ok(ops::removexattr("color"))?;
        file.fails(&[NOXATTR], ops::getxattr("color"))
    }),
    v42("REMOVEXATTR of a missing name fails with NOXATTR", |b| {
        File::new(b)?.fails(&[NOXATTR], ops::removexattr("none"))
    }),
    v42("LISTXATTRS of a file without names returns none", |b| {
        same("the names", File::new(b)?.names(4096)?, BTreeSet::new())
    }),
    v42("LISTXATTRS returns the names without a prefix", |b| {
        let mut file = File::new(b)?;
        file.set("color", b"blue")?;
        file.set("shape", b"round")?;
        let wanted = [b"color".to_vec(), b"shape".to_vec()].into();
        same("the names", file.names(4096)?, wanted)
    }),
    v42("LISTXATTRS returns many names in pages", |b| {
        let mut file = File::new(b)?;
        let mut wanted = BTreeSet::new();
        for index in 0..40 {
            let name = format!("a-name-{index}");
            file.set(&name, b"v")?;
            wanted.insert(name.into_bytes());
        }
        same("the names", file.names(100)?, wanted)
    }),
    v42("LISTXATTRS with room for no name fails with TOOSMALL", |b| {
        let mut file = File::new(b)?;
        file.set("a-name-of-some-length", b"v")?;
        file.fails(&[TOOSMALL], ops::listxattrs(0, 8))
    }),
    v42("SETXATTR and REMOVEXATTR raise the change attribute and say so", |b| {
        let mut file = File::new(b)?;
        for op in [ops::setxattr(EITHER, "color", b"blue"), ops::removexattr("color")] {
            let change = ops::getattr(&[CHANGE]);
            await_tick();
            let before = file.s.ok(&[ops::putfh(&file.fh), change.clone()])?;
            let before = before.attrs(1)?.number(CHANGE)?;
            let Body::Change(said) = file.ok(op)? else { bail!("no change") };
            let after = file.s.ok(&[ops::putfh(&file.fh), change])?.attrs(1)?.number(CHANGE)?;
            ensure!(after > before, "the change goes from {before} to {after}");
            same("the value before", said.before, before)?;
            ensure!(said.after != before, "the reply says that nothing has changed");
        }
        Ok(())
    }),
    v42("an empty name fails", |b| {
        let mut file = File::new(b)?;
        let statuses = [INVAL, BADNAME, NOXATTR];
        file.fails(&statuses, ops::setxattr(EITHER, "", b"v"))?;
        file.fails(&statuses, ops::getxattr(""))
    }),
    v42("a name of 300 bytes fails with NAMETOOLONG", |b| {
        let mut file = File::new(b)?;
        let statuses = [NAMETOOLONG, INVAL, NOXATTR];
        file.fails(&statuses, ops::setxattr(EITHER, "n".repeat(300), b"v"))?;
        file.fails(&statuses, ops::getxattr("n".repeat(300)))
    }),
    v42("a value of 70,000 bytes fails with XATTR2BIG", |b| {
        let statuses = [XATTR2BIG, NOSPC];
        File::new(b)?.fails(&statuses, ops::setxattr(EITHER, "big", &vec![7; 70_000]))
    }),
    v42("SETXATTR without the right to write fails with ACCESS", |b| {
        let mut file = File::new(b)?;
        file.set("color", b"blue")?;
        let mut user = b.session_as(Auth::user(USER))?;
        let set = ops::setxattr(EITHER, "color", b"red");
        user.fails(&[ACCESS, PERM], &[ops::putfh(&file.fh), set])?;
        user.fails(&[ACCESS, PERM], &[ops::putfh(&file.fh), ops::removexattr("color")])?;
        user.ok(&[ops::putfh(&file.fh), ops::getxattr("color")])?;
        Ok(())
    }),
    v42("a directory has extended attributes, too", |b| {
        let mut file = File::new(b)?;
        file.fh = file.s.dir.clone();
        file.set("color", b"blue")?;
        same("the value", file.get("color")?, b"blue".to_vec())
    }),
    v42("ACCESS tells the rights to extended attributes", |b| {
        let mut file = File::new(b)?;
        let reply = file.s.run(&[ops::putfh(&file.fh), ops::access(0x1c0)])?;
        match (reply.status, reply.results.last().map(|last| &last.body)) {
            (0, Some(Body::Access { granted, .. })) => same("the rights", *granted, 0x1c0),
            _ => refusal(&[INVAL], reply.all_ok()).map(drop),
        }
    }),
];
