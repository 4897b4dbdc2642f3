//! Cases of READDIR and READDIRPLUS.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

use super::v3;
use crate::bench::{Bench, USER, refused, refused_as, same};
use crate::nfs3::{Entry, Nfs3, Page, Sattr, kind};
use crate::status::{ACCESS, BAD_COOKIE, TOOSMALL};
use crate::suite::Case;

/// The maximum number of pages of one listing.
const PAGES_MAX: usize = 10_000;

/// Reads a page of a listing with READDIR or READDIRPLUS.
fn page(
    c: &mut Nfs3,
    is_plus: bool,
    dir: &[u8],
    at: (u64, [u8; 8]),
    count: u32,
) -> Result<Page, crate::fault::Fault> {
    match is_plus {
        true => c.readdirplus(dir, at.0, at.1, (count, count)),
        false => c.readdir(dir, at.0, at.1, count),
    }
}

/// Lists a directory completely, page by page.
fn list(c: &mut Nfs3, is_plus: bool, dir: &[u8], count: u32) -> Result<Vec<Entry>> {
    let (mut entries, mut at) = (Vec::<Entry>::new(), (0, [0; 8]));
    for _ in 0..PAGES_MAX {
        let page = page(c, is_plus, dir, at, count)?;
        ensure!(page.bytes <= count as usize, "a page of {} bytes for {count}", page.bytes);
        ensure!(page.eof || !page.entries.is_empty(), "a page is empty and not the last");
        entries.extend(page.entries);
        if page.eof {
            return Ok(entries);
        }
        at = (entries.last().context("there is no entry")?.cookie, page.verifier);
    }
    bail!("{PAGES_MAX} pages do not reach the end")
}

fn names(entries: &[Entry]) -> BTreeSet<Vec<u8>> {
    entries.iter().map(|entry| entry.name.clone()).collect()
}

/// Creates `count` symbolic links. Returns the names of all entries of the directory.
fn fill(b: &mut Bench, count: usize) -> Result<BTreeSet<Vec<u8>>> {
    let dir = b.dir.clone();
    let mut names: BTreeSet<_> = [b".".to_vec(), b"..".to_vec()].into();
    for index in 0..count {
        let name = format!("entry-{index:04}-{}", "x".repeat(index % 40));
        b.c.symlink(&dir, &name, "t", Sattr::default())?;
        names.insert(name.into_bytes());
    }
    Ok(names)
}

/// Creates entries and lists them with pages of `count` bytes. Checks that the list is complete.
fn compare(b: &mut Bench, is_plus: bool, entries: usize, count: u32) -> Result<()> {
    let wanted = fill(b, entries)?;
    let dir = b.dir.clone();
    let listed = list(&mut b.c, is_plus, &dir, count)?;
    same("the number of entries", listed.len(), wanted.len())?;
    same("the names", names(&listed), wanted)
}

/// Removes entries while they are listed. Checks that each remaining entry is listed exactly once.
fn shrinking(b: &mut Bench, is_plus: bool) -> Result<()> {
    let mut wanted = fill(b, 200)?;
    let dir = b.dir.clone();
    let (mut listed, mut at) = (Vec::<Entry>::new(), (0, [0; 8]));
    for _ in 0..PAGES_MAX {
        let page = page(&mut b.c, is_plus, &dir, at, 2048)?;
        at = (page.entries.last().map_or(at.0, |entry| entry.cookie), page.verifier);
        for entry in page.entries.iter().filter(|entry| entry.name.len() > 2).step_by(2) {
            b.c.remove(&dir, &entry.name)?;
        }
        listed.extend(page.entries);
        if page.eof {
            same("the number of entries", listed.len(), wanted.len())?;
            let found = names(&listed);
            wanted.retain(|name| !found.contains(name));
            same("the names that are missing", wanted, BTreeSet::new())?;
            return Ok(());
        }
    }
    bail!("{PAGES_MAX} pages do not reach the end")
}

