//! Streams: read-ahead and write-behind with several blocks in flight.
//!
//! Invariant: blocks are delivered in file order without gaps, even if the file changes at the same
//! time. A written block is kept until a commit has confirmed it, so that it can be sent again
//! after a restart of the server.

use std::collections::VecDeque;
use std::io;

use dafs_types::{Stability, Verifier};

use crate::buffer::Buffer;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::groups::Group;
use crate::operation::{Completion, Transferred};

/// Reads a file sequentially from its start, with read-ahead.
pub struct ReadStream<'f> {
    file: &'f File,
    group: Group,
    /// The blocks in file order; the first one is being consumed.
    blocks: VecDeque<Block>,
    block_bytes: usize,
    next_offset: u64,
    /// True if a reply reported the end of the file, so that no further blocks are requested.
    is_end: bool,
    /// The number of bytes of the first block that the caller has consumed.
    consumed: usize,
    failed: Option<ClientError>,
}

struct Block {
    buffer: Buffer,
    offset: u64,
    /// The number of bytes read into this block so far.
    length: usize,
    is_there: bool,
}

impl<'f> ReadStream<'f> {
    /// Creates a stream that keeps up to `depth` blocks of `block_bytes` bytes in flight.
    ///
    /// # Errors
    /// If there is no memory for the blocks.
    pub fn new(file: &'f File, depth: usize, block_bytes: usize) -> Result<Self> {
        let client = file.session().client();
        let mut stream = Self {
            file,
            group: client.group(),
            blocks: VecDeque::new(),
            block_bytes: block_bytes.max(1),
            next_offset: 0,
            is_end: false,
            consumed: 0,
            failed: None,
        };
        for _ in 0..depth.max(1) {
            let buffer = client.allocate(stream.block_bytes)?;
            stream.start(buffer)?;
        }
        Ok(stream)
    }

    fn start(&mut self, buffer: Buffer) -> Result<()> {
        if self.is_end || self.failed.is_some() {
            return Ok(());
        }
        let offset = self.next_offset;
        self.next_offset += self.block_bytes as u64;
        self.blocks.push_back(Block { buffer, offset, length: 0, is_there: false });
        self.ask(self.blocks.len() - 1)
    }

    /// Requests the part of a block that has not been read.
    fn ask(&self, index: usize) -> Result<()> {
        let Block { buffer, offset, length, .. } = &self.blocks[index];
        let slice = buffer.slice(*length, self.block_bytes - length)?;
        let at = offset + *length as u64;
        self.file.session().submit_read(self.file, at, slice, self.group, *offset)?;
        Ok(())
    }

    /// Returns a buffer that begins with the next bytes of the file, at most one block, and the
    /// number of these bytes; `None` at the end of the file. The data is valid until the next call.
    ///
    /// # Errors
    /// Any error of the server.
    pub fn next_block(&mut self) -> Result<Option<(&Buffer, usize)>> {
        self.drop_consumed();
        self.fill_front()?;
        let Some(block) = self.blocks.front_mut() else { return Ok(None) };
        if self.consumed > 0 {
            // The caller has read only a part of the block: move the remaining bytes to the start
            // of the buffer.
            let rest = block.buffer.memory().to_vec(self.consumed, block.length - self.consumed);
            block.buffer.write(0, &rest);
            block.length = rest.len();
        }
        self.consumed = block.length;
        Ok((block.length > 0).then_some((&block.buffer, block.length)))
    }

    /// If the first block is consumed, reuses its buffer for read-ahead and processes messages that
    /// have arrived, since data left in a socket would stop the server from sending later blocks.
    /// This is done once per block, because over TCP it costs a system call.
    fn drop_consumed(&mut self) {
        let is_used_up = self.blocks.front().is_some_and(|block| {
            block.is_there && block.length > 0 && self.consumed >= block.length
        });
        if is_used_up && let Some(block) = self.blocks.pop_front() {
            self.consumed = 0;
            if let Err(error) = self.start(block.buffer) {
                self.failed.get_or_insert(error);
            }
            self.file.session().client().poll(self.group);
            self.take_all();
        }
    }

