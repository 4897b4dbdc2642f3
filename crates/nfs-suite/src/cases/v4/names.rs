//! Cases of LOOKUP, CREATE, REMOVE, RENAME, LINK, READLINK, SECINFO and SECINFO_NO_NAME.

use anyhow::{Context, Result, bail, ensure};

use super::v41;
use crate::bench::{Bench, USER, await_tick, same};
use crate::nfs4::attributes::{CHANGE, FILEID, MODE, NUMLINKS, OWNER, RAWDEV, SIZE, TYPE};
use crate::nfs4::results::Change;
use crate::nfs4::{Body, Op, Session, Set, StateId, Value, ops};
use crate::rpc::Auth;
use crate::status::{
    ACCESS, ATTRNOTSUPP, BADCHAR, BADNAME, BADTYPE, EXIST, INVAL, ISDIR, NAMETOOLONG, NOENT,
    NOFILEHANDLE, NOTDIR, NOTEMPTY, PERM, ROFS, SYMLINK, WRONG_TYPE, XDEV,
};
use crate::suite::Case;
use crate::xdr::Put;

const LONG: [u8; 256] = [b'n'; 256];

/// The statuses that a server may return for a name that no file can have.
const BAD: &[u32] = &[BADNAME, BADCHAR, INVAL];

