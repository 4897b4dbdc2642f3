//! Write-behind: blocks are sent to the server while the next ones are produced.
//!
//! Invariant: a submitted buffer is not touched until its write has ended. If the server restarts
//! meanwhile, it may have lost accepted data. That loss is reported as an error, because the output
//! can be made again from its input, which still exists.

use std::io;

use anyhow::{Result, bail};
use dafs_client::{Buffer, Client, Completion, File, Group, Stability};

/// Writes a file sequentially from its beginning.
pub(super) struct WriteBehind<'f> {
    file: &'f File,
    client: Client,
    group: Group,
    slots: Vec<Slot>,
    /// The indexes of the slots without a write in flight.
    free: Vec<usize>,
    /// The index of the slot that is being filled.
    filling: Option<usize>,
    /// The file offset of the next block.
    offset: u64,
}

struct Slot {
    buffer: Buffer,
    offset: u64,
    /// The number of bytes in the slot.
    length: usize,
    /// The number of bytes in the slot that the server has accepted.
    done: usize,
}

impl<'f> WriteBehind<'f> {
    pub(super) fn new(file: &'f File) -> Self {
        let client = file.session().client();
        let group = client.group();
        Self { file, client, group, slots: Vec::new(), free: Vec::new(), filling: None, offset: 0 }
    }

    /// Sends the last partly filled block, and waits until the server has accepted everything.
    pub(super) fn finish(mut self) -> Result<()> {
        self.send()?;
        while self.free.len() < self.slots.len() {
            self.reap(true)?;
        }
        Ok(())
    }

    /// Returns the slot that is being filled. If all slots have writes in flight, waits for one.
    fn slot(&mut self) -> Result<usize> {
        if let Some(index) = self.filling {
            return Ok(index);
        }
        self.reap(false)?;
        while self.free.is_empty() {
            if self.slots.len() < BLOCKS {
                let buffer = self.client.allocate(BLOCK_BYTES)?;
                self.slots.push(Slot { buffer, offset: 0, length: 0, done: 0 });
                self.free.push(self.slots.len() - 1);
            } else {
                self.reap(true)?;
            }
        }
        let Some(index) = self.free.pop() else { bail!("no buffer is free") };
        let slot = &mut self.slots[index];
        (slot.offset, slot.length, slot.done) = (self.offset, 0, 0);
        self.filling = Some(index);
        Ok(index)
    }

    fn send(&mut self) -> Result<()> {
        let Some(index) = self.filling.take() else { return Ok(()) };
        self.offset += self.slots[index].length as u64;
        self.submit(index)
    }

    fn submit(&mut self, index: usize) -> Result<()> {
        let Slot { buffer, offset, length, done } = &self.slots[index];
        let slice = buffer.slice(*done, length - done)?;
        let (session, at, unstable) =
            (self.file.session(), offset + *done as u64, Stability::Unstable);
        session.submit_write(self.file, at, slice, unstable, self.group, index as u64)?;
        Ok(())
    }

    /// Processes completed writes. Waits for at least one if `waits` is set.
    fn reap(&mut self, waits: bool) -> Result<()> {
        if waits {
            self.client.wait(self.group, 1, None);
        } else if self.slots.len() > self.free.len() {
            self.client.poll(self.group);
        }
        while let Some(completion) = self.client.next(self.group) {
            self.take(completion)?;
        }
        Ok(())
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let done = completion.result?;
        self.file.note_unstable(done.verifier)?;
        let index = completion.context as usize;
        let slot = &mut self.slots[index];
        slot.done += done.length as usize;
        if slot.done >= slot.length {
            self.free.push(index);
            return Ok(());
        }
        if done.length == 0 {
            bail!("{}: the server accepts no more data", self.file.path());
        }
        self.submit(index)
    }
}

impl io::Write for WriteBehind<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let index = self.slot().map_err(io::Error::other)?;
        let slot = &mut self.slots[index];
        let count = bytes.len().min(BLOCK_BYTES - slot.length);
        slot.buffer.write(slot.length, &bytes[..count]);
        slot.length += count;
        if slot.length == BLOCK_BYTES {
            self.send().map_err(io::Error::other)?;
        }
        Ok(count)
    }

    /// Does nothing: a block is sent when it is full, and the last block by
    /// [`WriteBehind::finish`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for WriteBehind<'_> {
    fn drop(&mut self) {
        self.client.release_group(self.group);
    }
}

/// The number of blocks in flight.
const BLOCKS: usize = 4;
/// The size of a block in bytes.
const BLOCK_BYTES: usize = 1 << 20;
