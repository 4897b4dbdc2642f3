//! Cases of clients and of the creation of sessions: EXCHANGE_ID, CREATE_SESSION,
//! BIND_CONN_TO_SESSION, DESTROY_SESSION, DESTROY_CLIENTID, RECLAIM_COMPLETE and BACKCHANNEL_CTL.

use anyhow::{Result, bail, ensure};

use super::v41;
use crate::bench::{Bench, OTHER, refusal, same};
use crate::fault::{Fault, GARBAGE_ARGS};
use crate::nfs4::ops::{self, Channel, Claim, How, Op, share};
use crate::nfs4::results::Client;
use crate::nfs4::session::{self, Session, Wish};
use crate::nfs4::{Body, Reply, Set, run};
use crate::rpc::{Auth, Connection};
use crate::status::{
    BADSESSION, BADXDR, CLID_INUSE, CLIENTID_BUSY, COMPLETE_ALREADY, ENCR_ALG_UNSUPP, GRACE,
    HASH_ALG_UNSUPP, INVAL, NOENT, NOT_ONLY_OP, NOT_SAME, NOTSUPP, PERM, SEQ_MISORDERED,
    STALE_CLIENTID, TOOSMALL, WRONG_CRED,
};
use crate::suite::Case;
use crate::xdr::Put;

/// The flag of EXCHANGE_ID with which a confirmed client updates its record.
const UPDATE: u32 = 0x4000_0000;
/// The flag in the reply to EXCHANGE_ID that is set if the client was confirmed before.
const CONFIRMED: u32 = 0x8000_0000;
/// The flags in the reply to EXCHANGE_ID for the server's roles in pNFS.
const ROLES: u32 = 0x7_0000;

fn alone(b: &Bench, wish: &Wish, ops: &[Op]) -> Result<Reply> {
    Ok(run(&mut b.connection()?, &wish.auth, wish.minor, ops)?)
}

fn refuses(b: &Bench, wish: &Wish, statuses: &[u32], ops: &[Op]) -> Result<()> {
    match run(&mut b.connection()?, &wish.auth, wish.minor, ops) {
        // A server may decode all operations before it executes the first one.
        Err(Fault::NotDone { status: GARBAGE_ARGS, .. }) if statuses.contains(&BADXDR) => Ok(()),
        reply => refusal(statuses, reply?.all_ok()).map(drop),
    }
}

/// Calls operations on the first connection of a session, without a SEQUENCE.
fn beside(s: &mut Session, ops: &[Op]) -> Result<Reply> {
    Ok(run(&mut s.connection, &s.auth, s.minor, ops)?)
}

/// Calls EXCHANGE_ID on a connection of its own.
fn exchange(b: &Bench, wish: &Wish, flags: u32) -> Result<Client, Fault> {
    session::exchange_with(&mut Connection::open(b.target.nfs)?, wish, flags)
}

/// Creates a session with these limits. Returns the limits that the server grants.
fn negotiate(b: &mut Bench, fore: Channel, back: Channel) -> Result<(Channel, Channel)> {
    let wish = Wish { fore, back, ..b.wish() };
    let session = Session::start(b.target.nfs, &wish)?;
    Ok((session.created.fore, session.created.back))
}

