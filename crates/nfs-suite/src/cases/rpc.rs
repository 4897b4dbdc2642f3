//! Cases of ONC RPC (RFC 5531): programs, versions, credentials, records.

use std::io::Write;
use std::net::Shutdown;

use anyhow::{Result, bail, ensure};

use crate::bench::{Bench, USER, denied, not_done, refused, same};
use crate::fault::{Fault, GARBAGE_ARGS, PROC_UNAVAIL, PROG_MISMATCH, PROG_UNAVAIL};
use crate::nfs3::{self, at};
use crate::rpc::{Auth, Call, LAST, record_of};
use crate::status::NAMETOOLONG;
use crate::suite::{Case, Protocol};
use crate::xdr::Put;
use crate::{mount, nfs3::Fh};

const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// The number of calls that are in flight at the same time.
const CALLS: usize = 64;

const fn rpc(name: &'static str, run: fn(&mut Bench) -> Result<()>) -> Case {
    Case::new(Protocol::Rpc, name, run)
}

/// Calls a procedure of a program, without arguments.
fn bare(b: &mut Bench, program: u32, version: u32, procedure: u32) -> Result<Vec<u8>, Fault> {
    b.c.connection.call(&Call::new(program, version, procedure, &Auth::None, Vec::new()))
}

/// Calls a procedure of NFS version 3 with encoded arguments, which need not be valid.
fn with(b: &mut Bench, procedure: u32, arguments: Put) -> Result<Vec<u8>, Fault> {
    let call = b.c.prepare(procedure, arguments);
    b.c.connection.call(&call)
}

/// Calls GETATTR for the case's directory with a credential.
fn as_caller(b: &mut Bench, auth: Auth) -> Result<(), Fault> {
    let dir = b.dir.clone();
    b.c.auth = auth;
    b.c.getattr(&dir).map(drop)
}

/// Encodes a credential of AUTH_SYS, which may exceed limits.
fn sys(machine: &[u8], groups: u32) -> Auth {
    let groups: Vec<u32> = (0..groups).collect();
    let body = Put::new().u32(0).opaque(machine).u32(USER).u32(USER);
    Auth::Raw(1, body.list(&groups, |put, gid| put.u32(*gid)).0)
}

/// Checks that the server still serves a new client.
fn still_serves(b: &Bench) -> Result<()> {
    Ok(b.user(USER)?.null()?)
}

fn getattr(dir: &Fh) -> Put {
    Put::new().opaque(dir)
}

/// Checks that the server either ignores a record or closes the connection, and still serves other
/// clients.
fn is_harmless(b: &Bench, record: &[u8]) -> Result<()> {
    let mut connection = b.connection()?;
    connection.send_record(record)?;
    let null = Call::new(nfs3::PROGRAM, 3, 0, &Auth::None, Vec::new());
    match connection.call(&null) {
        Ok(_) | Err(Fault::Closed) => {}
        Err(fault) => bail!("{fault}"),
    }
    still_serves(b)
}

/// Encodes a call of NULL.
fn null(xid: u32) -> Vec<u8> {
    Call::new(nfs3::PROGRAM, 3, 0, &Auth::None, Vec::new()).encode(xid)
}

