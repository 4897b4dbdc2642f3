//! Reads, writes, appends to and syncs files.
//!
//! Invariants:
//! - The offset that several processes share is advanced exactly once for each read or write.
//! - A write through a descriptor with O_APPEND goes to the end of the file, even while other
//!   clients write.

use std::sync::atomic::Ordering;

use dafs_client::{Buffer, File, ObjectType, Outcome as Brought, SetAttributes};
use dafs_types::Verifier;
use dafs_types::limits::APPEND_BYTES_MAX;

use crate::config;
use crate::connection::STAGING_BYTES;
use crate::errors::{Outcome, fail};
use crate::mapping::is_tracked;
use crate::page::Kind;
use crate::shared::SharedObject;
use crate::state::{Description, State};
use crate::user_memory::{Purpose, must_have};
use crate::waiting::wait_result;

/// A buffer in the program's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The address of the first byte.
    pub start: *mut u8,
    /// The length in bytes.
    pub length: usize,
}

impl Piece {
    /// Splits the buffer into parts that fit the staging memory.
    fn parts(self) -> impl Iterator<Item = Self> {
        (0..self.length).step_by(STAGING_BYTES).map(move |at| Self {
            start: self.start.wrapping_add(at),
            length: STAGING_BYTES.min(self.length - at),
        })
    }

    /// Returns the buffer for writing. Fails with EFAULT if it is not writable.
    ///
    /// # Safety
    /// The program passes this memory for writing for the duration of the call.
    unsafe fn as_mut<'m>(self) -> Outcome<&'m mut [u8]> {
        if self.length == 0 {
            return Ok(&mut []);
        }
        must_have(self.start, self.length, Purpose::Writing)?;
        // SAFETY: the caller guarantees the memory, and it was checked to be writable.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start, self.length) })
    }

    /// Returns the buffer for reading. Fails with EFAULT if it is not readable.
    ///
    /// # Safety
    /// The program passes this memory for reading for the duration of the call.
    unsafe fn as_ref<'m>(self) -> Outcome<&'m [u8]> {
        if self.length == 0 {
            return Ok(&[]);
        }
        must_have(self.start, self.length, Purpose::Reading)?;
        // SAFETY: the caller guarantees the memory, and it was checked to be readable.
        Ok(unsafe { std::slice::from_raw_parts(self.start, self.length) })
    }
}

impl State {
    /// Reads at an offset. Returns the number of bytes read, which is smaller than requested only
    /// at the end of the file.
    pub(crate) fn read_at(
        &mut self,
        of: &Description,
        pieces: &[Piece],
        offset: i64,
    ) -> Outcome<isize> {
        must_read(of)?;
        loop {
            let restarts = self.connection.restarts();
            let read = self.read_once(of, pieces, position(offset)?)?;
            // If a server restarted meanwhile, earlier writes may be lost, so read again after they
            // were written again.
            if self.connection.restarts() == restarts {
                return Ok(read);
            }
            self.rewrite_after_restart();
        }
    }

