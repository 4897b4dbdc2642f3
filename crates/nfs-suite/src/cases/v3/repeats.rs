//! Cases that send calls again, as a client does if a reply was lost. The server must repeat its
//! first reply.

use anyhow::{Context, Result, ensure};

use super::v3;
use crate::bench::{Bench, await_tick, refused, same};
use crate::fault::Fault;
use crate::nfs3::{How, Nfs3, Sattr, at};
use crate::rpc::{Call, results_of};
use crate::status::{EXIST, NOENT};
use crate::suite::Case;
use crate::xdr::{Get, Put};

/// An identifier of calls (XID) that the connection does not use for other calls.
const XID: u32 = 0x7654_3210;

/// Returns the status of a call that is sent with this identifier.
fn status(c: &mut Nfs3, call: &Call, xid: u32) -> Result<u32, Fault> {
    c.connection.send_record(&call.encode(xid))?;
    let reply = c.connection.reply(xid)?;
    Get(results_of(&reply)?).u32()
}

/// Sends a call twice with the same identifier on one connection.
fn twice(b: &mut Bench, procedure: u32, arguments: Put) -> Result<()> {
    let call = b.c.prepare(procedure, arguments);
    same("the first status", status(&mut b.c, &call, XID)?, 0)?;
    same("the status of the repeat", status(&mut b.c, &call, XID)?, 0)
}

/// Sends a call, and sends it again with the same identifier over a new connection.
fn on_a_new_connection(b: &mut Bench, procedure: u32, arguments: Put) -> Result<()> {
    let call = b.c.prepare(procedure, arguments);
    same("the first status", status(&mut b.c, &call, XID)?, 0)?;
    let mut again = b.user(0)?;
    same("the status of the repeat", status(&mut again, &call, XID)?, 0)
}

fn create(b: &Bench, name: &str) -> Put {
    Sattr::mode(0o644).put(at(&b.dir, name).u32(1))
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("a repeated CREATE GUARDED succeeds", |b| {
        let put = create(b, "f");
        twice(b, 8, put)
    }),
    v3("a repeated MKDIR succeeds", |b| {
        let put = Sattr::mode(0o755).put(at(&b.dir, "d"));
        twice(b, 9, put)
    }),
    v3("a repeated SYMLINK succeeds", |b| {
        let put = Sattr::default().put(at(&b.dir, "l")).opaque("target");
        twice(b, 10, put)
    }),
    v3("a repeated REMOVE succeeds", |b| {
        b.file("f")?;
        let put = at(&b.dir, "f");
        twice(b, 12, put)
    }),
    v3("a repeated RMDIR succeeds", |b| {
        b.sub("d", 0o755)?;
        let put = at(&b.dir, "d");
        twice(b, 13, put)
    }),
    v3("a repeated RENAME succeeds", |b| {
        b.file("f")?;
        let put = at(&b.dir, "f").opaque(&b.dir).opaque("g");
        twice(b, 14, put)
    }),
    v3("a repeated LINK succeeds", |b| {
        let fh = b.file("f")?;
        let put = Put::new().opaque(&fh).opaque(&b.dir).opaque("g");
        twice(b, 15, put)?;
        same("the links", b.c.getattr(&fh)?.nlink, 2)
    }),
    v3("a repeated SETATTR with a guard succeeds", |b| {
        let fh = b.file("f")?;
        let (seconds, nanoseconds) = b.c.getattr(&fh)?.ctime;
        await_tick();
        let put = Sattr::mode(0o600).put(Put::new().opaque(&fh));
        twice(b, 2, put.u32(1).u32(seconds).u32(nanoseconds))
    }),
    v3("a REMOVE that is repeated on another connection succeeds", |b| {
        b.file("f")?;
        let put = at(&b.dir, "f");
        on_a_new_connection(b, 12, put)
    }),
    v3("a RENAME that is repeated on another connection succeeds", |b| {
        b.file("f")?;
        let put = at(&b.dir, "f").opaque(&b.dir).opaque("g");
        on_a_new_connection(b, 14, put)
    }),
    v3("a CREATE that is repeated on another connection succeeds", |b| {
        let put = create(b, "f");
        on_a_new_connection(b, 8, put)
    }),
    v3("the same identifier with another call is no repeat", |b| {
        b.file("f")?;
        b.file("g")?;
        let dir = b.dir.clone();
        for name in ["f", "g"] {
            let call = b.c.prepare(12, at(&dir, name));
            same("the status", status(&mut b.c, &call, XID)?, 0)?;
            refused(NOENT, b.c.lookup(&dir, name))?;
        }
        Ok(())
    }),
    v3("the same call with another identifier is no repeat", |b| {
        let call = b.c.prepare(8, create(b, "f"));
        same("the first status", status(&mut b.c, &call, XID)?, 0)?;
        same("the second status", status(&mut b.c, &call, XID + 1)?, EXIST)
    }),
    v3("a repeated CREATE returns the same handle", |b| {
        let call = b.c.prepare(8, create(b, "f"));
        let mut replies = Vec::new();
        for _ in 0..2 {
            b.c.connection.send_record(&call.encode(XID))?;
            let reply = b.c.connection.reply(XID)?;
            let mut get = Get(results_of(&reply)?);
            same("the status", get.u32()?, 0)?;
            replies.push(get.option(Get::opaque)?.context("there is no handle")?);
        }
        same("the second handle", &replies[1], &replies[0])
    }),
    v3("a repeat that arrives before the first reply is not done twice", |b| {
        let dir = b.dir.clone();
        b.file("f")?;
        let call = b.c.prepare(12, at(&dir, "f"));
        b.c.connection.send_record(&call.encode(XID))?;
        b.c.connection.send_record(&call.encode(XID))?;
        let reply = b.c.connection.reply(XID)?;
        same("the status", Get(results_of(&reply)?).u32()?, 0)?;
        // The server need not reply to the second call.
        b.c.null()?;
        Ok(())
    }),
    v3("a repeated refusal is refused again", |b| {
        b.file("f")?;
        let call = b.c.prepare(8, create(b, "f"));
        for _ in 0..2 {
            same("the status", status(&mut b.c, &call, XID)?, EXIST)?;
        }
        Ok(())
    }),
    v3("a repeated exclusive CREATE is known by its verifier without an identifier", |b| {
        let dir = b.dir.clone();
        let one = b.c.create(&dir, "f", How::Exclusive([9; 8]))?.fh;
        let two = b.user(0)?.create(&dir, "f", How::Exclusive([9; 8]))?.fh;
        ensure!(one.is_some() && one == two, "the handles differ");
        Ok(())
    }),
];
