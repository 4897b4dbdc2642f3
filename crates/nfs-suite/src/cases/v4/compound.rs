//! Cases of COMPOUND, and of the operations on file handles.

use anyhow::{Context, ensure};

use super::v41;
use crate::bench::{not_done, refusal, same};
use crate::fault::{Fault, GARBAGE_ARGS};
use crate::nfs4::attributes::{FILEID, TYPE};
use crate::nfs4::{Op, StateId, call_of, decode, ops, run};
use crate::rpc::{Auth, Call};
use crate::status::{
    BADXDR, MINOR_VERS_MISMATCH, NOENT, NOFILEHANDLE, OP_ILLEGAL, RESTOREFH, SEQUENCE_POS,
};
use crate::suite::Case;
use crate::xdr::Put;

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("NULL of version 4 is answered", |b| {
        let call = Call::new(crate::nfs4::PROGRAM, 4, 0, &Auth::None, Vec::new());
        same("the results", b.connection()?.call(&call)?, vec![])
    }),
    v41("a compound without operations succeeds", |b| {
        let reply = run(&mut b.connection()?, &Auth::user(0), 1, &[])?;
        same("status and results", (reply.status, reply.results.len()), (0, 0))
    }),
    v41("the tag comes back", |b| {
        for tag in [&b""[..], b"x", b"a longer tag", &[b't'; 200]] {
            let call = call_of(&Auth::user(0), tag, 1, &[]);
            let reply = decode(&b.connection()?.call(&call)?)?;
            same("the tag", &reply.tag[..], tag)?;
        }
        Ok(())
    }),
    v41("minor version 0 is refused or served, with its tag", |b| {
        let call = call_of(&Auth::user(0), b"tag", 0, &[ops::putrootfh()]);
        let reply = decode(&b.connection()?.call(&call)?)?;
        if reply.status != 0 {
            same("the status", reply.status, MINOR_VERS_MISMATCH)?;
            same("the number of results", reply.results.len(), 0)?;
        }
        same("the tag", reply.tag, b"tag".to_vec())
    }),
    v41("minor version 3 is refused with MINOR_VERS_MISMATCH", |b| {
        let reply = run(&mut b.connection()?, &Auth::user(0), 3, &[ops::putrootfh()])?;
        let got = (reply.status, reply.results.len());
        same("status and results", got, (MINOR_VERS_MISMATCH, 0))
    }),
    v41("the largest minor version is refused with MINOR_VERS_MISMATCH", |b| {
        let reply = run(&mut b.connection()?, &Auth::user(0), u32::MAX, &[])?;
        same("the status", reply.status, MINOR_VERS_MISMATCH)
    }),
    v41("a compound that ends within its tag is refused with GARBAGE_ARGS", |b| {
        let arguments = Put::new().u32(40).u32(0).0;
        let call = Call::new(crate::nfs4::PROGRAM, 4, 1, &Auth::user(0), arguments);
        not_done(GARBAGE_ARGS, b.connection()?.call(&call)).map(drop)
    }),
    v41("a compound without arguments is refused with GARBAGE_ARGS", |b| {
        let call = Call::new(crate::nfs4::PROGRAM, 4, 1, &Auth::user(0), Vec::new());
        not_done(GARBAGE_ARGS, b.connection()?.call(&call)).map(drop)
    }),
    v41("operation 0 is answered with OP_ILLEGAL as operation ILLEGAL", |b| {
        let reply = b.session()?.fails(&[OP_ILLEGAL], &[ops::bare(0)])?;
        same("the operation", reply.results[0].number, ops::ILLEGAL)
    }),
    v41("operations 1 and 2 are answered with OP_ILLEGAL", |b| {
        let mut s = b.session()?;
        s.fails(&[OP_ILLEGAL], &[ops::bare(1)])?;
        s.fails(&[OP_ILLEGAL], &[ops::bare(2)]).map(drop)
    }),
    v41("an operation with a large number is answered with OP_ILLEGAL", |b| {
        let mut s = b.session()?;
        for number in [99, 9999, u32::MAX] {
            let reply = s.fails(&[OP_ILLEGAL], &[ops::bare(number)])?;
            same("the operation", reply.results[0].number, ops::ILLEGAL)?;
        }
        Ok(())
    }),
    v41("operation ILLEGAL itself is answered with OP_ILLEGAL", |b| {
        b.session()?.fails(&[OP_ILLEGAL], &[ops::bare(ops::ILLEGAL)]).map(drop)
    }),
    v41("operations behind a failure are not done", |b| {
        let mut s = b.session()?;
        let reply = s.run(&[s.dir(), ops::lookup("none"), ops::mkdir("x")])?;
        same("status and results", (reply.status, reply.results.len()), (NOENT, 2))?;
        s.fails(&[NOENT], &[s.dir(), ops::lookup("x")]).map(drop)
    }),
    v41("operations before a failure stay done", |b| {
        let mut s = b.session()?;
        s.fails(&[NOENT], &[s.dir(), ops::mkdir("x"), s.dir(), ops::lookup("none")])?;
        s.ok(&[s.dir(), ops::lookup("x")])?;
        Ok(())
    }),
    v41("an operation behind a malformed one is not done", |b| {
        let mut s = b.session()?;
        let bad = Op { number: ops::GETATTR, arguments: Put::new().u32(u32::MAX).0 };
        match s.run(&[s.dir(), bad, ops::mkdir("x")]) {
            Err(Fault::NotDone { status: GARBAGE_ARGS, .. }) => {}
            reply => {
                let reply = reply?;
                same("status and results", (reply.status, reply.results.len()), (BADXDR, 2))?;
            }
        }
        s.fails(&[NOENT], &[s.dir(), ops::lookup("x")]).map(drop)
    }),
    v41("a second SEQUENCE fails with SEQUENCE_POS", |b| {
        let mut s = b.session()?;
        let again = s.sequence(1, false);
        s.fails(&[SEQUENCE_POS], &[again]).map(drop)
    }),
    v41("PUTROOTFH goes to a directory", |b| {
        let reply = b.session()?.ok(&[ops::putrootfh(), ops::getattr(&[TYPE])])?;
        same("the type", reply.attrs(1)?.number(TYPE)?, 2)
    }),
    v41("PUTPUBFH goes to a directory", |b| {
        let reply = b.session()?.ok(&[ops::putpubfh(), ops::getattr(&[TYPE])])?;
        same("the type", reply.attrs(1)?.number(TYPE)?, 2)
    }),
    v41("GETFH returns a handle that PUTFH accepts", |b| {
        let mut s = b.session()?;
        let fh = s.ok(&[s.dir(), ops::getfh()])?.fh(1)?;
        let reply = s.ok(&[ops::putfh(&fh), ops::getfh()])?;
        same("the handle", reply.fh(1)?, fh)
    }),
    v41("SAVEFH and RESTOREFH bring the handle back", |b| {
        let mut s = b.session()?;
        let ops = [s.dir(), ops::savefh(), ops::putrootfh(), ops::restorefh(), ops::getfh()];
        let reply = s.ok(&ops)?;
        same("the handle", reply.fh(4)?, s.dir.clone())
    }),
    v41("RESTOREFH twice is possible", |b| {
        let mut s = b.session()?;
        let again = [ops::restorefh(), ops::putrootfh(), ops::restorefh(), ops::getfh()];
        let ops = [&[s.dir(), ops::savefh()], &again[..]].concat();
        same("the handle", s.ok(&ops)?.fh(5)?, s.dir.clone())
    }),
    v41("RESTOREFH without a saved handle fails with RESTOREFH", |b| {
        let mut s = b.session()?;
        s.fails(&[RESTOREFH, NOFILEHANDLE], &[s.dir(), ops::restorefh()]).map(drop)
    }),
    v41("handles do not survive a compound", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::savefh()])?;
        s.fails(&[NOFILEHANDLE], &[ops::getfh()])?;
        s.fails(&[RESTOREFH, NOFILEHANDLE], &[ops::restorefh()]).map(drop)
    }),
    v41("LOOKUPP goes to the parent", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        let number = ops::getattr(&[FILEID]);
        let ops = [s.dir(), number.clone(), ops::lookup("d"), ops::lookupp(), number];
        let reply = s.ok(&ops)?;
        same("the file", reply.attrs(4)?.number(FILEID)?, reply.attrs(1)?.number(FILEID)?)
    }),
    v41("LOOKUPP in the server's root fails with NOENT", |b| {
        b.session()?.fails(&[NOENT], &[ops::putrootfh(), ops::lookupp()]).map(drop)
    }),
    v41("LOOKUPP goes from the export to the server's root", |b| {
        let mut s = b.session()?;
        let depth = b.target.path.split('/').filter(|name| !name.is_empty()).count();
        let mut all = vec![s.dir()];
        all.extend(std::iter::repeat_n(ops::lookupp(), depth + 1));
        all.extend([ops::getfh(), ops::putrootfh(), ops::getfh()]);
        let reply = s.ok(&all)?;
        let (up, root) = (reply.fh(depth + 2)?, reply.fh(depth + 4)?);
        same("the handle", up, root)
    }),
    v41("the current state id without a state fails", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"data")?;
        let reply = s.run(&[ops::putfh(&fh), ops::read(StateId::CURRENT, 0, 10)])?;
        refusal(&[crate::status::BAD_STATEID], reply.all_ok()).map(drop)
    }),
    v41("version 4 shows the same files as version 3", |b| {
        let fh = b.file_with("f", b"hello")?;
        let wanted = b.c.getattr(&fh)?.fileid;
        let mut s = b.session()?;
        let reply = s.ok(&[s.dir(), ops::lookup("f"), ops::getattr(&[FILEID])])?;
        same("the file", reply.attrs(2)?.number(FILEID)?, wanted)
    }),
    v41("a compound of 40 operations is done", |b| {
        let mut s = b.session()?;
        let limit = s.created.fore.operations as usize;
        ensure!(limit >= 8, "a session allows only {limit} operations");
        let count = limit.min(41) - 1;
        let ops = vec![ops::putrootfh(); count];
        same("the number of results", s.ok(&ops)?.results.len(), count)
    }),
    v41("a compound on behalf of another user acts as that user", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        s.auth = Auth::user(crate::bench::USER);
        let result = s.ok(&[s.dir(), ops::lookup("d"), ops::mkdir("x"), ops::getattr(&[36])]);
        s.auth = Auth::user(0);
        let owner = result.context("making a directory as a user")?.attrs(3)?.bytes(36)?;
        let owner = String::from_utf8_lossy(&owner).into_owned();
        ensure!(owner.starts_with("12001") || owner.contains('@'), "the owner is {owner}");
        Ok(())
    }),
];
