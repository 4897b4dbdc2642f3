//! Octets: read, written, appended, made to last.
//!
//! Invariants: an offset that several processes share moves once for each read and write; what
//! is written through a descriptor with O_APPEND lands at the end, whoever else writes.

use std::sync::atomic::Ordering;

use dafs_client::{Buffer, File, ObjectType, Outcome as Brought, SetAttributes};
use dafs_types::limits::APPEND_BYTES_MAX;

use crate::config;
use crate::connection::STAGING_BYTES;
use crate::errors::{Failure, Outcome, fail};
use crate::given::{Purpose, must_have};
use crate::mapping::is_tracked;
use crate::page::Kind;
use crate::shared::SharedObject;
use crate::state::{Description, State};
use crate::waiting::{settle, wait};

/// Memory of the program's.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its beginning.
    pub start: *mut u8,
    /// Octets.
    pub length: usize,
}

impl Piece {
    /// Parts of it that the staging memory has room for.
    fn parts(self) -> impl Iterator<Item = Self> {
        (0..self.length).step_by(STAGING_BYTES).map(move |at| Self {
            start: self.start.wrapping_add(at),
            length: STAGING_BYTES.min(self.length - at),
        })
    }

    /// # Safety
    /// The program gave this memory to be written to, for the time of the call.
    unsafe fn as_mut<'m>(self) -> Outcome<&'m mut [u8]> {
        if self.length == 0 {
            return Ok(&mut []);
        }
        must_have(self.start, self.length, Purpose::Writing)?;
        // SAFETY: by the caller's word, and it is there.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start, self.length) })
    }

    /// # Safety
    /// The program gave this memory to be read from, for the time of the call.
    unsafe fn as_ref<'m>(self) -> Outcome<&'m [u8]> {
        if self.length == 0 {
            return Ok(&[]);
        }
        must_have(self.start, self.length, Purpose::Reading)?;
        // SAFETY: by the caller's word, and it is there.
        Ok(unsafe { std::slice::from_raw_parts(self.start, self.length) })
    }
}