/// The test cases of this file.
pub const CASES: &[Case] = &[
    rpc("NULL is answered without a credential", |b| {
        same("the results", bare(b, nfs3::PROGRAM, 3, 0)?, vec![])
    }),
    rpc("NULL is answered with AUTH_SYS", |b| Ok(b.c.null()?)),
    rpc("an unknown program is refused with PROG_UNAVAIL", |b| {
        not_done(PROG_UNAVAIL, bare(b, 399_999, 1, 0)).map(drop)
    }),
    rpc("version 2 of NFS is refused with PROG_MISMATCH and the versions", |b| {
        let versions = not_done(PROG_MISMATCH, bare(b, nfs3::PROGRAM, 2, 0))?;
        ensure!(versions.len() == 2, "{versions:?} are not two versions");
        ensure!(versions[0] <= 3 && versions[1] >= 3, "version 3 is not in {versions:?}");
        Ok(())
    }),
    rpc("version 99 of NFS is refused with PROG_MISMATCH and the versions", |b| {
        let versions = not_done(PROG_MISMATCH, bare(b, nfs3::PROGRAM, 99, 0))?;
        ensure!(versions.len() == 2 && versions[1] >= 3, "{versions:?} are not the versions");
        Ok(())
    }),
    rpc("version 0 of NFS is refused with PROG_MISMATCH", |b| {
        not_done(PROG_MISMATCH, bare(b, nfs3::PROGRAM, 0, 0)).map(drop)
    }),
    rpc("version 9 of MOUNT is refused with PROG_MISMATCH", |b| {
        let mut mount = b.mount()?;
        let call = Call::new(mount::PROGRAM, 9, 0, &Auth::None, Vec::new());
        let versions = not_done(PROG_MISMATCH, mount.connection.call(&call))?;
        ensure!(versions.len() == 2 && versions[1] >= 3, "{versions:?} are not the versions");
        Ok(())
    }),
    rpc("procedure 22 of NFS 3 is refused with PROC_UNAVAIL", |b| {
        not_done(PROC_UNAVAIL, bare(b, nfs3::PROGRAM, 3, 22)).map(drop)
    }),
    rpc("the largest procedure number is refused with PROC_UNAVAIL", |b| {
        not_done(PROC_UNAVAIL, bare(b, nfs3::PROGRAM, 3, u32::MAX)).map(drop)
    }),
    rpc("procedure 6 of MOUNT is refused with PROC_UNAVAIL", |b| {
        not_done(PROC_UNAVAIL, b.mount()?.raw(6, Vec::new())).map(drop)
    }),
    rpc("procedure 2 of NFS 4 is refused with PROC_UNAVAIL", |b| {
        match bare(b, nfs3::PROGRAM, 4, 2) {
            // A server that supports only version 3.
            Err(Fault::NotDone { status: PROG_MISMATCH, .. }) => Ok(()),
            result => not_done(PROC_UNAVAIL, result).map(drop),
        }
    }),
    rpc("version 1 of RPC is denied with RPC_MISMATCH", |b| {
        let mut call = b.c.prepare(0, Put::new());
        call.rpc_version = 1;
        let versions = denied(RPC_MISMATCH, b.c.connection.call(&call))?;
        same("the versions of RPC", versions, vec![2, 2])
    }),
    rpc("version 3 of RPC is denied with RPC_MISMATCH", |b| {
        let mut call = b.c.prepare(0, Put::new());
        call.rpc_version = 3;
        let versions = denied(RPC_MISMATCH, b.c.connection.call(&call))?;
        same("the versions of RPC", versions, vec![2, 2])
    }),
    rpc("arguments that end early are refused with GARBAGE_ARGS", |b| {
        not_done(GARBAGE_ARGS, with(b, 1, Put::new().u32(32).u32(0))).map(drop)
    }),
    rpc("missing arguments are refused with GARBAGE_ARGS", |b| {
        not_done(GARBAGE_ARGS, with(b, 1, Put::new())).map(drop)
    }),
    rpc("a handle of 65 bytes is refused with GARBAGE_ARGS", |b| {
        not_done(GARBAGE_ARGS, with(b, 1, Put::new().opaque([0; 65]))).map(drop)
    }),
    rpc("a length of four gigabytes is refused with GARBAGE_ARGS", |b| {
        not_done(GARBAGE_ARGS, with(b, 1, Put::new().u32(u32::MAX).u64(0))).map(drop)
    }),
    rpc("an unknown stability is refused with GARBAGE_ARGS", |b| {
        let fh = b.file("f")?;
        let put = Put::new().opaque(fh).u64(0).u32(1).u32(9).opaque("x");
        not_done(GARBAGE_ARGS, with(b, 7, put)).map(drop)
    }),
    rpc("an unknown mode of CREATE is refused with GARBAGE_ARGS", |b| {
        let put = at(&b.dir, "f").u32(9);
        not_done(GARBAGE_ARGS, with(b, 8, put)).map(drop)
    }),
    rpc("an unknown way to set a time is refused with GARBAGE_ARGS", |b| {
        let put = getattr(&b.dir).u32(0).u32(0).u32(0).u32(0).u32(9).u32(0).u32(0);
        not_done(GARBAGE_ARGS, with(b, 2, put)).map(drop)
    }),
    rpc("a truth value of 7 is refused with GARBAGE_ARGS", |b| {
        let put = getattr(&b.dir).u32(7).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0);
        not_done(GARBAGE_ARGS, with(b, 2, put)).map(drop)
    }),
    rpc("a name of 2,000 bytes is refused with NAMETOOLONG", |b| {
        let dir = b.dir.clone();
        refused(NAMETOOLONG, b.c.lookup(&dir, [b'x'; 2000]))
    }),
    rpc("16 groups are accepted", |b| Ok(as_caller(b, sys(b"host", 16))?)),
    rpc("17 groups are denied", |b| denied(AUTH_ERROR, as_caller(b, sys(b"host", 17))).map(drop)),
    rpc("a machine name of 255 bytes is accepted", |b| Ok(as_caller(b, sys(&[b'm'; 255], 1))?)),
    rpc("a machine name of 256 bytes is denied", |b| {
        denied(AUTH_ERROR, as_caller(b, sys(&[b'm'; 256], 1))).map(drop)
    }),
    rpc("an AUTH_SYS credential that ends early is denied", |b| {
        denied(AUTH_ERROR, as_caller(b, Auth::Raw(1, vec![0; 8]))).map(drop)
    }),
    rpc("an empty AUTH_SYS credential is denied", |b| {
        denied(AUTH_ERROR, as_caller(b, Auth::Raw(1, Vec::new()))).map(drop)
    }),
    rpc("a credential of an unknown flavor is denied", |b| {
        denied(AUTH_ERROR, as_caller(b, Auth::Raw(77, vec![1, 2, 3, 4]))).map(drop)
    }),
    rpc("a credential of AUTH_SHORT that nobody gave is denied", |b| {
        denied(AUTH_ERROR, as_caller(b, Auth::Raw(2, vec![1, 2, 3, 4]))).map(drop)
    }),
    rpc("a malformed credential of RPCSEC_GSS is denied", |b| {
        denied(AUTH_ERROR, as_caller(b, Auth::Raw(6, vec![1, 2, 3, 4]))).map(drop)
    }),
    rpc("a credential of RPCSEC_GSS without a context is denied", |b| {
        let body = Put::new().u32(1).u32(0).u32(1).u32(1).opaque([7; 16]).0;
        denied(AUTH_ERROR, as_caller(b, Auth::Raw(6, body))).map(drop)
    }),
    rpc("a credential of 404 bytes is not accepted", |b| {
        match as_caller(b, Auth::Raw(1, vec![0; 404])) {
            Err(Fault::Denied { .. } | Fault::NotDone { .. } | Fault::Closed) => still_serves(b),
            other => bail!("{other:?} is no refusal"),
        }
    }),
    rpc("GETATTR without a credential is served or denied", |b| match as_caller(b, Auth::None) {
        Ok(()) | Err(Fault::Denied { .. } | Fault::Status { .. }) => Ok(()),
        Err(fault) => bail!("{fault}"),
    }),
    rpc("a probe for TLS is answered or denied", |b| {
        let mut connection = b.connection()?;
        let call = Call::new(nfs3::PROGRAM, 3, 0, &Auth::Raw(7, Vec::new()), Vec::new());
        match connection.call(&call) {
            Ok(_) | Err(Fault::Denied { .. }) => Ok(()),
            Err(fault) => bail!("{fault}"),
        }
    }),
    rpc("a record in fragments of four bytes is put together", |b| {
        let record = null(5);
        let fragments: Vec<&[u8]> = record.chunks(4).collect();
        b.c.connection.send_fragments(&fragments)?;
        b.c.connection.results(5).map(drop).map_err(Into::into)
    }),
    rpc("a record that ends with an empty fragment is put together", |b| {
        b.c.connection.send_fragments(&[&null(5), &[]])?;
        match b.c.connection.results(5) {
            Ok(_) | Err(Fault::Closed) => still_serves(b),
            Err(fault) => bail!("{fault}"),
        }
    }),
    rpc("a call that arrives byte by byte is answered", |b| {
        for byte in record_of(&[&null(5)]) {
            b.c.connection.send_raw(&[byte])?;
        }
        b.c.connection.results(5).map(drop).map_err(Into::into)
    }),
    rpc("64 calls in one segment are all answered", |b| {
        let stream: Vec<u8> = (0..CALLS as u32).flat_map(|xid| record_of(&[&null(xid)])).collect();
        b.c.connection.send_raw(&stream)?;
        for xid in (0..CALLS as u32).rev() {
            b.c.connection.results(xid)?;
        }
        Ok(())
    }),
    rpc("64 calls of READDIR and GETATTR in flight get their own replies", |b| {
        let dir = b.dir.clone();
        let mut sent = Vec::new();
        for index in 0..CALLS {
            let call = match index % 2 {
                0 => b.c.prepare(16, getattr(&dir).u64(0).u64(0).u32(4096)),
                _ => b.c.prepare(1, getattr(&dir)),
            };
            sent.push((index, b.c.connection.send(&call)?));
        }
        for (index, xid) in sent.into_iter().rev() {
            let length = b.c.connection.results(xid)?.len();
            same("whether the reply is GETATTR's", length == 4 + 84, index % 2 == 1)?;
        }
        Ok(())
    }),
    rpc("a call and the half of the next are answered in turn", |b| {
        let (first, second) = (record_of(&[&null(1)]), record_of(&[&null(2)]));
        let (start, rest) = second.split_at(13);
        b.c.connection.send_raw(&[&first, start].concat())?;
        b.c.connection.results(1)?;
        b.c.connection.send_raw(rest)?;
        b.c.connection.results(2).map(drop).map_err(Into::into)
    }),
    rpc("the same identifier on two connections is two calls", |b| {
        let (mut one, mut two) = (b.connection()?, b.connection()?);
        one.send_record(&null(7))?;
        two.send_record(&null(7))?;
        two.results(7)?;
        one.results(7).map(drop).map_err(Into::into)
    }),
    rpc("calls that were sent before the end of the stream are answered", |b| {
        let mut connection = b.connection()?;
        connection.send_record(&null(7))?;
        connection.stream().shutdown(Shutdown::Write)?;
        match connection.results(7) {
            Ok(_) | Err(Fault::Closed) => Ok(()),
            Err(fault) => bail!("{fault}"),
        }
    }),
    rpc("a connection that ends within a mark is dropped", |b| {
        let mut connection = b.connection()?;
        connection.send_raw(&[0x80, 0])?;
        connection.stream().shutdown(Shutdown::Write)?;
        connection.ends()?;
        still_serves(b)
    }),
    rpc("a connection that ends within a record is dropped", |b| {
        let mut connection = b.connection()?;
        connection.send_raw(&record_of(&[&null(1)])[..20])?;
        connection.stream().shutdown(Shutdown::Write)?;
        connection.ends()?;
        still_serves(b)
    }),
    rpc("a record of two gigabytes ends the connection", |b| {
        let mut connection = b.connection()?;
        connection.send_raw(&u32::MAX.to_be_bytes())?;
        // The server may close the connection before it has read these bytes.
        let _ = connection.stream().write_all(&[0; 4096]);
        connection.ends()?;
        still_serves(b)
    }),
    rpc("a record of endless fragments ends the connection", |b| {
        let mut connection = b.connection()?;
        let fragment = [&4_u32.to_be_bytes()[..], &[0; 4]].concat();
        let many = fragment.repeat(4096);
        for _ in 0..4096 {
            match connection.send_raw(&many) {
                Ok(()) => {}
                Err(Fault::Closed) => return still_serves(b),
                Err(fault) => bail!("{fault}"),
            }
        }
        bail!("64 MiB of fragments are accepted as one record")
    }),
    rpc("endless empty fragments end the connection or are ignored", |b| {
        let mut connection = b.connection()?;
        let many = [0_u8; 4].repeat(4096);
        for _ in 0..64 {
            match connection.send_raw(&many) {
                Ok(()) => {}
                Err(Fault::Closed) => break,
                Err(fault) => bail!("{fault}"),
            }
        }
        still_serves(b)
    }),
    rpc("an empty record is harmless", |b| is_harmless(b, &[])),
    rpc("a record of two bytes is harmless", |b| is_harmless(b, &[1, 2])),
    rpc("a record with an identifier alone is harmless", |b| is_harmless(b, &[0, 0, 0, 1])),
    rpc("a call that ends within its header is harmless", |b| is_harmless(b, &null(3)[..20])),
    rpc("a reply that was sent to the server is harmless", |b| {
        let reply = Put::new().u32(9).u32(1).u32(0).u32(0).u32(0).u32(0);
        is_harmless(b, &reply.0)
    }),
    rpc("a message of an unknown type is harmless", |b| {
        is_harmless(b, &Put::new().u32(9).u32(7).u64(0).u64(0).u64(0).0)
    }),
    rpc("a mark without the last bit and a stream that stops hold no client up", |b| {
        let mut idle = b.connection()?;
        idle.send_raw(&64_u32.to_be_bytes())?;
        still_serves(b)?;
        drop(idle);
        let mark = (LAST | 40).to_be_bytes();
        let mut idle = b.connection()?;
        idle.send_raw(&mark)?;
        still_serves(b)
    }),
];
