//! Cases of READDIR of version 4.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};

use super::v41;
use crate::bench::{Bench, USER, refusal, same};
use crate::nfs4::attributes::{FILEID, RDATTR_ERROR, SIZE, TIME_MODIFY_SET, TYPE};
use crate::nfs4::results::Page;
use crate::nfs4::{Attrs, Body, Session, Set, StateId, ops};
use crate::rpc::Auth;
use crate::status::{ACCESS, BAD_COOKIE, INVAL, NOT_SAME, TOOSMALL};
use crate::suite::Case;

const PAGES_MAX: usize = 10_000;

fn page(s: &mut Session, at: (u64, [u8; 8]), count: u32, numbers: &[u32]) -> Result<Page> {
    let reply = s.ok(&[s.dir(), ops::readdir(at.0, at.1, (count, count), numbers)])?;
    match reply.body(1)? {
        Body::Page(page) => Ok(page.clone()),
        other => bail!("{other:?} is no page"),
    }
}

/// Lists the case's directory completely, page by page.
fn list(s: &mut Session, count: u32, numbers: &[u32]) -> Result<Vec<(Vec<u8>, Attrs)>> {
    let (mut entries, mut at) = (Vec::new(), (0, [0; 8]));
    for _ in 0..PAGES_MAX {
        let page = page(s, at, count, numbers)?;
        ensure!(page.bytes <= count as usize, "a page of {} bytes for {count}", page.bytes);
        ensure!(page.eof || !page.entries.is_empty(), "a page is empty and not the last");
        at = (page.entries.last().map_or(at.0, |entry| entry.0), page.verifier);
        entries.extend(page.entries.into_iter().map(|(_, name, attrs)| (name, attrs)));
        if page.eof {
            return Ok(entries);
        }
    }
    bail!("{PAGES_MAX} pages do not reach the end")
}

fn fill(s: &mut Session, count: usize) -> Result<BTreeSet<Vec<u8>>> {
    let mut names = BTreeSet::new();
    for index in 0..count {
        let name = format!("entry-{index:04}-{}", "x".repeat(index % 40));
        s.ok(&[s.dir(), ops::symlink(&name, "t")])?;
        names.insert(name.into_bytes());
    }
    Ok(names)
}