/// Returns the operations of a rename within the case's directory.
fn rename(s: &Session, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Vec<Op> {
    vec![s.dir(), ops::savefh(), s.dir(), ops::rename(from, to)]
}

/// Checks the change information in a reply against the change attribute before and after.
fn is_right(s: &mut Session, change: Change, before: u64) -> Result<()> {
    let reply = s.ok(&[s.dir(), ops::getattr(&[CHANGE])])?;
    let after = reply.attrs(1)?.number(CHANGE)?;
    same("the value before", change.before, before)?;
    ensure!(change.after != before && after != before, "the value stays {before}");
    Ok(())
}

fn change_now(s: &mut Session) -> Result<u64> {
    await_tick();
    Ok(s.ok(&[s.dir(), ops::getattr(&[CHANGE])])?.attrs(1)?.number(CHANGE)?)
}

/// Creates an object, and checks its type.
fn make(b: &mut Bench, kind: Put, wanted: u64) -> Result<()> {
    let mut s = b.session()?;
    let create = ops::create(kind, "x", &Set::new().mode(0o640));
    let reply = s.ok(&[s.dir(), create, ops::getattr(&[TYPE])])?;
    same("the type", reply.attrs(2)?.number(TYPE)?, wanted)
}

/// Checks that an operation with a name that no file can have is refused.
fn bad_name(b: &mut Bench, op: impl Fn(&[u8]) -> Op) -> Result<()> {
    let mut s = b.session()?;
    s.ok(&[s.dir(), ops::mkdir("d")])?;
    for name in [&b""[..], b".", b"..", b"d/..", b"a\0b"] {
        let statuses = [BAD, &[NOENT, ACCESS]].concat();
        s.fails(&statuses, &[s.dir(), op(name)])
            .with_context(|| format!("the name {:?}", name.escape_ascii().to_string()))?;
    }
    Ok(())
}

fn too_long(b: &mut Bench, op: Op) -> Result<()> {
    let mut s = b.session()?;
    s.fails(&[NAMETOOLONG], &[s.dir(), op]).map(drop)
}

/// Creates a directory of user 0 with a mode. Returns the sessions of user 0 and of another user,
/// and the handle.
fn users_directory(b: &mut Bench, mode: u32) -> Result<(Session, Session, Vec<u8>)> {
    let mut root = b.session()?;
    let set = ops::setattr(StateId::ANONYMOUS, &Set::new().mode(mode));
    let make = [root.dir(), ops::mkdir("d"), set, ops::getfh(), ops::mkdir("x")];
    let fh = root.ok(&make)?.fh(3)?;
    Ok((root, b.session_as(Auth::user(USER))?, fh))
}

/// Checks that an operation of a user without permission to the directory is refused.
fn no_right(b: &mut Bench, mode: u32, op: Op) -> Result<()> {
    let (_root, mut user, fh) = users_directory(b, mode)?;
    user.fails(&[ACCESS, PERM], &[ops::putfh(&fh), ops::savefh(), op]).map(drop)
}

/// Checks that an operation in the read-only export fails with ROFS.
fn read_only(b: &mut Bench, op: Op) -> Result<()> {
    let path = b.read_only_path()?;
    let mut s = b.session()?;
    let fh = b.walk_from(&mut s, &path)?;
    s.fails(&[ROFS], &[ops::putfh(&fh), ops::savefh(), op]).map(drop)
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("LOOKUP finds a name", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"hello")?;
        let reply = s.ok(&[s.dir(), ops::lookup("f"), ops::getfh(), ops::getattr(&[SIZE])])?;
        same("the handle", reply.fh(2)?, fh)?;
        same("the size", reply.attrs(3)?.number(SIZE)?, 5)
    }),
    v41("LOOKUP of a missing name fails with NOENT", |b| {
        let mut s = b.session()?;
        s.fails(&[NOENT], &[s.dir(), ops::lookup("none")]).map(drop)
    }),
    v41("LOOKUP through a symbolic link fails with SYMLINK", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        s.ok(&[s.dir(), ops::symlink("l", "d")])?;
        s.fails(&[SYMLINK], &[s.dir(), ops::lookup("l"), ops::lookup("x")]).map(drop)
    }),
    v41("LOOKUP of a name that no file can have fails", |b| bad_name(b, |name| ops::lookup(name))),
    v41("LOOKUP of an empty name fails with INVAL", |b| {
        let mut s = b.session()?;
        s.fails(&[INVAL], &[s.dir(), ops::lookup("")]).map(drop)
    }),
    v41("LOOKUP of a long name fails with NAMETOOLONG", |b| too_long(b, ops::lookup(LONG))),
    v41("LOOKUP without the right to search fails with ACCESS", |b| {
        no_right(b, 0o700, ops::lookup("x"))
    }),
    v41("CREATE makes a directory", |b| make(b, Put::new().u32(2), 2)),
    v41("CREATE makes a symbolic link", |b| make(b, Put::new().u32(5).opaque("target"), 5)),
    v41("CREATE makes a socket", |b| make(b, Put::new().u32(6), 6)),
    v41("CREATE makes a named pipe", |b| make(b, Put::new().u32(7), 7)),
    v41("CREATE makes device nodes with their numbers", |b| {
        let mut s = b.session()?;
        for (name, kind) in [("b", 3), ("c", 4)] {
            let create = ops::create(Put::new().u32(kind).u32(7).u32(300), name, &Set::new());
            let reply = s.ok(&[s.dir(), create, ops::getattr(&[RAWDEV])])?;
            same("the device", reply.attrs(2)?.0.get(&RAWDEV), Some(&Value::Pair(7, 300)))?;
        }
        Ok(())
    }),
    v41("CREATE of a device by a user fails with PERM", |b| {
        let mut s = b.session_as(Auth::user(USER))?;
        let create = ops::create(Put::new().u32(4).u32(1).u32(3), "c", &Set::new());
        s.fails(&[PERM, ACCESS], &[s.dir(), create]).map(drop)
    }),
    v41("CREATE of a regular file fails with BADTYPE", |b| {
        let mut s = b.session()?;
        let create = ops::create(Put::new().u32(1), "x", &Set::new());
        s.fails(&[BADTYPE], &[s.dir(), create]).map(drop)
    }),
    v41("CREATE of a named attribute fails with BADTYPE", |b| {
        let mut s = b.session()?;
        for kind in [8, 9] {
            let create = ops::create(Put::new().u32(kind), "x", &Set::new());
            s.fails(&[BADTYPE], &[s.dir(), create])?;
        }
        Ok(())
    }),
    v41("CREATE of an unknown type fails", |b| {
        let mut s = b.session()?;
        let create = ops::create(Put::new().u32(99), "x", &Set::new());
        s.fails(&[BADTYPE, crate::status::BADXDR], &[s.dir(), create]).map(drop)
    }),
    v41("CREATE of a name that exists fails with EXIST", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.fails(&[EXIST], &[s.dir(), ops::mkdir("f")])?;
        s.fails(&[EXIST], &[s.dir(), ops::symlink("f", "t")]).map(drop)
    }),
    v41("CREATE of a name that no file can have fails", |b| bad_name(b, |name| ops::mkdir(name))),
    v41("CREATE of a long name fails with NAMETOOLONG", |b| too_long(b, ops::mkdir(LONG))),
    v41("CREATE without the right to write fails with ACCESS", |b| {
        no_right(b, 0o755, ops::mkdir("y"))
    }),
    v41("CREATE in the read-only export fails with ROFS", |b| read_only(b, ops::mkdir("x"))),
    v41("CREATE makes the new object the current one and sets its attributes", |b| {
        let mut s = b.session()?;
        let create = ops::create(Put::new().u32(2), "d", &Set::new().mode(0o710));
        let reply = s.ok(&[s.dir(), create, ops::getfh(), ops::getattr(&[MODE, TYPE])])?;
        let attrs = reply.attrs(3)?;
        same("mode and type", (attrs.number(MODE)?, attrs.number(TYPE)?), (0o710, 2))?;
        let found = s.ok(&[s.dir(), ops::lookup("d"), ops::getfh()])?.fh(2)?;
        same("the handle", found, reply.fh(2)?)
    }),
    v41("CREATE says which attributes it has set", |b| {
        let mut s = b.session()?;
        let reply = s.ok(&[s.dir(), ops::mkdir("d")])?;
        let Body::Created(_, set) = reply.body(1)? else { bail!("nothing was created") };
        same("the attributes", set, &vec![MODE])
    }),
    v41("CREATE with an unknown attribute fails with ATTRNOTSUPP", |b| {
        let mut s = b.session()?;
        let set = Set::new().with(150, Put::new().u32(1));
        s.fails(&[ATTRNOTSUPP], &[s.dir(), ops::create(Put::new().u32(2), "d", &set)]).map(drop)
    }),
    v41("CREATE with an attribute that can only be read fails with INVAL", |b| {
        let mut s = b.session()?;
        let set = Set::new().with(FILEID, Put::new().u64(1));
        s.fails(&[INVAL], &[s.dir(), ops::create(Put::new().u32(2), "d", &set)]).map(drop)
    }),
    v41("CREATE returns the change of the directory", |b| {
        let mut s = b.session()?;
        let before = change_now(&mut s)?;
        let reply = s.ok(&[s.dir(), ops::mkdir("d")])?;
        let Body::Created(change, _) = reply.body(1)?.clone() else { bail!("not created") };
        is_right(&mut s, change, before)
    }),
    v41("CREATE of a link with an empty target fails", |b| {
        let mut s = b.session()?;
        s.fails(&[INVAL, NOENT], &[s.dir(), ops::symlink("l", "")]).map(drop)
    }),
    v41("an object belongs to the user who made it", |b| {
        let mut s = b.session_as(Auth::user(USER))?;
        let reply = s.ok(&[s.dir(), ops::mkdir("d"), ops::getattr(&[OWNER])])?;
        same("the owner", reply.attrs(2)?.bytes(OWNER)?, USER.to_string().into_bytes())
    }),
    v41("REMOVE removes a file, a link and an empty directory", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.ok(&[s.dir(), ops::symlink("l", "t")])?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        for name in ["f", "l", "d"] {
            s.ok(&[s.dir(), ops::remove(name)])?;
            s.fails(&[NOENT], &[s.dir(), ops::lookup(name)])?;
        }
        Ok(())
    }),
    v41("REMOVE of a missing name fails with NOENT", |b| {
        let mut s = b.session()?;
        s.fails(&[NOENT], &[s.dir(), ops::remove("none")]).map(drop)
    }),
    v41("REMOVE of a directory with entries fails with NOTEMPTY", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d"), ops::mkdir("x")])?;
        s.fails(&[NOTEMPTY], &[s.dir(), ops::remove("d")]).map(drop)
    }),
    v41("REMOVE of a name that no file can have fails", |b| bad_name(b, |name| ops::remove(name))),
    v41("REMOVE of a long name fails with NAMETOOLONG", |b| too_long(b, ops::remove(LONG))),
    v41("REMOVE without the right to write fails with ACCESS", |b| {
        no_right(b, 0o755, ops::remove("x"))
    }),
    v41("REMOVE in the read-only export fails with ROFS", |b| read_only(b, ops::remove("file"))),
    v41("REMOVE returns the change of the directory", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let before = change_now(&mut s)?;
        let reply = s.ok(&[s.dir(), ops::remove("f")])?;
        let Body::Change(change) = reply.body(1)?.clone() else { bail!("no change") };
        is_right(&mut s, change, before)
    }),
    v41("RENAME moves a name and keeps the handle", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        s.ok(&rename(&s, "f", "g"))?;
        let reply = s.ok(&[s.dir(), ops::lookup("g"), ops::getfh()])?;
        same("the handle", reply.fh(2)?, fh)
    }),
    v41("RENAME moves a name to another directory", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        s.ok(&[s.dir(), ops::savefh(), ops::lookup("d"), ops::rename("f", "g")])?;
        s.ok(&[s.dir(), ops::lookup("d"), ops::lookup("g")])?;
        s.fails(&[NOENT], &[s.dir(), ops::lookup("f")]).map(drop)
    }),
    v41("RENAME replaces a file", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"one")?;
        s.file("g", b"two")?;
        s.ok(&rename(&s, "f", "g"))?;
        same("the handle", s.ok(&[s.dir(), ops::lookup("g"), ops::getfh()])?.fh(2)?, fh)
    }),
    v41("RENAME to the same name and to another name of the file does nothing", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        s.ok(&[ops::putfh(&fh), ops::savefh(), s.dir(), ops::link("g")])?;
        s.ok(&rename(&s, "f", "f"))?;
        s.ok(&rename(&s, "f", "g"))?;
        s.ok(&[s.dir(), ops::lookup("f")])?;
        s.ok(&[s.dir(), ops::lookup("g")])?;
        Ok(())
    }),
    v41("RENAME of a missing name fails with NOENT", |b| {
        let mut s = b.session()?;
        let ops = rename(&s, "none", "x");
        s.fails(&[NOENT], &ops).map(drop)
    }),
    v41("RENAME of a file over a directory fails with EXIST", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        let ops = rename(&s, "f", "d");
        s.fails(&[EXIST, ISDIR], &ops).map(drop)
    }),
    v41("RENAME of a directory over a file fails with EXIST", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        let ops = rename(&s, "d", "f");
        s.fails(&[EXIST, NOTDIR], &ops).map(drop)
    }),
    v41("RENAME over a directory with entries fails", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        s.ok(&[s.dir(), ops::mkdir("e"), ops::mkdir("x")])?;
        let ops = rename(&s, "d", "e");
        s.fails(&[EXIST, NOTEMPTY], &ops).map(drop)
    }),
    v41("RENAME over an empty directory succeeds", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d"), s.dir(), ops::mkdir("e")])?;
        s.ok(&rename(&s, "d", "e"))?;
        Ok(())
    }),
    v41("RENAME of a directory into itself fails with INVAL", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        let ops = [s.dir(), ops::savefh(), ops::lookup("d"), ops::rename("d", "x")];
        s.fails(&[INVAL], &ops).map(drop)
    }),
    v41("RENAME from or to a name that no file can have fails", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        for name in [".", "..", ""] {
            for (from, to) in [(name, "x"), ("f", name)] {
                let ops = rename(&s, from, to);
                s.fails(&[BADNAME, INVAL, EXIST, NOENT, ISDIR], &ops)?;
            }
        }
        Ok(())
    }),
    v41("RENAME to a long name fails with NAMETOOLONG", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let ops = rename(&s, "f", LONG);
        s.fails(&[NAMETOOLONG], &ops).map(drop)
    }),
    v41("RENAME without the right to write fails with ACCESS", |b| {
        no_right(b, 0o755, ops::rename("x", "y"))
    }),
    v41("RENAME in the read-only export fails with ROFS", |b| {
        read_only(b, ops::rename("file", "x"))
    }),
    v41("RENAME to another export fails with XDEV", |b| {
        let path = b.squashed_path()?;
        let mut s = b.session()?;
        s.file("f", b"")?;
        let other = b.walk_from(&mut s, &path)?;
        let ops = [s.dir(), ops::savefh(), ops::putfh(&other), ops::rename("f", "g")];
        s.fails(&[XDEV, ACCESS], &ops).map(drop)
    }),
    v41("RENAME returns the changes of both directories", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let before = change_now(&mut s)?;
        let reply = s.ok(&rename(&s, "f", "g"))?;
        let Body::Changes(from, to) = reply.body(3)?.clone() else { bail!("no changes") };
        is_right(&mut s, from, before)?;
        is_right(&mut s, to, before)
    }),
    v41("LINK makes another name", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        s.ok(&[ops::putfh(&fh), ops::savefh(), s.dir(), ops::link("g")])?;
        let reply = s.ok(&[s.dir(), ops::lookup("g"), ops::getattr(&[NUMLINKS])])?;
        same("the links", reply.attrs(2)?.number(NUMLINKS)?, 2)
    }),
    v41("LINK over a name that exists fails with EXIST", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let ops = [ops::putfh(&fh), ops::savefh(), s.dir(), ops::link("f")];
        s.fails(&[EXIST], &ops).map(drop)
    }),
    v41("LINK of a directory fails with ISDIR", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        let ops = [s.dir(), ops::lookup("d"), ops::savefh(), s.dir(), ops::link("g")];
        s.fails(&[ISDIR, PERM], &ops).map(drop)
    }),
    v41("LINK to a name that no file can have fails", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        for name in [".", "..", "", "a/b"] {
            let ops = [ops::putfh(&fh), ops::savefh(), s.dir(), ops::link(name)];
            s.fails(&[BADNAME, BADCHAR, INVAL, EXIST, NOENT], &ops)?;
        }
        Ok(())
    }),
    v41("LINK to a long name fails with NAMETOOLONG", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let ops = [ops::putfh(&fh), ops::savefh(), s.dir(), ops::link(LONG)];
        s.fails(&[NAMETOOLONG], &ops).map(drop)
    }),
    v41("LINK to another export fails with XDEV", |b| {
        let path = b.squashed_path()?;
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        let other = b.walk_from(&mut s, &path)?;
        let ops = [ops::putfh(&fh), ops::savefh(), ops::putfh(&other), ops::link("g")];
        s.fails(&[XDEV, ACCESS], &ops).map(drop)
    }),
    v41("READLINK returns the target", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::symlink("l", "../some/where")])?;
        let reply = s.ok(&[s.dir(), ops::lookup("l"), ops::readlink()])?;
        same("the target", reply.body(2)?, &Body::Bytes(b"../some/where".to_vec()))
    }),
    v41("READLINK of a file or a directory fails", |b| {
        let mut s = b.session()?;
        let fh = s.file("f", b"")?;
        s.fails(&[INVAL, WRONG_TYPE], &[ops::putfh(&fh), ops::readlink()])?;
        s.fails(&[INVAL, WRONG_TYPE, ISDIR], &[s.dir(), ops::readlink()]).map(drop)
    }),
    v41("SECINFO names AUTH_SYS and uses the handle up", |b| {
        let mut s = b.session()?;
        s.file("f", b"")?;
        let reply = s.ok(&[s.dir(), ops::secinfo("f")])?;
        let Body::Flavors(flavors) = reply.body(1)? else { bail!("no flavors") };
        ensure!(flavors.contains(&1), "{flavors:?} lack AUTH_SYS");
        s.fails(&[NOFILEHANDLE], &[s.dir(), ops::secinfo("f"), ops::getfh()]).map(drop)
    }),
    v41("SECINFO of a missing name fails with NOENT", |b| {
        let mut s = b.session()?;
        s.fails(&[NOENT], &[s.dir(), ops::secinfo("none")]).map(drop)
    }),
    v41("SECINFO of an empty name fails with INVAL", |b| {
        let mut s = b.session()?;
        s.fails(&[INVAL], &[s.dir(), ops::secinfo("")]).map(drop)
    }),
    v41("SECINFO_NO_NAME names AUTH_SYS and uses the handle up", |b| {
        let mut s = b.session()?;
        for style in [0, 1] {
            let reply = s.ok(&[s.dir(), ops::secinfo_no_name(style)])?;
            let Body::Flavors(flavors) = reply.body(1)? else { bail!("no flavors") };
            ensure!(flavors.contains(&1), "{flavors:?} lack AUTH_SYS");
        }
        s.fails(&[NOFILEHANDLE], &[s.dir(), ops::secinfo_no_name(0), ops::getfh()]).map(drop)
    }),
    v41("SECINFO_NO_NAME of the root's parent fails with NOENT", |b| {
        let mut s = b.session()?;
        s.fails(&[NOENT], &[ops::putrootfh(), ops::secinfo_no_name(1)]).map(drop)
    }),
    v41("SECINFO_NO_NAME with an unknown style fails", |b| {
        let mut s = b.session()?;
        let statuses = [crate::status::BADXDR, INVAL];
        s.fails(&statuses, &[s.dir(), ops::secinfo_no_name(9)]).map(drop)
    }),
    v41("the paths of exports lead from the server's root", |b| {
        let mut s = b.session()?;
        let exports = b.mount()?.export()?;
        for export in exports {
            let path = String::from_utf8_lossy(&export.path).into_owned();
            b.walk_from(&mut s, &path)?;
        }
        Ok(())
    }),
    v41("nothing can be made in the directories above the exports", |b| {
        if b.target.path == "/" {
            return Err(crate::suite::Skip("the export is the root".into()).into());
        }
        let mut s = b.session()?;
        s.fails(&[ROFS, ACCESS, PERM], &[ops::putrootfh(), ops::mkdir("x")])?;
        s.fails(&[ROFS, ACCESS, PERM, NOENT], &[ops::putrootfh(), ops::remove("x")]).map(drop)
    }),
];