    /// Waits until the first block is complete. After a failed read, returns its error unless the
    /// first block is already complete.
    fn fill_front(&mut self) -> Result<()> {
        while self.blocks.front().is_some_and(|block| !block.is_there) {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            if self.file.session().client().wait(self.group, 1, None) == 0 {
                return Err(ClientError::TimedOut);
            }
            self.take_all();
        }
        Ok(())
    }

    fn take_all(&mut self) {
        let client = self.file.session().client();
        while let Some(completion) = client.next(self.group) {
            if let Err(error) = self.take(completion) {
                self.failed.get_or_insert(error);
            }
        }
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let Transferred { length, end_of_file, .. } =
            completion.result.map_err(|error| self.file.name(error))?;
        let wanted = completion.context;
        let Some(index) = self.blocks.iter().position(|block| block.offset == wanted) else {
            // This block is beyond the end of the file; it was requested before the end was known.
            return Ok(());
        };
        let block = &mut self.blocks[index];
        block.length += length as usize;
        block.is_there = end_of_file || block.length == self.block_bytes;
        if end_of_file {
            // Later blocks are discarded: if the file has grown since, their data would follow a
            // gap.
            self.is_end = true;
            self.blocks.truncate(index + 1);
        } else if length == 0 {
            return Err(self.file.no_progress("READ_DIRECT"));
        } else if !self.blocks[index].is_there {
            self.ask(index)?;
        }
        Ok(())
    }
}

impl io::Read for ReadStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.drop_consumed();
        self.fill_front()?;
        let Some(block) = self.blocks.front() else { return Ok(0) };
        let count = bytes.len().min(block.length - self.consumed);
        block.buffer.read(self.consumed, &mut bytes[..count]);
        self.consumed += count;
        Ok(count)
    }
}

impl Drop for ReadStream<'_> {
    fn drop(&mut self) {
        self.file.session().client().release_group(self.group);
    }
}

/// Writes a file sequentially from its start, with write-behind. Call [`WriteStream::finish`] at
/// the end: dropping the stream discards data that was not sent.
pub struct WriteStream<'f> {
    file: &'f File,
    group: Group,
    free: Vec<Buffer>,
    /// The block that is being filled, and the number of bytes written into it.
    filling: Option<(Buffer, usize)>,
    /// The written blocks that no commit has confirmed, in file order.
    held: VecDeque<Held>,
    offset: u64,
    in_flight: usize,
    block_bytes: usize,
    held_max: usize,
    verifier: Option<Verifier>,
    needs_resend: bool,
}

#[derive(Clone)]
struct Held {
    offset: u64,
    length: usize,
    buffer: Buffer,
    /// The number of bytes of this block that the server has written.
    done: usize,
}

impl<'f> WriteStream<'f> {
    /// Creates a stream that keeps up to `depth` blocks of `block_bytes` bytes in flight. Memory is
    /// allocated as blocks are filled.
    ///
    /// # Errors
    /// No errors at present.
    pub fn new(file: &'f File, depth: usize, block_bytes: usize) -> Result<Self> {
        Ok(Self {
            file,
            group: file.session().client().group(),
            free: Vec::new(),
            filling: None,
            held: VecDeque::new(),
            offset: 0,
            in_flight: 0,
            block_bytes: block_bytes.max(1),
            held_max: depth.max(1) * HELD_PER_DEPTH,
            verifier: None,
            needs_resend: false,
        })
    }

    fn take_buffer(&mut self) -> Result<Buffer> {
        if let Some(buffer) = self.free.pop() {
            return Ok(buffer);
        }
        if self.held.len() >= self.held_max {
            self.confirm()?;
        }
        match self.free.pop() {
            Some(buffer) => Ok(buffer),
            None => self.file.session().client().allocate(self.block_bytes),
        }
    }