fn compare(b: &mut Bench, entries: usize, count: u32, numbers: &[u32]) -> Result<()> {
    let mut s = b.session()?;
    let wanted = fill(&mut s, entries)?;
    let listed = list(&mut s, count, numbers)?;
    same("the number of entries", listed.len(), wanted.len())?;
    same("the names", listed.into_iter().map(|(name, _)| name).collect(), wanted)
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v41("READDIR of an empty directory returns no entry and the end", |b| {
        let page = page(&mut b.session()?, (0, [0; 8]), 4096, &[])?;
        same("entries and end", (page.entries.len(), page.eof), (0, true))
    }),
    v41("READDIR does not return dots", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        let listed = list(&mut s, 4096, &[])?;
        same("the names", listed, vec![(b"d".to_vec(), Attrs::default())])
    }),
    v41("READDIR returns attributes of the entries", |b| {
        let mut s = b.session()?;
        s.file("f", b"hello")?;
        let listed = list(&mut s, 4096, &[TYPE, SIZE, FILEID])?;
        let attrs = &listed[0].1;
        same("type and size", (attrs.number(TYPE)?, attrs.number(SIZE)?), (1, 5))?;
        let reply = s.ok(&[s.dir(), ops::lookup("f"), ops::getattr(&[FILEID])])?;
        same("the file", attrs.number(FILEID)?, reply.attrs(2)?.number(FILEID)?)
    }),
    v41("READDIR lists 200 entries in pages of 512 bytes, each once", |b| {
        compare(b, 200, 512, &[])
    }),
    v41("READDIR lists 200 entries with attributes in pages of 1,000 bytes, each once", |b| {
        compare(b, 200, 1000, &[TYPE, SIZE, FILEID])
    }),
    v41("READDIR lists 600 entries in pages of 32 KiB, each once", |b| {
        compare(b, 600, 32 << 10, &[TYPE])
    }),
    v41("READDIR with room for no entry fails with TOOSMALL", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("a-directory-with-a-name-of-some-length")])?;
        s.fails(&[TOOSMALL], &[s.dir(), ops::readdir(0, [0; 8], (24, 24), &[TYPE])]).map(drop)
    }),
    v41("READDIR with a count of 0 fails with TOOSMALL", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        s.fails(&[TOOSMALL], &[s.dir(), ops::readdir(0, [0; 8], (0, 0), &[])]).map(drop)
    }),
    v41("READDIR at the reserved cookies 1 and 2 fails with BAD_COOKIE", |b| {
        let mut s = b.session()?;
        for cookie in [1, 2] {
            let list = ops::readdir(cookie, [0; 8], (4096, 4096), &[]);
            s.fails(&[BAD_COOKIE, INVAL], &[s.dir(), list])?;
        }
        Ok(())
    }),
    v41("cookies are not reserved ones and all differ", |b| {
        let mut s = b.session()?;
        fill(&mut s, 30)?;
        let page = page(&mut s, (0, [0; 8]), 32 << 10, &[])?;
        let cookies: BTreeSet<u64> = page.entries.iter().map(|entry| entry.0).collect();
        same("the number of cookies", cookies.len(), page.entries.len())?;
        same("the reserved ones", cookies.iter().filter(|cookie| **cookie < 3).count(), 0)
    }),
    v41("READDIR with a wrong verifier fails or ignores it", |b| {
        let mut s = b.session()?;
        fill(&mut s, 20)?;
        let first = page(&mut s, (0, [0; 8]), 512, &[])?;
        let cookie = first.entries.last().map_or(0, |entry| entry.0);
        let list = ops::readdir(cookie, [0xa5; 8], (4096, 4096), &[]);
        let reply = s.run(&[s.dir(), list])?;
        match reply.status {
            0 => same("the verifier", first.verifier, [0; 8]),
            _ => refusal(&[NOT_SAME, BAD_COOKIE], reply.all_ok()).map(drop),
        }
    }),
    v41("READDIR without the right to read fails with ACCESS", |b| {
        let mut root = b.session()?;
        let set = ops::setattr(StateId::ANONYMOUS, &Set::new().mode(0o711));
        let fh = root.ok(&[root.dir(), ops::mkdir("d"), set, ops::getfh()])?.fh(3)?;
        let mut user = b.session_as(Auth::user(USER))?;
        let list = ops::readdir(0, [0; 8], (4096, 4096), &[]);
        user.fails(&[ACCESS], &[ops::putfh(&fh), list]).map(drop)
    }),
    v41("READDIR that asks for an attribute that can only be set fails with INVAL", |b| {
        let mut s = b.session()?;
        s.ok(&[s.dir(), ops::mkdir("d")])?;
        let list = ops::readdir(0, [0; 8], (4096, 4096), &[TIME_MODIFY_SET]);
        s.fails(&[INVAL], &[s.dir(), list]).map(drop)
    }),
    v41("READDIR that asks for the error of entries returns OK for each", |b| {
        let mut s = b.session()?;
        fill(&mut s, 3)?;
        for (_, attrs) in list(&mut s, 4096, &[RDATTR_ERROR, TYPE])? {
            if let Ok(error) = attrs.number(RDATTR_ERROR) {
                same("the error", error, 0)?;
            }
        }
        Ok(())
    }),
    v41("READDIR lists the rest while entries are removed", |b| {
        let mut s = b.session()?;
        let mut missing = fill(&mut s, 150)?;
        let mut at = (0, [0; 8]);
        for _ in 0..PAGES_MAX {
            let page = page(&mut s, at, 1500, &[])?;
            at = (page.entries.last().map_or(at.0, |entry| entry.0), page.verifier);
            for (index, (_, name, _)) in page.entries.iter().enumerate() {
                ensure!(missing.remove(name), "an entry is listed twice");
                if index % 2 == 0 {
                    s.ok(&[s.dir(), ops::remove(name)])?;
                }
            }
            if page.eof {
                return same("the names that are missing", missing, BTreeSet::new());
            }
        }
        bail!("{PAGES_MAX} pages do not reach the end")
    }),
    v41("READDIR of the server's root lists the exports", |b| {
        let mut s = b.session()?;
        let list = ops::readdir(0, [0; 8], (4096, 32768), &[TYPE]);
        let reply = s.ok(&[ops::putrootfh(), list])?;
        let Body::Page(page) = reply.body(1)? else { bail!("no page") };
        let first = b.target.path.split('/').find(|name| !name.is_empty());
        let Some(first) = first else { return Ok(()) };
        let found = page.entries.iter().any(|(_, name, _)| name == first.as_bytes());
        ensure!(found, "{first} is not listed");
        Ok(())
    }),
];