impl State {
    /// Reads at an offset. Octets read, fewer only at the file's end.
    pub fn read_at(&mut self, of: &Description, pieces: &[Piece], offset: i64) -> Outcome<isize> {
        let mut at = position(offset)?;
        must_read(of)?;
        if is_tracked() {
            // What this process has changed in memory is in the file for who reads it.
            self.write_back_of(&of.identity.handle)?;
        }
        let file = self.file(of)?;
        let staging = self.connection.staging()?;
        let mut done = 0;
        for piece in pieces {
            for part in piece.parts() {
                let read = self.moved(read_whole(&file, at, &staging, part.length))?;
                // SAFETY: the program gave it to be read into.
                match unsafe { Piece { length: read, ..part }.as_mut() } {
                    Ok(bytes) => staging.read(0, bytes),
                    Err(_) if done > 0 => return Ok(done as isize),
                    Err(failure) => return Err(failure),
                }
                done += read;
                at += read as u64;
                if read < part.length {
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

    /// Writes at an offset, whatever the descriptor's flags.
    pub fn put(&mut self, of: &Description, pieces: &[Piece], mut at: u64) -> Outcome<isize> {
        let file = self.file(of)?;
        of.times.take();
        let staging = self.connection.staging()?;
        let mut done = 0;
        for piece in pieces {
            for part in piece.parts() {
                // SAFETY: the program gave it to be written from.
                let part = match unsafe { part.as_ref() } {
                    Ok(part) => part,
                    Err(_) if done > 0 => return Ok(done as isize),
                    Err(failure) => return Err(failure),
                };
                staging.write(0, part);
                match self.moved(write_whole(&file, at, &staging, part.len())) {
                    Ok(()) if is_tracked() => self.mappings.note_written(of, at, part),
                    Ok(()) => {}
                    Err(_) if done > 0 => return Ok(done as isize),
                    Err(failure) => return Err(failure),
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
            [piece] => unsafe { piece.as_ref() }?,
            pieces => {
                let mut together = Vec::new();
                for piece in pieces {
                    // SAFETY: the same.
                    together.extend_from_slice(unsafe { piece.as_ref() }?);
                }
                whole = together;
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
            let appending = chain.append_from(staging.slice(0, part.len())?).run_async();
            let appended = wait(&session.client(), appending).and_then(|it| Ok(it?));
            match self.keeping_staging(appended).as_deref() {
                Ok([Brought::Appended { offset, .. }]) => end = offset + part.len() as u64,
                Ok(_) => return fail(libc::EIO),
                Err(_) if done > 0 => return Ok((end, done as isize)),
                Err(failure) => return Err(failure.clone()),
            }
            done += part.len();
        }
        Ok((end, done as isize))
    }

    /// Waits for octets that move to or from the staging memory.
    fn moved<T>(&mut self, moving: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let Some(client) = self.connection.client() else { return fail(libc::EIO) };
        let moved = settle(&client, moving);
        self.keeping_staging(moved)
    }

    /// What was not waited for may still move: that memory is used no more.
    fn keeping_staging<T>(&mut self, moved: Outcome<T>) -> Outcome<T> {
        if matches!(moved, Err(Failure::Errno(libc::EINTR))) {
            self.connection.renew_staging();
        }
        moved
    }

    /// Reads for the library itself, no more than the staging memory has room for; fewer octets
    /// only at the file's end.
    pub fn read_aside(&mut self, file: &File, at: u64, length: usize) -> Outcome<Vec<u8>> {
        let staging = self.connection.staging()?;
        let mut bytes = vec![0; self.moved(read_whole(file, at, &staging, length))?];
        staging.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Writes for the library itself, no more than the staging memory has room for. Memory that
    /// the file is mapped to stays as it is.
    pub fn write_aside(&mut self, file: &File, at: u64, bytes: &[u8]) -> Outcome<()> {
        let staging = self.connection.staging()?;
        staging.write(0, bytes);
        self.moved(write_whole(file, at, &staging, bytes.len()))
    }

    fn commit(&mut self, of: &Description) -> Outcome<()> {
        let file = self.file(of)?;
        let done = settle(&file.session().client(), file.commit_async())?;
        Ok(file.note_committed(done.verifier)?)
    }

    /// Makes what was written last, where the descriptor promises it.
    fn settle(&mut self, of: &Description) -> Outcome<()> {
        if of.page.flags() & (libc::O_SYNC | libc::O_DSYNC) != 0 {
            self.commit(of)?;
        }
        Ok(())
    }

    /// Brings what was written to stable storage. A directory's names are the server's care.
    pub fn sync(&mut self, of: &Description) -> Outcome<i32> {
        of.must_be_open()?;
        if of.identity.kind == Kind::File {
            self.commit(of)?;
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
        let file = self.file(of)?;
        let wanted = SetAttributes { size: Some(length as u64), ..SetAttributes::default() };
        settle(&file.session().client(), file.set_attributes_async(&wanted))?;
        SharedObject::note_length(of.identity.mount, &of.identity.handle, length as u64);
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
        let identity = &of.identity;
        let setting = session.set_attributes_async(identity.handle, wanted, &identity.path);
        settle(&session.client(), setting)?;
        let is_writer = of.identity.access != libc::O_RDONLY;
        if is_writer && (wanted.time_modify.is_some() || wanted.time_access.is_some()) {
            *of.times.borrow_mut() = Some(wanted.clone());
        }
        Ok(0)
    }
}

/// Reads so much; less only at the file's end.
async fn read_whole(file: &File, at: u64, staging: &Buffer, length: usize) -> Outcome<usize> {
    let mut done = 0;
    loop {
        let slice = staging.slice(done, length - done)?;
        let moved = file.read_async(at + done as u64, slice).await?;
        done += moved.length as usize;
        if done >= length || moved.end_of_file {
            return Ok(done);
        }
        if moved.length == 0 {
            return fail(libc::EIO);
        }
    }
}

async fn write_whole(file: &File, at: u64, staging: &Buffer, length: usize) -> Outcome<()> {
    let mut done = 0;
    while done < length {
        let slice = staging.slice(done, length - done)?;
        let moved = file.write_async(at + done as u64, slice).await?;
        file.note_unstable(moved.verifier)?;
        done += moved.length as usize;
        if moved.length == 0 {
            return fail(libc::EIO);
        }
    }
    Ok(())
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
const _: () = assert!(STAGING_BYTES >= crate::shared::PAGE);
