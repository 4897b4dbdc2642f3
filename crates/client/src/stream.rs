//! Streams: reading ahead and writing behind with several blocks under way.
//!
//! Invariant: blocks come out in file order; a written block is held here until a
//! commit has confirmed it, so that it can be sent again after a server restart.

use std::collections::VecDeque;
use std::io;

use dafs_types::Stability;

use crate::buffer::Buffer;
use crate::core::{Group, Transferred};
use crate::error::{ClientError, Result};
use crate::file::File;

/// Reads a file from its beginning, ahead of its user.
pub struct ReadStream<'f> {
    file: &'f File,
    group: Group,
    /// Blocks in file order, the one being consumed first.
    blocks: VecDeque<Block>,
    block_bytes: usize,
    next_offset: u64,
    is_end: bool,
    /// Octets of the first block already consumed.
    consumed: usize,
}

struct Block {
    buffer: Buffer,
    number: u64,
    /// Octets, once they are there.
    length: Option<usize>,
}

impl<'f> ReadStream<'f> {
    /// A stream with `depth` blocks of `block_bytes` octets under way.
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
        };
        for _ in 0..depth.max(1) {
            let buffer = client.allocate(stream.block_bytes)?;
            stream.start(buffer)?;
        }
        Ok(stream)
    }

    fn start(&mut self, buffer: Buffer) -> Result<()> {
        if self.is_end {
            return Ok(());
        }
        let number = self.next_offset;
        let slice = buffer.slice(0, self.block_bytes)?;
        self.file.session().submit_read(self.file, number, slice, self.group, number)?;
        self.next_offset += self.block_bytes as u64;
        self.blocks.push_back(Block { buffer, number, length: None });
        Ok(())
    }

    /// The next octets of the file, at most a block; `None` at its end. They are good
    /// until the next call.
    ///
    /// # Errors
    /// As the server says.
    pub fn next_block(&mut self) -> Result<Option<(&Buffer, usize)>> {
        if let Some(done) = self.blocks.front()
            && done.length.is_some()
            && self.consumed > 0
        {
            self.consumed = 0;
            if let Some(block) = self.blocks.pop_front() {
                self.start(block.buffer)?;
            }
        }
        self.fill_front()?;
        match self.blocks.front() {
            Some(block) => match block.length {
                Some(0) | None => Ok(None),
                Some(length) => {
                    self.consumed = length;
                    Ok(Some((&block.buffer, length)))
                }
            },
            None => Ok(None),
        }
    }

    /// Waits until the first block is there.
    fn fill_front(&mut self) -> Result<()> {
        let client = self.file.session().client();
        while self.blocks.front().is_some_and(|block| block.length.is_none()) {
            if client.wait(self.group, 1, None) == 0 {
                return Err(ClientError::TimedOut);
            }
            while let Some(completion) = client.next(self.group) {
                let Transferred { length, end_of_file, .. } = completion.result?;
                self.is_end |= end_of_file;
                let number = completion.context;
                if let Some(block) = self.blocks.iter_mut().find(|b| b.number == number) {
                    block.length = Some(length as usize);
                }
            }
        }
        Ok(())
    }
}

impl io::Read for ReadStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.fill_front()?;
        let Some(block) = self.blocks.front() else { return Ok(0) };
        let length = block.length.unwrap_or(0);
        let count = bytes.len().min(length - self.consumed);
        block.buffer.read(self.consumed, &mut bytes[..count]);
        self.consumed += count;
        let is_used_up = self.consumed == length && length > 0;
        if is_used_up {
            self.consumed = 0;
            if let Some(block) = self.blocks.pop_front() {
                self.start(block.buffer)?;
            }
        }
        Ok(count)
    }
}

/// Writes a file from its beginning, behind its user.
pub struct WriteStream<'f> {
    file: &'f File,
    group: Group,
    free: Vec<Buffer>,
    /// The block being filled, and its octets so far.
    filling: Option<(Buffer, usize)>,
    /// Written blocks that no commit has confirmed: offset, octets, data.
    held: VecDeque<(u64, usize, Buffer)>,
    offset: u64,
    under_way: usize,
    block_bytes: usize,
    held_max: usize,
    verifier: Option<dafs_types::Verifier>,
    needs_resend: bool,
}

impl<'f> WriteStream<'f> {
    /// A stream with up to `depth` blocks of `block_bytes` octets under way.
    ///
    /// # Errors
    /// Never now; memory is taken as it is needed.
    pub fn new(file: &'f File, depth: usize, block_bytes: usize) -> Result<Self> {
        Ok(Self {
            file,
            group: file.session().client().group(),
            free: Vec::new(),
            filling: None,
            held: VecDeque::new(),
            offset: 0,
            under_way: 0,
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

    fn submit(&mut self, offset: u64, length: usize, buffer: &Buffer) -> Result<()> {
        let slice = buffer.slice(0, length)?;
        let session = self.file.session();
        let unstable = Stability::Unstable;
        session.submit_write(self.file, offset, slice, unstable, self.group, 0)?;
        self.under_way += 1;
        Ok(())
    }

    fn send_filled(&mut self) -> Result<()> {
        if let Some((buffer, length)) = self.filling.take() {
            self.submit(self.offset, length, &buffer)?;
            self.held.push_back((self.offset, length, buffer));
            self.offset += length as u64;
        }
        Ok(())
    }

    /// Waits for every write, then commits; sends again what a restart lost.
    fn confirm(&mut self) -> Result<()> {
        for _ in 0..RESENDS_MAX {
            self.drain()?;
            let committed = self.commit()?;
            let is_same = self.verifier.is_none_or(|verifier| verifier == committed);
            if is_same && !self.needs_resend {
                self.free.extend(self.held.drain(..).map(|(_, _, buffer)| buffer));
                self.verifier = None;
                return Ok(());
            }
            self.verifier = None;
            self.needs_resend = false;
            let held: Vec<_> = self.held.iter().cloned().collect();
            for (offset, length, buffer) in &held {
                self.submit(*offset, *length, buffer)?;
            }
        }
        Err(ClientError::DataLost { what: self.file.path().to_owned() })
    }

    fn drain(&mut self) -> Result<()> {
        let client = self.file.session().client();
        while self.under_way > 0 {
            if client.wait(self.group, self.under_way, None) == 0 {
                return Err(ClientError::TimedOut);
            }
            while let Some(completion) = client.next(self.group) {
                self.under_way -= 1;
                let verifier = completion.result?.verifier;
                let before = self.verifier.replace(verifier);
                self.needs_resend |= before.is_some_and(|before| before != verifier);
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<dafs_types::Verifier> {
        let client = self.file.session().client();
        self.file.session().submit_commit(self.file, self.group, 0)?;
        client.wait(self.group, 1, None);
        match client.next(self.group) {
            Some(completion) => Ok(completion.result?.verifier),
            None => Err(ClientError::TimedOut),
        }
    }

    /// Sends what is left and waits until everything is on stable storage.
    ///
    /// # Errors
    /// As the server says.
    pub fn finish(mut self) -> Result<()> {
        self.send_filled()?;
        self.confirm()
    }
}

impl io::Write for WriteStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
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

    /// Sends what is there; [`WriteStream::finish`] makes it last.
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.send_filled()?)
    }
}

/// Blocks held for a commit, for each block under way.
const HELD_PER_DEPTH: usize = 8;
/// Times that everything is sent again before giving up.
const RESENDS_MAX: usize = 5;