/// Checks that the server refuses a session with these limits.
fn refuses_limits(b: &mut Bench, statuses: &[u32], fore: Channel) -> Result<()> {
    let wish = Wish { fore, ..b.wish() };
    let client = exchange(b, &wish, 0)?;
    refuses(b, &wish, statuses, &[wish.create_session(client.id, client.sequence)])
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("EXCHANGE_ID returns an unconfirmed client and a role", |b| {
        let wish = b.wish();
        let client = exchange(b, &wish, 0)?;
        same("the flag of confirmed clients", client.flags & CONFIRMED, 0)?;
        ensure!(client.flags & ROLES != 0, "the flags {:x} have no role", client.flags);
        Ok(())
    }),
    v41("EXCHANGE_ID returns no flag that clients do not know", |b| {
        let wish = b.wish();
        let flags = exchange(b, &wish, 0x101)?.flags;
        same("the unknown flags", flags & !0x8007_0103, 0)
    }),
    v41("EXCHANGE_ID returns the same server to two clients", |b| {
        let (one, two) = (b.wish(), b.wish());
        let (one, two) = (exchange(b, &one, 0)?, exchange(b, &two, 0)?);
        ensure!(one.id != two.id, "two clients have the same id");
        ensure!(!one.server_major.is_empty(), "the server has no name");
        same("server and scope", (one.server_major, one.scope), (two.server_major, two.scope))
    }),
    v41("EXCHANGE_ID of a confirmed client returns it again", |b| {
        let wish = b.wish();
        let session = Session::start(b.target.nfs, &wish)?;
        let again = exchange(b, &wish, 0)?;
        same("the flag", again.flags & CONFIRMED, CONFIRMED)?;
        same("the client", again.id, session.client.id)
    }),
    v41("EXCHANGE_ID twice before the first session leaves one client", |b| {
        let wish = b.wish();
        exchange(b, &wish, 0)?;
        let client = exchange(b, &wish, 0)?;
        same("the flag", client.flags & CONFIRMED, 0)?;
        alone(b, &wish, &[wish.create_session(client.id, client.sequence)])?.all_ok()?;
        Ok(())
    }),
    v41("a new instance leaves the old session until it has one itself", |b| {
        let wish = b.wish();
        let mut old = Session::start(b.target.nfs, &wish)?;
        let new = Wish { verifier: *b"restart!", ..wish };
        let client = exchange(b, &new, 0)?;
        ensure!(client.id != old.client.id, "the new instance has the old id");
        old.ok(&[ops::putrootfh()])?;
        alone(b, &new, &[new.create_session(client.id, client.sequence)])?.all_ok()?;
        refusal(&[BADSESSION], old.ok(&[ops::putrootfh()])).map(drop)
    }),
    v41("a new instance ends the opens of the old one", |b| {
        let wish = b.wish();
        let mut old = b.session_of(&wish)?;
        let (access, how) = (share::BOTH | share::WANT_NONE, How::Unchecked(Set::new()));
        old.open("o", (access, share::BOTH), &how, "f")?;
        let new = Wish { verifier: *b"restart!", ..wish };
        let mut new = b.session_of(&new)?;
        new.open("o", (access, share::BOTH), &How::Open, "f")?;
        Ok(())
    }),
    v41("EXCHANGE_ID with the flag of replies fails with INVAL", |b| {
        let wish = b.wish();
        let op = ops::exchange_id(wish.verifier, &wish.owner, CONFIRMED);
        refuses(b, &wish, &[INVAL], &[op])
    }),
    v41("EXCHANGE_ID with an unknown flag fails with INVAL", |b| {
        let wish = b.wish();
        let op = ops::exchange_id(wish.verifier, &wish.owner, 0x8);
        refuses(b, &wish, &[INVAL], &[op])
    }),
    v41("EXCHANGE_ID that updates an unknown client fails with NOENT", |b| {
        let wish = b.wish();
        let op = ops::exchange_id(wish.verifier, &wish.owner, UPDATE);
        refuses(b, &wish, &[NOENT], &[op])
    }),
    v41("EXCHANGE_ID that updates a confirmed client succeeds", |b| {
        let wish = b.wish();
        let session = Session::start(b.target.nfs, &wish)?;
        let client = exchange(b, &wish, UPDATE)?;
        let got = (client.id, client.flags & CONFIRMED);
        same("client and flag", got, (session.client.id, CONFIRMED))
    }),
    v41("EXCHANGE_ID that updates another instance fails with NOT_SAME", |b| {
        let wish = b.wish();
        let _session = Session::start(b.target.nfs, &wish)?;
        let op = ops::exchange_id(*b"restart!", &wish.owner, UPDATE);
        refuses(b, &wish, &[NOT_SAME], &[op])
    }),
    v41("EXCHANGE_ID that updates the client of another user fails with PERM", |b| {
        let wish = b.wish();
        let _session = Session::start(b.target.nfs, &wish)?;
        let op = ops::exchange_id(wish.verifier, &wish.owner, UPDATE);
        let other = Wish { auth: Auth::user(OTHER), ..wish };
        refuses(b, &other, &[PERM], &[op])
    }),
    v41("EXCHANGE_ID of another user for a client with state fails with CLID_INUSE", |b| {
        let wish = b.wish();
        let mut session = b.session_of(&wish)?;
        session.opened("f")?;
        let op = ops::exchange_id(wish.verifier, &wish.owner, 0);
        let other = Wish { auth: Auth::user(OTHER), ..wish };
        refuses(b, &other, &[CLID_INUSE], &[op])
    }),
    v41("EXCHANGE_ID with an unknown protection of state fails", |b| {
        let wish = b.wish();
        let put = Put::new().raw(&wish.verifier).opaque(&wish.owner).u32(0).u32(9).u32(0);
        refuses(b, &wish, &[BADXDR, INVAL], &[ops::op(ops::EXCHANGE_ID, put)])
    }),
    v41("EXCHANGE_ID with SSV and unknown algorithms fails", |b| {
        let wish = b.wish();
        let put = Put::new().raw(&wish.verifier).opaque(&wish.owner).u32(0).u32(2);
        let put = put.u32(0).u32(0).u32(1).opaque("hash").u32(1).opaque("cipher");
        let op = ops::op(ops::EXCHANGE_ID, put.u32(1).u32(1).u32(0));
        let statuses = [HASH_ALG_UNSUPP, ENCR_ALG_UNSUPP, INVAL, NOTSUPP];
        refuses(b, &wish, &statuses, &[op])
    }),
    v41("EXCHANGE_ID with a name of 1,025 bytes fails with BADXDR", |b| {
        let wish = b.wish();
        refuses(b, &wish, &[BADXDR], &[ops::exchange_id(wish.verifier, &[7; 1025], 0)])
    }),
    v41("EXCHANGE_ID with a name of 1,024 bytes succeeds", |b| {
        let mut wish = b.wish();
        wish.owner.resize(1024, b'x');
        exchange(b, &wish, 0).map(drop).map_err(Into::into)
    }),
    v41("EXCHANGE_ID with two implementations fails with BADXDR", |b| {
        let wish = b.wish();
        let put = Put::new().raw(&wish.verifier).opaque(&wish.owner).u32(0).u32(0).u32(2);
        let one = |put: Put| put.opaque("example.org").opaque("suite").u64(0).u32(0);
        refuses(b, &wish, &[BADXDR], &[ops::op(ops::EXCHANGE_ID, one(one(put)))])
    }),
    v41("EXCHANGE_ID with an implementation succeeds", |b| {
        let wish = b.wish();
        let put = Put::new().raw(&wish.verifier).opaque(&wish.owner).u32(0).u32(0).u32(1);
        let put = put.opaque("example.org").opaque("suite").u64(0).u32(0);
        alone(b, &wish, &[ops::op(ops::EXCHANGE_ID, put)])?.all_ok()?;
        Ok(())
    }),
    v41("EXCHANGE_ID with an operation behind it fails with NOT_ONLY_OP", |b| {
        let wish = b.wish();
        let op = ops::exchange_id(wish.verifier, &wish.owner, 0);
        refuses(b, &wish, &[NOT_ONLY_OP], &[op, ops::putrootfh()])
    }),
    v41("EXCHANGE_ID within a session succeeds", |b| {
        let wish = b.wish();
        b.session()?.ok(&[ops::exchange_id(wish.verifier, &wish.owner, 0)])?;
        Ok(())
    }),
    v41("CREATE_SESSION repeats the number, and the next one makes another session", |b| {
        let wish = b.wish();
        let client = exchange(b, &wish, 0)?;
        let mut connection = b.connection()?;
        let one = session::create(&mut connection, &wish, client.id, client.sequence)?;
        same("the number", one.sequence, client.sequence)?;
        let two = session::create(&mut connection, &wish, client.id, client.sequence + 1)?;
        ensure!(one.id != two.id, "two sessions have the same id");
        Ok(())
    }),
    v41("a repeated CREATE_SESSION returns the same session", |b| {
        let wish = b.wish();
        let client = exchange(b, &wish, 0)?;
        let mut connection = b.connection()?;
        let one = session::create(&mut connection, &wish, client.id, client.sequence)?;
        let two = session::create(&mut connection, &wish, client.id, client.sequence)?;
        same("the session", two, one)
    }),
    v41("CREATE_SESSION with a number that is too high fails with SEQ_MISORDERED", |b| {
        let wish = b.wish();
        let client = exchange(b, &wish, 0)?;
        refuses(b, &wish, &[SEQ_MISORDERED], &[wish.create_session(client.id, client.sequence + 1)])
    }),
    v41("CREATE_SESSION with an old number fails with SEQ_MISORDERED", |b| {
        let wish = b.wish();
        let session = Session::start(b.target.nfs, &wish)?;
        let (id, number) = (session.client.id, session.client.sequence);
        session::create(&mut b.connection()?, &wish, id, number + 1)?;
        refuses(b, &wish, &[SEQ_MISORDERED], &[wish.create_session(id, number)])
    }),
    v41("CREATE_SESSION of an unknown client fails with STALE_CLIENTID", |b| {
        let wish = b.wish();
        refuses(b, &wish, &[STALE_CLIENTID], &[wish.create_session(0x1234_5678_9abc_def0, 1)])
    }),
    v41("CREATE_SESSION with an operation behind it fails with NOT_ONLY_OP", |b| {
        let wish = b.wish();
        let client = exchange(b, &wish, 0)?;
        let op = wish.create_session(client.id, client.sequence);
        refuses(b, &wish, &[NOT_ONLY_OP], &[op, ops::putrootfh()])
    }),
    v41("CREATE_SESSION with an unknown flag fails with INVAL", |b| {
        let wish = Wish { flags: 0x100, ..b.wish() };
        let client = exchange(b, &wish, 0)?;
        refuses(b, &wish, &[INVAL], &[wish.create_session(client.id, client.sequence)])
    }),
    v41("CREATE_SESSION of another user fails with CLID_INUSE", |b| {
        let wish = b.wish();
        let client = exchange(b, &wish, 0)?;
        let other = Wish { auth: Auth::user(OTHER), ..wish };
        let op = other.create_session(client.id, client.sequence);
        refuses(b, &other, &[CLID_INUSE, WRONG_CRED], &[op])
    }),
    v41("CREATE_SESSION over TCP does not grant RDMA", |b| {
        let wish = Wish { flags: 0x6, ..b.wish() };
        let session = Session::start(b.target.nfs, &wish)?;
        same("the flag", session.created.flags & 0x4, 0)
    }),
    v41("CREATE_SESSION grants no flag that was not asked for", |b| {
        let wish = Wish { flags: 0, ..b.wish() };
        let session = Session::start(b.target.nfs, &wish)?;
        same("the flags", session.created.flags, 0)
    }),
    v41("CREATE_SESSION grants no more than was asked for", |b| {
        let (fore, back) = (Channel::FORE, Channel::BACK);
        let (got, got_back) = negotiate(b, fore, back)?;
        ensure!(got.response_max <= fore.response_max, "{got:?}");
        ensure!(got.cached_max <= fore.cached_max, "{got:?}");
        ensure!(got.operations <= fore.operations && got.operations > 0, "{got:?}");
        ensure!(got.requests <= fore.requests && got.requests > 0, "{got:?}");
        ensure!(got_back.response_max <= back.response_max, "{got_back:?}");
        ensure!(got_back.requests <= back.requests, "{got_back:?}");
        Ok(())
    }),
    v41("CREATE_SESSION with huge limits grants usable ones", |b| {
        let huge = Channel {
            header_pad: u32::MAX,
            request_max: u32::MAX,
            response_max: u32::MAX,
            cached_max: u32::MAX,
            operations: u32::MAX,
            requests: u32::MAX,
        };
        let (got, _) = negotiate(b, huge, Channel::BACK)?;
        ensure!(got.request_max >= 65_536 && got.response_max >= 65_536, "{got:?}");
        ensure!(got.operations < 1 << 20 && got.requests < 1 << 20, "{got:?}");
        Ok(())
    }),
    v41("CREATE_SESSION with requests of 10 bytes fails with TOOSMALL", |b| {
        refuses_limits(b, &[TOOSMALL, INVAL], Channel { request_max: 10, ..Channel::FORE })
    }),
    v41("CREATE_SESSION with replies of 10 bytes fails with TOOSMALL", |b| {
        refuses_limits(b, &[TOOSMALL, INVAL], Channel { response_max: 10, ..Channel::FORE })
    }),
    v41("CREATE_SESSION without operations fails", |b| {
        let fore = Channel { operations: 0, ..Channel::FORE };
        refuses_limits(b, &[TOOSMALL, INVAL], fore)
    }),
    v41("CREATE_SESSION without slots fails or grants one", |b| {
        let wish = Wish { fore: Channel { requests: 0, ..Channel::FORE }, ..b.wish() };
        let client = exchange(b, &wish, 0)?;
        let reply = alone(b, &wish, &[wish.create_session(client.id, client.sequence)])?;
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[INVAL, TOOSMALL], reply.all_ok()).map(drop),
        }
    }),
    v41("a session that is asked for with one slot has one", |b| {
        let (got, _) = negotiate(b, Channel { requests: 1, ..Channel::FORE }, Channel::BACK)?;
        same("the slots", got.requests, 1)
    }),
    v41("DESTROY_SESSION ends the session", |b| {
        let mut s = b.session()?;
        let op = ops::destroy_session(s.created.id);
        beside(&mut s, &[op])?.all_ok()?;
        refusal(&[BADSESSION], s.ok(&[ops::putrootfh()])).map(drop)
    }),
    v41("DESTROY_SESSION twice fails with BADSESSION", |b| {
        let mut s = b.session()?;
        let op = ops::destroy_session(s.created.id);
        beside(&mut s, std::slice::from_ref(&op))?.all_ok()?;
        refusal(&[BADSESSION], beside(&mut s, &[op])?.all_ok()).map(drop)
    }),
    v41("DESTROY_SESSION of an unknown session fails with BADSESSION", |b| {
        let wish = b.wish();
        refuses(b, &wish, &[BADSESSION], &[ops::destroy_session([7; 16])])
    }),
    v41("DESTROY_SESSION with an operation behind it fails with NOT_ONLY_OP", |b| {
        let mut s = b.session()?;
        let op = ops::destroy_session(s.created.id);
        refusal(&[NOT_ONLY_OP], beside(&mut s, &[op, ops::putrootfh()])?.all_ok()).map(drop)
    }),
    v41("DESTROY_SESSION as the last operation of its own session succeeds", |b| {
        let mut s = b.session()?;
        let op = ops::destroy_session(s.created.id);
        s.ok(&[op])?;
        refusal(&[BADSESSION], s.ok(&[ops::putrootfh()])).map(drop)
    }),
    v41("DESTROY_SESSION of its own session before other operations fails with NOT_ONLY_OP", |b| {
        let mut s = b.session()?;
        let op = ops::destroy_session(s.created.id);
        refusal(&[NOT_ONLY_OP], s.once(&[op, ops::putrootfh()])?.all_ok())?;
        s.ok(&[ops::putrootfh()]).map(drop).map_err(Into::into)
    }),
    v41("opens survive the end of a session", |b| {
        let wish = b.wish();
        let mut s = b.session_of(&wish)?;
        let (state, fh) = s.opened("f")?;
        let mut connection = b.connection()?;
        let number = s.client.sequence + 1;
        let created = session::create(&mut connection, &wish, s.client.id, number)?;
        let op = ops::destroy_session(s.created.id);
        beside(&mut s, &[op])?.all_ok()?;
        let sequence = ops::sequence(created.id, 1, 0, 0, false);
        let ops = [sequence, ops::putfh(&fh), ops::write(state, 0, 2, b"x"), ops::close(state)];
        run(&mut connection, &wish.auth, wish.minor, &ops)?.all_ok()?;
        Ok(())
    }),
    v41("DESTROY_CLIENTID of a client with a session fails with CLIENTID_BUSY", |b| {
        let s = b.session()?;
        let wish = b.wish();
        refuses(b, &wish, &[CLIENTID_BUSY], &[ops::destroy_clientid(s.client.id)])
    }),
    v41("DESTROY_CLIENTID of a client without a session succeeds once", |b| {
        let wish = b.wish();
        let client = exchange(b, &wish, 0)?;
        alone(b, &wish, &[ops::destroy_clientid(client.id)])?.all_ok()?;
        refuses(b, &wish, &[STALE_CLIENTID], &[ops::destroy_clientid(client.id)])
    }),
    v41("DESTROY_CLIENTID of an unknown client fails with STALE_CLIENTID", |b| {
        let wish = b.wish();
        refuses(b, &wish, &[STALE_CLIENTID], &[ops::destroy_clientid(0x1234_5678_9abc_def0)])
    }),
    v41("DESTROY_CLIENTID with an operation behind it fails with NOT_ONLY_OP", |b| {
        let wish = b.wish();
        let client = exchange(b, &wish, 0)?;
        let op = ops::destroy_clientid(client.id);
        refuses(b, &wish, &[NOT_ONLY_OP], &[op, ops::putrootfh()])
    }),
    v41("RECLAIM_COMPLETE twice fails with COMPLETE_ALREADY", |b| {
        b.session()?.fails(&[COMPLETE_ALREADY], &[ops::reclaim_complete(false)]).map(drop)
    }),
    v41("RECLAIM_COMPLETE for one file system succeeds", |b| {
        let mut s = b.session()?;
        let reply = s.run(&[s.dir(), ops::reclaim_complete(true)])?;
        match reply.status {
            0 => Ok(()),
            _ => refusal(&[COMPLETE_ALREADY], reply.all_ok()).map(drop),
        }
    }),
    v41("OPEN before RECLAIM_COMPLETE fails with GRACE", |b| {
        let fh = b.session()?.file("f", b"")?;
        let wish = b.wish();
        let mut s = Session::without_reclaim_complete(b.target.nfs, &wish)?;
        let open = ops::open(b"o", share::READ, 0, &How::Open, &Claim::Fh);
        s.fails(&[GRACE], &[ops::putfh(&fh), open]).map(drop)
    }),
    v41("BIND_CONN_TO_SESSION binds a connection for requests", |b| {
        let s = b.session()?;
        let wish = b.wish();
        let reply = alone(b, &wish, &[ops::bind_conn(s.created.id, 1)])?.all_ok()?;
        same("the result", reply.body(0)?, &Body::Bound { id: s.created.id, direction: 1 })
    }),
    v41("BIND_CONN_TO_SESSION binds a connection for callbacks or both", |b| {
        let s = b.session()?;
        let wish = b.wish();
        for wanted in [2, 3, 7] {
            let reply = alone(b, &wish, &[ops::bind_conn(s.created.id, wanted)])?.all_ok()?;
            let Body::Bound { direction, .. } = reply.body(0)? else { bail!("not bound") };
            ensure!((1..=3).contains(direction), "the direction is {direction}");
            ensure!(wanted != 2 || *direction & 2 != 0, "callbacks are refused");
        }
        Ok(())
    }),
    v41("BIND_CONN_TO_SESSION of an unknown session fails with BADSESSION", |b| {
        let wish = b.wish();
        refuses(b, &wish, &[BADSESSION], &[ops::bind_conn([7; 16], 1)])
    }),
    v41("BIND_CONN_TO_SESSION with an operation behind it fails with NOT_ONLY_OP", |b| {
        let s = b.session()?;
        let wish = b.wish();
        let op = ops::bind_conn(s.created.id, 1);
        refuses(b, &wish, &[NOT_ONLY_OP], &[op, ops::putrootfh()])
    }),
    v41("BIND_CONN_TO_SESSION with an unknown direction fails", |b| {
        let s = b.session()?;
        let wish = b.wish();
        refuses(b, &wish, &[BADXDR, INVAL], &[ops::bind_conn(s.created.id, 99)])
    }),
    v41("BACKCHANNEL_CTL changes the program of callbacks", |b| {
        b.session()?.ok(&[ops::backchannel_ctl(crate::nfs4::callback::PROGRAM)])?;
        Ok(())
    }),
    v41("SEQUENCE of another user with the same client is served", |b| {
        let mut s = b.session()?;
        s.auth = Auth::user(OTHER);
        let result = s.ok(&[s.dir(), ops::getfh()]);
        s.auth = Auth::user(0);
        result.map(drop).map_err(Into::into)
    }),
];
