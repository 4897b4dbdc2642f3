//! Cases of ACCESS, and of the identity that a client states by AUTH_SYS.

use anyhow::{Context, Result, ensure};

use super::v3;
use crate::bench::{Bench, OTHER, USER, refused_as, same};
use crate::nfs3::{How, Sattr};
use crate::rpc::Auth;
use crate::status::{ACCESS, PERM, ROFS};
use crate::suite::Case;

const READ: u32 = 0x01;
const LOOKUP: u32 = 0x02;
const MODIFY: u32 = 0x04;
const EXTEND: u32 = 0x08;
const DELETE: u32 = 0x10;
const EXECUTE: u32 = 0x20;
const ALL: u32 = 0x3f;

/// The rights that apply to files. LOOKUP and DELETE apply only to directories.
const OF_FILES: u32 = READ | MODIFY | EXTEND | EXECUTE;

/// Checks the rights that a caller has to a file of user `USER` and group `OTHER`.
fn file(b: &mut Bench, mode: u32, auth: Auth, wanted: u32) -> Result<()> {
    let fh = b.file("f")?;
    b.c.setattr(&fh, Sattr::owner(USER, OTHER), None)?;
    b.c.setattr(&fh, Sattr::mode(mode), None)?;
    let (_, rights) = b.client(auth)?.access(&fh, ALL)?;
    same("the rights", rights & OF_FILES, wanted)
}