    /// Sends the part of a block that the server has not written yet.
    fn submit(&mut self, index: usize) -> Result<()> {
        let held = &self.held[index];
        let slice = held.buffer.slice(held.done, held.length - held.done)?;
        let (session, context) = (self.file.session(), held.offset);
        let at = held.offset + held.done as u64;
        let unstable = Stability::Unstable;
        session.submit_write(self.file, at, slice, unstable, self.group, context)?;
        self.in_flight += 1;
        Ok(())
    }

    fn send_filled(&mut self) -> Result<()> {
        if let Some((buffer, length)) = self.filling.take() {
            self.held.push_back(Held { offset: self.offset, length, buffer, done: 0 });
            self.offset += length as u64;
            self.submit(self.held.len() - 1)?;
        }
        Ok(())
    }

    /// Waits for all writes and commits them. Sends data again that a restart of the server has
    /// lost.
    fn confirm(&mut self) -> Result<()> {
        for _ in 0..RESENDS_MAX {
            self.drain()?;
            let committed = self.commit()?;
            let is_same = self.verifier.is_none_or(|verifier| verifier == committed);
            if is_same && !self.needs_resend {
                self.free.extend(self.held.drain(..).map(|held| held.buffer));
                self.verifier = None;
                return Ok(());
            }
            self.verifier = None;
            self.needs_resend = false;
            for index in 0..self.held.len() {
                self.held[index].done = 0;
                self.submit(index)?;
            }
        }
        Err(ClientError::DataLost { what: self.file.path().to_owned() })
    }

    fn drain(&mut self) -> Result<()> {
        let client = self.file.session().client();
        while self.in_flight > 0 {
            client.wait(self.group, self.in_flight, None);
            let Some(completion) = client.next(self.group) else {
                return Err(ClientError::TimedOut);
            };
            self.in_flight -= 1;
            self.take(completion)?;
        }
        Ok(())
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let Transferred { length, verifier, .. } =
            completion.result.map_err(|error| self.file.name(error))?;
        let before = self.verifier.replace(verifier);
        self.needs_resend |= before.is_some_and(|before| before != verifier);
        let place = self.held.binary_search_by_key(&completion.context, |held| held.offset);
        let Ok(index) = place else { return Ok(()) };
        let held = &mut self.held[index];
        held.done += length as usize;
        if held.done >= held.length {
            return Ok(());
        }
        if length == 0 {
            return Err(self.file.no_progress("WRITE"));
        }
        self.submit(index)
    }

    fn commit(&mut self) -> Result<Verifier> {
        let client = self.file.session().client();
        self.file.session().submit_commit(self.file, self.group, 0)?;
        client.wait(self.group, 1, None);
        match client.next(self.group) {
            Some(completion) => {
                Ok(completion.result.map_err(|error| self.file.name(error))?.verifier)
            }
            None => Err(ClientError::TimedOut),
        }
    }

    /// Sends the remaining data and waits until all of it is on stable storage.
    ///
    /// # Errors
    /// Any error of the server.
    pub fn finish(mut self) -> Result<()> {
        self.send_filled()?;
        self.confirm()
    }
}

impl io::Write for WriteStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let (buffer, filled) = match self.filling.take() {
            Some(filling) => filling,
            None => (self.take_buffer()?, 0),
        };
        let count = bytes.len().min(self.block_bytes - filled);
        buffer.write(filled, &bytes[..count]);
        self.filling = Some((buffer, filled + count));
        if filled + count == self.block_bytes {
            self.send_filled()?;
        }
        Ok(count)
    }

    /// Sends the data written so far; only [`WriteStream::finish`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.send_filled()?)
    }
}

impl Drop for WriteStream<'_> {
    fn drop(&mut self) {
        self.file.session().client().release_group(self.group);
    }
}

/// The number of written blocks that are kept until a commit, for each block of the stream's depth.
const HELD_PER_DEPTH: usize = 8;

/// The limit for the number of times that all data is sent again.
const RESENDS_MAX: usize = 5;