    fn read_once(&mut self, of: &Description, pieces: &[Piece], mut at: u64) -> Outcome<isize> {
        if is_tracked() {
            // Write back this process's changes in mapped memory first, so that the read returns
            // them.
            self.write_back_of(&of.identity.handle)?;
        }
        let file = self.file(of)?;
        let staging = self.connection.staging()?;
        let mut done = 0;
        for piece in pieces {
            for part in piece.parts() {
                let read = self.moved(read_whole(&file, at, &staging, part.length))?;
                // SAFETY: the program passes this memory to be read into.
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

    /// Reads at the offset that all duplicates of the descriptor share, and advances the offset.
    pub(crate) fn read(&mut self, of: &Description, pieces: &[Piece]) -> Outcome<isize> {
        loop {
            let before = of.page.offset().load(Ordering::Acquire);
            let read = self.read_at(of, pieces, before as i64)?;
            let after = before + read as u64;
            let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            // If another reader has moved the shared offset meanwhile, read again at the new
            // offset.
            if of.page.offset().compare_exchange(before, after, acquire, relaxed).is_ok() {
                return Ok(read);
            }
        }
    }

    /// Writes at an offset. A descriptor with O_APPEND writes at the end, as in Linux.
    pub(crate) fn write_at(
        &mut self,
        of: &Description,
        pieces: &[Piece],
        offset: i64,
    ) -> Outcome<isize> {
        let at = position(offset)?;
        must_write(of)?;
        if of.page.flags() & libc::O_APPEND != 0 {
            return self.append(of, pieces).map(|(_, written)| written);
        }
        self.put(of, pieces, at)
    }

    /// Writes at the offset that all duplicates of the descriptor share, and advances the offset.
    pub(crate) fn write(&mut self, of: &Description, pieces: &[Piece]) -> Outcome<isize> {
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

    /// Writes at an offset, ignoring O_APPEND.
    pub(crate) fn put(
        &mut self,
        of: &Description,
        pieces: &[Piece],
        mut at: u64,
    ) -> Outcome<isize> {
        let file = self.file(of)?;
        of.times.take();
        self.unstable.take_loss(of.key())?;
        let mut done = 0;
        for part in pieces.iter().flat_map(|piece| piece.parts()) {
            // SAFETY: the program passes this memory to be written from.
            let put = unsafe { part.as_ref() }.and_then(|part| {
                self.put_part(of, &file, at, part)?;
                // The reply may have shown that the server has lost earlier data.
                self.unstable.take_loss(of.key())
            });
            match put {
                Ok(()) => {}
                Err(failure) if done > 0 => {
                    // Report the short count now, and the error with the next call.
                    self.unstable.defer_error(of.key(), &failure);
                    return Ok(done as isize);
                }
                Err(failure) => return Err(failure),
            }
            done += part.length;
            at += part.length as u64;
        }
        self.sync_if_requested(of)?;
        Ok(done as isize)
    }

    /// Writes bytes that fit in the staging memory.
    fn put_part(&mut self, of: &Description, file: &File, at: u64, part: &[u8]) -> Outcome<()> {
        let staging = self.connection.staging()?;
        staging.write(0, part);
        match self.moved(write_whole(file, at, &staging, part.len())) {
            Ok(verifiers) => self.note_written(of.key(), file, (at, part), verifiers),
            Err(failure) => {
                self.note_refused(of, &failure);
                return Err(failure);
            }
        }
        if is_tracked() {
            self.mappings.note_written(of, at, part);
        }
        Ok(())
    }

    /// Appends to a file. Returns the offset of the end of the appended data, and the number of
    /// bytes.
    fn append(&mut self, of: &Description, pieces: &[Piece]) -> Outcome<(u64, isize)> {
        let file = self.file(of)?;
        let staging = self.connection.staging()?;
        let (mut end, mut done) = (of.page.offset().load(Ordering::Acquire), 0);
        let whole: Vec<u8>;
        let bytes = match pieces {
            // SAFETY: the program passes this memory to be written from.
            [piece] => unsafe { piece.as_ref() }?,
            pieces => {
                let mut together = Vec::new();
                for piece in pieces {
                    // SAFETY: the program passes this memory to be written from.
                    together.extend_from_slice(unsafe { piece.as_ref() }?);
                }
                whole = together;
                &whole
            }
        };
        let (session, _) = self.connection.mount(of.identity.mount)?;
        self.unstable.take_loss(of.key())?;
        if config::get().appends_locally {
            end = self.metadata_of(of)?.size;
            let written = self.put(of, pieces, end)?;
            return Ok((end + written as u64, written));
        }
        for part in bytes.chunks(STAGING_BYTES) {
            staging.write(0, part);
            let chain = session.chain().of(&file);
            let appending = chain.append_from(staging.slice(0, part.len())?).run_async();
            match wait_result(&session.client(), appending).as_deref() {
                Ok([Brought::Appended { offset, .. }]) => end = offset + part.len() as u64,
                Ok(_) => return fail(libc::EIO),
                Err(failure) => {
                    self.note_refused(of, failure);
                    if done == 0 {
                        return Err(failure.clone());
                    }
                    self.unstable.defer_error(of.key(), failure);
                    return Ok((end, done as isize));
                }
            }
            done += part.len();
        }
        Ok((end, done as isize))
    }

    /// Waits for a transfer to or from the staging memory, and returns the transfer's result.
    fn moved<T>(&mut self, moving: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let Some(client) = self.connection.client() else { return fail(libc::EIO) };
        wait_result(&client, moving)
    }

    /// Reads on behalf of the library itself, at most as many bytes as the staging memory has.
    /// Returns fewer bytes than `length` only at the end of the file.
    pub(crate) fn read_aside(&mut self, file: &File, at: u64, length: usize) -> Outcome<Vec<u8>> {
        let staging = self.connection.staging()?;
        let mut bytes = vec![0; self.moved(read_whole(file, at, &staging, length))?];
        staging.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Writes on behalf of the library itself, at most as many bytes as the staging memory has.
    /// Mapped memory of the file is not updated. Data written to a file that the program has open
    /// is held, so that it can be written again after a server restart.
    pub(crate) fn write_aside(
        &mut self,
        file: &File,
        at: u64,
        bytes: &[u8],
        of: Option<&Description>,
    ) -> Outcome<()> {
        let verifiers = self.write_held(file, at, bytes)?;
        match of {
            Some(of) => self.note_written(of.key(), file, (at, bytes), verifiers),
            None => verifiers.into_iter().try_for_each(|verifier| file.note_unstable(verifier))?,
        }
        Ok(())
    }

    /// Writes bytes that are not in the program's memory, such as held bytes that must be written
    /// again. Returns the write verifiers of the first and the last reply.
    pub(crate) fn write_held(
        &mut self,
        file: &File,
        at: u64,
        bytes: &[u8],
    ) -> Outcome<[Verifier; 2]> {
        let staging = self.connection.staging()?;
        let (mut first, mut last) = (None, Verifier::default());
        for (index, part) in bytes.chunks(STAGING_BYTES).enumerate() {
            staging.write(0, part);
            let at = at + (index * STAGING_BYTES) as u64;
            let verifiers = self.moved(write_whole(file, at, &staging, part.len()))?;
            first.get_or_insert(verifiers[0]);
            last = verifiers[1];
        }
        Ok([first.unwrap_or(last), last])
    }

    /// Makes written data durable if the descriptor was opened with O_SYNC or O_DSYNC.
    fn sync_if_requested(&mut self, of: &Description) -> Outcome<()> {
        if of.page.flags() & (libc::O_SYNC | libc::O_DSYNC) != 0 {
            self.commit(of)?;
        }
        Ok(())
    }

    /// Flushes the written data of a file to stable storage. Directory entries need no flush,
    /// because the server makes them durable.
    pub(crate) fn sync(&mut self, of: &Description) -> Outcome<i32> {
        of.must_be_open()?;
        if of.identity.kind == Kind::File {
            self.commit(of)?;
        }
        Ok(0)
    }

    /// Moves the offset of the descriptor.
    pub(crate) fn seek(&mut self, of: &Description, offset: i64, whence: i32) -> Outcome<i64> {
        of.must_be_open()?;
        let size = match whence {
            libc::SEEK_SET | libc::SEEK_CUR => 0,
            _ => self.metadata_of(of)?.size as i64,
        };
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => of.page.offset().load(Ordering::Acquire) as i64,
            libc::SEEK_END => size,
            // Files appear to have no holes, except for the one after the end.
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

    /// Truncates or extends an open file.
    pub(crate) fn set_length(&mut self, of: &Description, length: i64) -> Outcome<i32> {
        of.must_be_open()?;
        if length < 0 || of.identity.access == libc::O_RDONLY || of.identity.kind != Kind::File {
            return fail(libc::EINVAL);
        }
        let file = self.file(of)?;
        let wanted = SetAttributes { size: Some(length as u64), ..SetAttributes::default() };
        wait_result(&file.session().client(), file.set_attributes_async(&wanted))?;
        self.unstable.truncate(of.key(), length as u64);
        SharedObject::note_length(of.identity.mount, &of.identity.handle, length as u64);
        Ok(0)
    }

    /// Allocates space for a range. Writes zeros to the part beyond the end of the file.
    pub(crate) fn reserve(&mut self, of: &Description, offset: i64, length: i64) -> Outcome<i32> {
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

    /// Sets attributes of the object that a descriptor refers to.
    pub(crate) fn set_attributes(
        &mut self,
        of: &Description,
        wanted: &SetAttributes,
    ) -> Outcome<i32> {
        let (session, _) = self.connection.mount(of.identity.mount)?;
        let identity = &of.identity;
        let setting = session.set_attributes_async(identity.handle, wanted, &identity.path);
        wait_result(&session.client(), setting)?;
        let is_writer = of.identity.access != libc::O_RDONLY;
        if is_writer && (wanted.time_modify.is_some() || wanted.time_access.is_some()) {
            *of.times.borrow_mut() = Some(wanted.clone());
        }
        Ok(0)
    }
}

/// Reads `length` bytes into the staging memory. Returns fewer only at the end of the file.
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

/// Writes all bytes of the staging memory. Returns the write verifiers of the first and the last
/// reply.
async fn write_whole(
    file: &File,
    at: u64,
    staging: &Buffer,
    length: usize,
) -> Outcome<[Verifier; 2]> {
    let (mut done, mut first, mut last) = (0, None, Verifier::default());
    while done < length {
        let slice = staging.slice(done, length - done)?;
        let moved = file.write_async(at + done as u64, slice).await?;
        last = moved.verifier;
        first.get_or_insert(last);
        done += moved.length as usize;
        if moved.length == 0 {
            return fail(libc::EIO);
        }
    }
    Ok([first.unwrap_or(last), last])
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
