//! Octets: read, written, appended, made to last.
//!
//! Invariants: an offset that several processes share moves once for each read and write; what
//! is written through a descriptor with O_APPEND lands at the end, whoever else writes.

use std::sync::atomic::Ordering;

use dafs_client::{ObjectType, Outcome as Brought, SetAttributes};
use dafs_types::limits::APPEND_BYTES_MAX;

use crate::config;
use crate::connection::STAGING_BYTES;
use crate::errors::{Outcome, fail};
use crate::page::Kind;
use crate::state::{Description, State};

/// Memory of the program's.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its beginning.
    pub start: *mut u8,
    /// Octets.
    pub length: usize,
}

impl Piece {
    /// # Safety
    /// The program gave this memory to be written to, for the time of the call.
    unsafe fn as_mut<'m>(self) -> &'m mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: by the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }

    /// # Safety
    /// The program gave this memory to be read from, for the time of the call.
    unsafe fn as_ref<'m>(self) -> &'m [u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: by the caller's word.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl State {
    /// Reads at an offset. Octets read, fewer only at the file's end.
    pub fn read_at(&mut self, of: &Description, pieces: &[Piece], offset: i64) -> Outcome<isize> {
        let mut at = position(offset)?;
        must_read(of)?;
        let file = self.file(of)?;
        let staging = self.connection.staging()?;
        let mut done = 0;
        for piece in pieces {
            // SAFETY: the program gave it to be read into.
            let bytes = unsafe { piece.as_mut() };
            for part in bytes.chunks_mut(STAGING_BYTES) {
                let read = file.read_into(at, staging.slice(0, part.len())?)?.length as usize;
                staging.read(0, &mut part[..read]);
                done += read;
                at += read as u64;
                if read < part.len() {
                    return Ok(done as isize);
                }
            }
        }
        Ok(done as isize)
    }

    /// Reads at the offset that the descriptors share, and moves it.
    pub fn read(&mut self, of: &Description, pieces: &[Piece]) -> Outcome<isize> {
        loop {
            let before = of.page.offset().load(Ordering::Acquire);
            let read = self.read_at(of, pieces, before as i64)?;
            let after = before + read as u64;
            let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            // Somebody who shares it has read meanwhile: what comes behind is ours.
            if of.page.offset().compare_exchange(before, after, acquire, relaxed).is_ok() {
                return Ok(read);
            }
        }
    }

    /// Writes at an offset; at the end where the descriptor appends, as Linux does.
    pub fn write_at(&mut self, of: &Description, pieces: &[Piece], offset: i64) -> Outcome<isize> {
        let at = position(offset)?;
        must_write(of)?;
        if of.page.flags() & libc::O_APPEND != 0 {
            return self.append(of, pieces).map(|(_, written)| written);
        }
        self.put(of, pieces, at)
    }

    /// Writes at the offset that the descriptors share, and moves it.
    pub fn write(&mut self, of: &Description, pieces: &[Piece]) -> Outcome<isize> {
        must_write(of)?;
        if of.page.flags() & libc::O_APPEND != 0 {
            let (end, written) = self.append(of, pieces)?;
            of.page.offset().store(end, Ordering::Release);
            return Ok(written);
        }
        let length: u64 = pieces.iter().map(|piece| piece.length as u64).sum();
        let at = of.page.offset().fetch_add(length, Ordering::AcqRel);
        let written = self.put(of, pieces, at);
        let missing = length - written.as_ref().map_or(0, |written| *written as u64);
        if missing != 0 {
            of.page.offset().fetch_sub(missing, Ordering::AcqRel);
        }
        written
    }

    fn put(&mut self, of: &Description, pieces: &[Piece], mut at: u64) -> Outcome<isize> {
        let file = self.file(of)?;
        of.times.take();
        let staging = self.connection.staging()?;
        let mut done = 0;
        for piece in pieces {
            // SAFETY: the program gave it to be written from.
            for part in unsafe { piece.as_ref() }.chunks(STAGING_BYTES) {
                staging.write(0, part);
                match file.write_from(at, staging.slice(0, part.len())?) {
                    Ok(_) => {}
                    Err(_) if done > 0 => return Ok(done as isize),
                    Err(error) => return Err(error.into()),
                }
                done += part.len();
                at += part.len() as u64;
            }
        }
        self.settle(of)?;
        Ok(done as isize)
    }

    /// The file's end behind what was appended, and how much it was.
    fn append(&mut self, of: &Description, pieces: &[Piece]) -> Outcome<(u64, isize)> {
        let file = self.file(of)?;
        let staging = self.connection.staging()?;
        let (mut end, mut done) = (of.page.offset().load(Ordering::Acquire), 0);
        let whole: Vec<u8>;
        let bytes = match pieces {
            // SAFETY: the program gave it to be written from.
            [piece] => unsafe { piece.as_ref() },
            pieces => {
                // SAFETY: the same.
                whole = pieces.iter().flat_map(|piece| unsafe { piece.as_ref() }).copied().collect();
                &whole
            }
        };
        let (session, _) = self.connection.mount(of.identity.mount)?;
        if config::get().appends_locally {
            end = self.metadata_of(of)?.size;
            let written = self.put(of, pieces, end)?;
            return Ok((end + written as u64, written));
        }
        for part in bytes.chunks(STAGING_BYTES) {
            staging.write(0, part);
            let chain = session.chain().of(&file);
            let appended = chain.append_from(staging.slice(0, part.len())?).run();
            match appended.as_deref() {
                Ok([Brought::Appended { offset, .. }]) => end = offset + part.len() as u64,
                Ok(_) => return fail(libc::EIO),
                Err(_) if done > 0 => return Ok((end, done as isize)),
                Err(failure) => return Err(failure.clone().into()),
            }
            done += part.len();
        }
        Ok((end, done as isize))
    }

    /// Makes what was written last, where the descriptor promises it.
    fn settle(&mut self, of: &Description) -> Outcome<()> {
        if of.page.flags() & (libc::O_SYNC | libc::O_DSYNC) != 0 {
            self.file(of)?.commit()?;
        }
        Ok(())
    }

    /// Brings what was written to stable storage. A directory's names are the server's care.
    pub fn sync(&mut self, of: &Description) -> Outcome<i32> {
        if of.identity.kind == Kind::File {
            self.file(of)?.commit()?;
        }
        Ok(0)
    }

    /// Moves the offset.
    pub fn seek(&mut self, of: &Description, offset: i64, whence: i32) -> Outcome<i64> {
        of.must_be_open()?;
        let size = match whence {
            libc::SEEK_SET | libc::SEEK_CUR => 0,
            _ => self.metadata_of(of)?.size as i64,
        };
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => of.page.offset().load(Ordering::Acquire) as i64,
            libc::SEEK_END => size,
            // A file without holes, but the one behind its end.
            libc::SEEK_DATA | libc::SEEK_HOLE if offset < 0 || offset >= size => {
                return fail(libc::ENXIO);
            }
            libc::SEEK_DATA => 0,
            libc::SEEK_HOLE => {
                of.page.offset().store(size as u64, Ordering::Release);
                return Ok(size);
            }
            _ => return fail(libc::EINVAL),
        };
        let Some(sought) = base.checked_add(offset) else { return fail(libc::EOVERFLOW) };
        if sought < 0 {
            return fail(libc::EINVAL);
        }
        of.page.offset().store(sought as u64, Ordering::Release);
        Ok(sought)
    }

    /// Cuts or extends an open file.
    pub fn set_length(&mut self, of: &Description, length: i64) -> Outcome<i32> {
        of.must_be_open()?;
        if length < 0 || of.identity.access == libc::O_RDONLY || of.identity.kind != Kind::File {
            return fail(libc::EINVAL);
        }
        self.file(of)?.set_len(length as u64)?;
        self.mappings.note_length(of, length as u64);
        Ok(0)
    }

    /// Sees to it that a range has room: what lies behind the end is written.
    pub fn reserve(&mut self, of: &Description, offset: i64, length: i64) -> Outcome<i32> {
        must_write(of)?;
        if offset < 0 || length <= 0 {
            return fail(libc::EINVAL);
        }
        let Some(end) = offset.checked_add(length) else { return fail(libc::EFBIG) };
        let metadata = self.metadata_of(of)?;
        if metadata.kind != ObjectType::Regular {
            return fail(libc::ENODEV);
        }
        let mut zeros = vec![0; STAGING_BYTES];
        let mut at = metadata.size as i64;
        while at < end {
            let length = (end - at).min(STAGING_BYTES as i64) as usize;
            let piece = Piece { start: zeros.as_mut_ptr(), length };
            at += self.put(of, &[piece], at as u64)? as i64;
        }
        Ok(0)
    }

    /// Sets attributes of what a descriptor stands for.
    pub fn set_attributes(&mut self, of: &Description, wanted: &SetAttributes) -> Outcome<i32> {
        let (session, _) = self.connection.mount(of.identity.mount)?;
        session.set_attributes_by_handle(of.identity.handle, wanted, &of.identity.path)?;
        let is_writer = of.identity.access != libc::O_RDONLY;
        if is_writer && (wanted.time_modify.is_some() || wanted.time_access.is_some()) {
            *of.times.borrow_mut() = Some(wanted.clone());
        }
        Ok(0)
    }
}

fn position(offset: i64) -> Outcome<u64> {
    u64::try_from(offset).or_else(|_| fail(libc::EINVAL))
}

fn must_read(of: &Description) -> Outcome<()> {
    match of.identity.kind {
        Kind::Directory => fail(libc::EISDIR),
        Kind::Object => fail(libc::EBADF),
        Kind::File if of.identity.access == libc::O_WRONLY => fail(libc::EBADF),
        Kind::File => Ok(()),
    }
}

fn must_write(of: &Description) -> Outcome<()> {
    let is_writer = of.identity.kind == Kind::File && of.identity.access != libc::O_RDONLY;
    if is_writer { Ok(()) } else { fail(libc::EBADF) }
}

const _: () = assert!(STAGING_BYTES <= APPEND_BYTES_MAX as usize);