/// The test cases of this file.
pub(super) const CASES: &[Case] = &[
    v3("READDIR of an empty directory returns the dots and the end", |b| {
        let dir = b.dir.clone();
        let page = b.c.readdir(&dir, 0, [0; 8], 4096)?;
        same("the names", names(&page.entries), [b".".to_vec(), b"..".to_vec()].into())?;
        same("the end", page.eof, true)
    }),
    v3("READDIR returns the numbers that GETATTR returns", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        let page = b.c.readdir(&dir, 0, [0; 8], 4096)?;
        for (name, fh) in [(&b"f"[..], &fh), (b".", &dir), (b"..", &b.root.clone())] {
            let entry = page.entries.iter().find(|entry| entry.name == name);
            let entry = entry.context("the name is missing")?;
            same("the number", entry.fileid, b.c.getattr(fh)?.fileid)?;
        }
        Ok(())
    }),
    v3("READDIR returns attributes of the directory", |b| {
        let dir = b.dir.clone();
        if let Some(attr) = b.c.readdir(&dir, 0, [0; 8], 4096)?.attr {
            same("the type", attr.kind, kind::DIR)?;
        }
        Ok(())
    }),
    v3("READDIR lists 300 entries in pages of 512 bytes, each once", |b| {
        compare(b, false, 300, 512)
    }),
    v3("READDIR lists 300 entries in pages of 1,000 bytes, each once", |b| {
        compare(b, false, 300, 1000)
    }),
    v3("READDIR lists 1,200 entries in pages of 32 KiB, each once", |b| {
        compare(b, false, 1200, 32 << 10)
    }),
    v3("READDIR with a huge count returns a page", |b| {
        let dir = b.dir.clone();
        let page = b.c.readdir(&dir, 0, [0; 8], u32::MAX)?;
        same("the end", page.eof, true)
    }),
    v3("READDIR with room for no entry fails with TOOSMALL", |b| {
        let dir = b.dir.clone();
        refused(TOOSMALL, b.c.readdir(&dir, 0, [0; 8], 16))
    }),
    v3("READDIR with a count of 0 fails with TOOSMALL", |b| {
        let dir = b.dir.clone();
        refused(TOOSMALL, b.c.readdir(&dir, 0, [0; 8], 0))
    }),
    v3("READDIR at the cookie of the last entry returns the end", |b| {
        let dir = b.dir.clone();
        let page = b.c.readdir(&dir, 0, [0; 8], 4096)?;
        let last = page.entries.last().context("there is no entry")?.cookie;
        let page = b.c.readdir(&dir, last, page.verifier, 4096)?;
        same("entries and end", (page.entries.len(), page.eof), (0, true))
    }),
    v3("READDIR continues at the cookie of each entry", |b| {
        fill(b, 5)?;
        let dir = b.dir.clone();
        let page = b.c.readdir(&dir, 0, [0; 8], 4096)?;
        for (index, entry) in page.entries.iter().enumerate() {
            let rest = b.c.readdir(&dir, entry.cookie, page.verifier, 4096)?.entries;
            same("the rest", names(&rest), names(&page.entries[index + 1..]))?;
        }
        Ok(())
    }),
    v3("cookies are not 0 and all differ", |b| {
        fill(b, 50)?;
        let dir = b.dir.clone();
        let listed = list(&mut b.c, false, &dir, 4096)?;
        let cookies: BTreeSet<_> = listed.iter().map(|entry| entry.cookie).collect();
        same("the number of cookies", cookies.len(), listed.len())?;
        same("whether 0 is one", cookies.contains(&0), false)
    }),
    v3("READDIR with a wrong verifier fails with BAD_COOKIE or ignores it", |b| {
        fill(b, 20)?;
        let dir = b.dir.clone();
        let page = b.c.readdir(&dir, 0, [0; 8], 512)?;
        let last = page.entries.last().context("there is no entry")?.cookie;
        if page.verifier == [0; 8] {
            // A server whose cookies never become invalid returns a verifier of zeros.
            return Ok(());
        }
        refused(BAD_COOKIE, b.c.readdir(&dir, last, [0xa5; 8], 512))
    }),
    v3("READDIR at a cookie that nobody made fails or ends", |b| {
        let dir = b.dir.clone();
        match b.c.readdir(&dir, u64::MAX - 5, [0; 8], 4096) {
            Ok(page) => same("the entries", page.entries.len(), 0),
            result => refused(BAD_COOKIE, result),
        }
    }),
    v3("READDIR without the right to read fails with ACCES", |b| {
        let dir = b.sub("d", 0o711)?;
        refused(ACCESS, b.user(USER)?.readdir(&dir, 0, [0; 8], 4096))
    }),
    v3("READDIR lists the rest while entries are removed", |b| shrinking(b, false)),
    v3("READDIR shows a name that was made after an empty listing", |b| {
        let dir = b.dir.clone();
        list(&mut b.c, false, &dir, 4096)?;
        b.file("new")?;
        let listed = names(&list(&mut b.c, false, &dir, 4096)?);
        ensure!(listed.contains(&b"new"[..]), "the new name is not listed");
        Ok(())
    }),
    v3("READDIR does not show a name that was removed", |b| {
        b.file("old")?;
        let dir = b.dir.clone();
        list(&mut b.c, false, &dir, 4096)?;
        b.c.remove(&dir, "old")?;
        let listed = names(&list(&mut b.c, false, &dir, 4096)?);
        ensure!(!listed.contains(&b"old"[..]), "the old name is listed");
        Ok(())
    }),
    v3("READDIRPLUS of an empty directory returns the dots and the end", |b| {
        let dir = b.dir.clone();
        let page = b.c.readdirplus(&dir, 0, [0; 8], (4096, 8192))?;
        same("the names", names(&page.entries), [b".".to_vec(), b"..".to_vec()].into())?;
        same("the end", page.eof, true)
    }),
    v3("READDIRPLUS returns the attributes that GETATTR returns", |b| {
        let (file, link, dir) = (b.file_with("f", b"hello")?, b.link_to("l", "t")?, b.dir.clone());
        let page = b.c.readdirplus(&dir, 0, [0; 8], (4096, 8192))?;
        for (name, fh) in [(b"f", &file), (b"l", &link)] {
            let entry = page.entries.iter().find(|entry| entry.name == name);
            let entry = entry.context("the name is missing")?;
            let attr = entry.attr.context("the entry has no attributes")?;
            same("the attributes", attr, b.c.getattr(fh)?)?;
        }
        Ok(())
    }),
    v3("READDIRPLUS returns handles that can be used", |b| {
        fill(b, 10)?;
        let dir = b.dir.clone();
        for entry in b.c.readdirplus(&dir, 0, [0; 8], (4096, 32768))?.entries {
            let Some(fh) = entry.fh else { continue };
            same("the number", b.c.getattr(&fh)?.fileid, entry.fileid)?;
        }
        Ok(())
    }),
    v3("READDIRPLUS returns a handle for every file", |b| {
        fill(b, 10)?;
        let dir = b.dir.clone();
        let page = b.c.readdirplus(&dir, 0, [0; 8], (4096, 32768))?;
        let files = page.entries.iter().filter(|entry| entry.name.len() > 2);
        same("the entries without a handle", files.filter(|entry| entry.fh.is_none()).count(), 0)
    }),
    v3("READDIRPLUS lists 300 entries in pages of 1,024 bytes, each once", |b| {
        compare(b, true, 300, 1024)
    }),
    v3("READDIRPLUS lists 300 entries in pages of 8 KiB, each once", |b| {
        compare(b, true, 300, 8192)
    }),
    v3("READDIRPLUS lists 1,200 entries in pages of 64 KiB, each once", |b| {
        compare(b, true, 1200, 64 << 10)
    }),
    v3("READDIRPLUS with room for no entry fails with TOOSMALL", |b| {
        let dir = b.dir.clone();
        refused(TOOSMALL, b.c.readdirplus(&dir, 0, [0; 8], (16, 16)))
    }),
    v3("READDIRPLUS with huge counts returns a page", |b| {
        let dir = b.dir.clone();
        let page = b.c.readdirplus(&dir, 0, [0; 8], (u32::MAX, u32::MAX))?;
        same("the end", page.eof, true)
    }),
    v3("READDIRPLUS without the right to read fails with ACCES", |b| {
        let dir = b.sub("d", 0o711)?;
        refused(ACCESS, b.user(USER)?.readdirplus(&dir, 0, [0; 8], (4096, 8192)))
    }),
    v3("READDIRPLUS lists the rest while entries are removed", |b| shrinking(b, true)),
    v3("READDIRPLUS shows the size that a WRITE has just made", |b| {
        let (fh, dir) = (b.file("f")?, b.dir.clone());
        b.c.readdirplus(&dir, 0, [0; 8], (4096, 8192))?;
        b.c.write(&fh, 0, 0, b"hello")?;
        let page = b.c.readdirplus(&dir, 0, [0; 8], (4096, 8192))?;
        let entry = page.entries.iter().find(|entry| entry.name == b"f");
        let attr = entry.context("the name is missing")?.attr;
        same("the size", attr.context("there are no attributes")?.size, 5)
    }),
    v3("listings of the export's root work", |b| {
        let root = b.root.clone();
        let listed = names(&list(&mut b.c, true, &root, 8192)?);
        ensure!(listed.contains(b.name.as_bytes()), "the case's directory is not listed");
        refused_as(&[TOOSMALL], b.c.readdir(&root, 0, [0; 8], 1))
    }),
];