/// Checks the rights that a user has to a directory of user 0.
fn directory(b: &mut Bench, mode: u32, wanted: u32) -> Result<()> {
    let fh = b.sub("d", mode)?;
    let (_, rights) = b.user(USER)?.access(&fh, ALL)?;
    same("the rights", rights & (READ | LOOKUP | MODIFY | EXTEND), wanted)
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("ACCESS grants the owner what the mode says", |b| {
        file(b, 0o500, Auth::user(USER), READ | EXECUTE)
    }),
    v3("ACCESS grants the owner to write", |b| file(b, 0o200, Auth::user(USER), MODIFY | EXTEND)),
    v3("ACCESS denies the owner what only others may", |b| file(b, 0o077, Auth::user(USER), 0)),
    v3("ACCESS grants the group what the mode says", |b| {
        file(b, 0o040, Auth::Sys { uid: 99, gid: OTHER, gids: vec![] }, READ)
    }),
    v3("ACCESS grants a second group what the mode says", |b| {
        file(b, 0o060, Auth::Sys { uid: 99, gid: 99, gids: vec![7, OTHER] }, READ | MODIFY | EXTEND)
    }),
    v3("ACCESS denies the group what only others may", |b| {
        file(b, 0o707, Auth::Sys { uid: 99, gid: OTHER, gids: vec![] }, 0)
    }),
    v3("ACCESS grants others what the mode says", |b| file(b, 0o001, Auth::user(99), EXECUTE)),
    v3("ACCESS denies others everything with mode 770", |b| file(b, 0o770, Auth::user(99), 0)),
    v3("ACCESS grants user 0 to read and write whatever the mode", |b| {
        file(b, 0, Auth::user(0), READ | MODIFY | EXTEND)
    }),
    v3("ACCESS grants user 0 to execute if anybody may", |b| {
        file(b, 0o100, Auth::user(0), OF_FILES)
    }),
    v3("ACCESS returns no right that was not asked about", |b| {
        let fh = b.file_with_mode("f", 0o777)?;
        same("the rights", b.c.access(&fh, READ)?.1, READ)
    }),
    v3("ACCESS about nothing returns nothing", |b| {
        let fh = b.file_with_mode("f", 0o777)?;
        same("the rights", b.c.access(&fh, 0)?.1, 0)
    }),
    v3("ACCESS does not grant rights that do not exist", |b| {
        let fh = b.file_with_mode("f", 0o777)?;
        same("the rights", b.c.access(&fh, u32::MAX)?.1 & !ALL, 0)
    }),
    v3("ACCESS returns attributes", |b| {
        let fh = b.file_with("f", b"hello")?;
        let attr = b.c.access(&fh, ALL)?.0.context("there are none")?;
        same("the attributes", attr, b.c.getattr(&fh)?)
    }),
    v3("ACCESS to a directory shows the right to list", |b| directory(b, 0o754, READ)),
    v3("ACCESS to a directory shows the right to search", |b| directory(b, 0o751, LOOKUP)),
    v3("ACCESS to a directory shows the rights to change", |b| {
        directory(b, 0o757, READ | LOOKUP | MODIFY | EXTEND)
    }),
    v3("ACCESS to a directory shows the right to delete", |b| {
        let fh = b.sub("d", 0o777)?;
        same("the right", b.user(USER)?.access(&fh, DELETE)?.1, DELETE)?;
        let fh = b.sub("e", 0o755)?;
        same("the right", b.user(USER)?.access(&fh, DELETE)?.1, 0)
    }),
    v3("ACCESS does not show the right to execute a directory as a program", |b| {
        let fh = b.sub("d", 0o777)?;
        same("the right", b.user(USER)?.access(&fh, EXECUTE)?.1, 0)
    }),
    v3("ACCESS does not show the right to search a file", |b| {
        let fh = b.file_with_mode("f", 0o777)?;
        same("the right", b.user(USER)?.access(&fh, LOOKUP)?.1, 0)
    }),
    v3("ACCESS in the read-only export shows no right to change", |b| {
        let root = b.read_only()?;
        let (_, rights) = b.c.access(&root, ALL)?;
        same("the rights", rights & (MODIFY | EXTEND | DELETE), 0)?;
        same("the rights", rights & (READ | LOOKUP), READ | LOOKUP)
    }),
    v3("what ACCESS grants is what READ and WRITE allow", |b| {
        for mode in [0o000, 0o004, 0o002, 0o006] {
            let fh = b.file_with_mode(&format!("f{mode}"), mode)?;
            let mut user = b.user(USER)?;
            let (_, rights) = user.access(&fh, ALL)?;
            same("reading", user.read(&fh, 0, 1).is_ok(), rights & READ != 0)?;
            same("writing", user.write(&fh, 0, 2, b"x").is_ok(), rights & MODIFY != 0)?;
        }
        Ok(())
    }),
    v3("user 0 of a squashed export is another user", |b| {
        let root = b.squashed()?;
        let name = format!("by-root-{}", b.name);
        match b.c.create(&root, &name, How::Guarded(Sattr::mode(0o600))) {
            Ok(made) => {
                let fh = made.fh.context("there is no handle")?;
                let owner = b.c.getattr(&fh)?.uid;
                b.c.remove(&root, &name)?;
                ensure!(owner != 0, "the file belongs to user 0");
                Ok(())
            }
            result => refused_as(&[ACCESS, PERM, ROFS], result),
        }
    }),
    v3("user 0 of a squashed export cannot change the files of users", |b| {
        let root = b.squashed()?;
        let name = format!("by-user-{}", b.name);
        let mut user = b.user(USER)?;
        let made = user.create(&root, &name, How::Guarded(Sattr::mode(0o600)))?;
        let fh = made.fh.context("there is no handle")?;
        let read = b.c.read(&fh, 0, 10);
        let chmod = b.c.setattr(&fh, Sattr::mode(0o666), None);
        user.remove(&root, &name)?;
        refused_as(&[ACCESS, PERM], read)?;
        refused_as(&[ACCESS, PERM], chmod)
    }),
    v3("a user of a squashed export stays the same user", |b| {
        let root = b.squashed()?;
        let name = format!("mine-{}", b.name);
        let mut user = b.user(USER)?;
        let made = user.create(&root, &name, How::Guarded(Sattr::mode(0o600)))?;
        let owner = user.getattr(&made.fh.context("there is no handle")?)?.uid;
        user.remove(&root, &name)?;
        same("the owner", owner, USER)
    }),
    v3("two users on one connection keep their own rights", |b| {
        let fh = b.file_with_mode("f", 0o600)?;
        b.c.setattr(&fh, Sattr::owner(USER, USER), None)?;
        for _ in 0..3 {
            b.c.auth = Auth::user(USER);
            b.c.read(&fh, 0, 1)?;
            b.c.auth = Auth::user(OTHER);
            refused_as(&[ACCESS], b.c.read(&fh, 0, 1))?;
        }
        Ok(())
    }),
];
