//! Moves the bytes of many files concurrently through a few registered buffers.
//!
//! A block goes from the socket or the server's cache into its buffer, and from there to the file,
//! without another copy. Small files use small buffers, so that many of them are in flight in
//! little memory.
//!
//! Invariant: a buffer is lent to one block at a time and is returned after the block's last
//! transfer. If a block fails, concurrent blocks of the same file end only after their transfers.
//! The exception is an error that ends a whole operand: it drops other files with requests in
//! flight, and that operand's mover is never used again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

use anyhow::{Result, anyhow, bail};
use dafs_client::{Buffer, Client, Slice};

use super::open::{Open, read_next};
use super::tasks::{TASKS_MAX, join};

/// The registered buffers through which all data passes.
pub(crate) struct Mover {
    pub client: Client,
    /// The free large buffers. Each holds two blocks: one for each side when files are compared.
    buffers: RefCell<Vec<Buffer>>,
    /// The number of large buffers, free or lent.
    buffer_count: Cell<usize>,
    /// The memory of all small buffers, and the offsets of the free small buffers in it. `None`
    /// until the memory is registered.
    small: RefCell<Option<(Buffer, Vec<usize>)>>,
    /// The blocks that wait for a buffer, in order of arrival.
    waiting: RefCell<VecDeque<Rc<Place>>>,
}

/// An entry in the queue for buffers. A returned buffer is put into the first entry, so that a
/// block that came later but is polled earlier cannot take it.
#[derive(Default)]
struct Place {
    buffer: RefCell<Option<Buffer>>,
    waker: RefCell<Option<Waker>>,
}

/// A buffer in use.
struct LentBuffer<'m> {
    mover: &'m Mover,
    buffer: Buffer,
    /// The offset of a small buffer in the memory of all small buffers; `None` for a large buffer.
    small: Option<usize>,
}

/// The first bytes of a file, in a buffer that is lent until the bytes are written.
pub(crate) struct FirstBytes<'m> {
    lent: LentBuffer<'m>,
    taken: Taken,
}

/// The result of a read.
struct Taken {
    count: usize,
    /// True if the file is known to end after these bytes.
    is_end: bool,
}

impl Mover {
    pub(crate) fn new(client: &Client) -> Result<Self> {
        Ok(Self {
            client: client.clone(),
            buffers: RefCell::default(),
            buffer_count: Cell::new(0),
            small: RefCell::default(),
            waiting: RefCell::default(),
        })
    }

    /// Reads the first bytes of a file, so that an unreadable file is detected before its copy is
    /// made. Returns `None` for a stream, because bytes read from a stream would be lost if the
    /// copy could not be made.
    pub(crate) async fn begin(&self, from: &Open, length: u64) -> Result<Option<FirstBytes<'_>>> {
        if matches!(from, Open::Stream(_)) {
            return Ok(None);
        }
        let block = BLOCK_BYTES as u64;
        // Some kernel files (/proc, /sys) report a size of zero.
        let mut length = if length == 0 { SMALL_BYTES as u64 } else { length.min(block) };
        if let Open::Local(_) = from {
            // Try to read one byte more than expected: a short read then proves the end of the
            // file. A server reports the end without this.
            length = (length + 1).min(block);
        }
        let lent = self.lend_for(length as usize).await?;
        let taken = lent.read((from, from), 0, 0, length as usize).await?;
        Ok(Some(FirstBytes { lent, taken }))
    }

    /// Copies a file to its actual end, even if another size was reported before. The first
    /// `length` bytes are copied with several blocks in flight, and all later bytes block by block.
    /// `begun` is the result of [`Mover::begin`]. Returns the number of bytes copied.
    pub(crate) async fn copy(
        &self,
        begun: Option<FirstBytes<'_>>,
        from: &Open,
        to: &Open,
        length: u64,
    ) -> Result<u64> {
        if [from, to].iter().any(|open| matches!(open, Open::Stream(_))) {
            return self.pump(begun, from, to, 0).await;
        }
        let (moved, is_over, begun) = (Cell::new(0), Cell::new(false), Cell::new(begun));
        self.for_blocks(length, async |offset, length| {
            let begun = if offset == 0 { begun.take() } else { None };
            let FirstBytes { lent, taken } = self.next(begun, (from, to), offset, length).await?;
            lent.write(to, offset, taken.count).await?;
            moved.set(moved.get() + taken.count as u64);
            is_over.set(is_over.get() || taken.is_end);
            Ok(())
        })
        .await?;
        if is_over.get() {
            return Ok(moved.get());
        }
        self.pump(begun.take(), from, to, length).await
    }

    /// Copies the bytes from `offset` on, block by block. Returns the offset of the end.
    async fn pump(
        &self,
        mut begun: Option<FirstBytes<'_>>,
        from: &Open,
        to: &Open,
        mut offset: u64,
    ) -> Result<u64> {
        loop {
            let next = self.next(begun.take(), (from, to), offset, BLOCK_BYTES);
            let FirstBytes { lent, taken } = next.await?;
            lent.write(to, offset, taken.count).await?;
            offset += taken.count as u64;
            // A read of a stream may return less than requested.
            if taken.is_end || taken.count == 0 {
                return Ok(offset);
            }
        }
    }

    /// Returns the block at `offset`. If `begun` holds the block already, does not read it again.
    async fn next<'m>(
        &'m self,
        begun: Option<FirstBytes<'m>>,
        sides: (&Open, &Open),
        offset: u64,
        length: usize,
    ) -> Result<FirstBytes<'m>> {
        if let Some(begun) = begun {
            return Ok(begun);
        }
        let lent = self.lend().await?;
        let taken = lent.read(sides, 0, offset, length).await?;
        Ok(FirstBytes { lent, taken })
    }

    /// True if both files contain the same `length` bytes and no more.
    pub(crate) async fn compare(&self, left: &Open, right: &Open, length: u64) -> Result<bool> {
        let (moved, is_same) = (Cell::new(0), Cell::new(true));
        // Compare one byte more than expected, because neither file may be longer than `length`.
        self.for_blocks(length + 1, async |offset, length| {
            let lent = self.lend().await?;
            let counts = [Cell::new(0), Cell::new(0)];
            // Start the remote reads first, so that the servers work while this thread reads a
            // local file.
            let mut sides = [(left, 0), (right, 1)];
            sides.sort_by_key(|(side, _)| matches!(side, Open::Local(_)));
            let read = async |(side, half): (&Open, usize)| {
                counts[half].set(lent.read((side, side), half, offset, length).await?.count);
                Ok(())
            };
            join(sides.map(read).into()).await?;
            let [a, b] = counts.map(Cell::into_inner);
            if a != b || !lent.is_same(a) {
                is_same.set(false);
            }
            moved.set(moved.get() + a as u64);
            Ok(())
        })
        .await?;
        Ok(is_same.get() && moved.get() == length)
    }

    /// Runs `work` for each block of a file, several at a time.
    async fn for_blocks(
        &self,
        length: u64,
        work: impl AsyncFn(u64, usize) -> Result<()>,
    ) -> Result<()> {
        let block = BLOCK_BYTES as u64;
        if length <= block {
            return if length == 0 { Ok(()) } else { work(0, length as usize).await };
        }
        let next = Cell::new(0);
        let workers = length.div_ceil(block).min(BLOCKS_PER_FILE_MAX);
        let worker = async || {
            while next.get() < length {
                let offset = next.replace(next.get() + block);
                let worked = work(offset, (length - offset).min(block) as usize).await;
                if worked.is_err() {
                    // Stop this file; the other workers end after their current blocks.
                    next.set(length);
                    return worked;
                }
            }
            Ok(())
        };
        join((0..workers).map(|_| worker()).collect()).await
    }

    /// Returns a buffer for `length` bytes of one file: a small buffer if one is large enough and
    /// free, else a large buffer.
    async fn lend_for(&self, length: usize) -> Result<LentBuffer<'_>> {
        match self.small_one(length) {
            Some(lent) => Ok(lent),
            None => self.lend().await,
        }
    }

    /// Returns a free small buffer. Returns `None` if `length` is too large for a small buffer, if
    /// none is free, or if no memory for small buffers could be registered.
    fn small_one(&self, length: usize) -> Option<LentBuffer<'_>> {
        if length > SMALL_BYTES {
            return None;
        }
        let mut small = self.small.borrow_mut();
        if small.is_none() {
            let all = self.client.allocate(TASKS_MAX * SMALL_BYTES).ok()?;
            let starts = (0..TASKS_MAX).rev().map(|number| number * SMALL_BYTES).collect();
            *small = Some((all, starts));
        }
        let (buffer, starts) = small.as_mut()?;
        let start = starts.pop()?;
        Some(LentBuffer { mover: self, buffer: buffer.clone(), small: Some(start) })
    }

    async fn lend(&self) -> Result<LentBuffer<'_>> {
        let free = self.buffers.borrow_mut().pop();
        let buffer = match free {
            Some(buffer) => buffer,
            None => match self.one_more()? {
                Some(buffer) => buffer,
                None => self.one_that_comes_back().await,
            },
        };
        Ok(LentBuffer { mover: self, buffer, small: None })
    }

    /// Allocates another large buffer. Returns `None` if the limit is reached or memory is short.
    /// Then the caller waits for a lent buffer, which cannot deadlock because no holder of a buffer
    /// waits for a second one.
    fn one_more(&self) -> Result<Option<Buffer>> {
        let count = self.buffer_count.get();
        if count == BUFFERS {
            return Ok(None);
        }
        match self.client.allocate(2 * BLOCK_BYTES) {
            Ok(buffer) => {
                self.buffer_count.set(count + 1);
                Ok(Some(buffer))
            }
            Err(_) if count > 0 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn one_that_comes_back(&self) -> Buffer {
        let place = Rc::new(Place::default());
        self.waiting.borrow_mut().push_back(place.clone());
        std::future::poll_fn(|context| match place.buffer.take() {
            Some(buffer) => Poll::Ready(buffer),
            None => {
                place.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for LentBuffer<'_> {
    fn drop(&mut self) {
        if let Some(start) = self.small {
            if let Some((_, starts)) = &mut *self.mover.small.borrow_mut() {
                starts.push(start);
            }
            return;
        }
        match self.mover.waiting.borrow_mut().pop_front() {
            Some(place) => {
                place.buffer.replace(Some(self.buffer.clone()));
                place.waker.take().into_iter().for_each(Waker::wake);
            }
            None => self.mover.buffers.borrow_mut().push(self.buffer.clone()),
        }
    }
}

impl FirstBytes<'_> {
    /// Returns the data to write for a complete copy, if this buffer holds the whole source file of
    /// `length` bytes. The inner `None` means that the file is empty.
    pub(crate) fn whole(&self, length: u64) -> Result<Option<Option<Slice>>> {
        let Taken { count, is_end } = self.taken;
        if !is_end || (count as u64) < length {
            return Ok(None);
        }
        let slice = || self.lent.buffer.slice(self.lent.start(), count);
        Ok(Some((count > 0).then(slice).transpose()?))
    }

    /// Returns the number of bytes read.
    pub(crate) fn count(&self) -> u64 {
        self.taken.count as u64
    }
}

impl LentBuffer<'_> {
    /// Returns the offset at which the lent memory begins in `buffer`.
    fn start(&self) -> usize {
        self.small.unwrap_or(0)
    }

    /// Reads into one half of the buffer. Returns fewer bytes than `length` only at the end of the
    /// file or from a stream. While a stream has no data, keeps the sessions of both sides alive.
    async fn read(
        &self,
        (from, to): (&Open, &Open),
        half: usize,
        offset: u64,
        length: usize,
    ) -> Result<Taken> {
        let start = self.start() + half * BLOCK_BYTES;
        let file = match from {
            Open::Local(file) => {
                let memory = self.buffer.memory();
                let count = memory.read_file(start, length, file.as_fd(), offset)?;
                return Ok(Taken { count, is_end: count < length });
            }
            Open::Stream(file) => {
                let mut bytes = vec![0; length];
                let count = read_next(file, &mut bytes, || from.greet().and(to.greet()))?;
                self.buffer.write(start, &bytes[..count]);
                return Ok(Taken { count, is_end: count == 0 });
            }
            Open::Remote(file) => file,
        };
        let mut taken = Taken { count: 0, is_end: false };
        while taken.count < length && !taken.is_end {
            let slice = self.buffer.slice(start + taken.count, length - taken.count)?;
            let done = file.read_async(offset + taken.count as u64, slice).await?;
            taken.count += done.length as usize;
            // A server may move less than requested (draft 6.5.27).
            taken.is_end = done.end_of_file || done.length == 0;
        }
        Ok(taken)
    }

    /// Writes `length` bytes from the first half of the buffer.
    async fn write(&self, to: &Open, offset: u64, length: usize) -> Result<()> {
        let file = match to {
            Open::Local(file) => {
                return Ok(self.buffer.memory().write_file(
                    self.start(),
                    length,
                    file.as_fd(),
                    offset,
                )?);
            }
            Open::Stream(file) => {
                let mut bytes = vec![0; length];
                self.buffer.read(self.start(), &mut bytes);
                return (&*file).write_all(&bytes).map_err(|error| match error.kind() {
                    // A closed pipe is an error here, unlike for the output of a command.
                    ErrorKind::BrokenPipe => anyhow!("the reader has closed the pipe"),
                    _ => error.into(),
                });
            }
            Open::Remote(file) => file,
        };
        let mut count = 0;
        while count < length {
            let slice = self.buffer.slice(self.start() + count, length - count)?;
            let done = file.write_async(offset + count as u64, slice).await?;
            file.note_unstable(done.verifier)?;
            if done.length == 0 {
                bail!("the server wrote fewer bytes than requested");
            }
            count += done.length as usize;
        }
        Ok(())
    }

    /// True if the first `length` bytes of both halves are equal.
    fn is_same(&self, length: usize) -> bool {
        let (mut left, mut right) = ([0; COMPARE_BYTES], [0; COMPARE_BYTES]);
        (0..length).step_by(COMPARE_BYTES).all(|at| {
            let count = COMPARE_BYTES.min(length - at);
            self.buffer.read(at, &mut left[..count]);
            self.buffer.read(BLOCK_BYTES + at, &mut right[..count]);
            left[..count] == right[..count]
        })
    }
}

/// The maximum number of large buffers.
const BUFFERS: usize = 32;
/// The size of a block in bytes. A large buffer holds two blocks.
pub(super) const BLOCK_BYTES: usize = 512 << 10;
/// The size of a small buffer in bytes. There is one for each file in flight.
const SMALL_BYTES: usize = 32 << 10;
/// The maximum number of blocks of one file in flight.
const BLOCKS_PER_FILE_MAX: u64 = 8;
/// The number of bytes compared in one step: two pieces of this size fit the L1 cache.
const COMPARE_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake};

    use super::*;
    use dafs_client::ClientConfig;

    struct Ignored;

    impl Wake for Ignored {
        fn wake(self: std::sync::Arc<Self>) {}
    }

    #[test]
    fn a_buffer_goes_to_whoever_waits_longest() {
        let mover = Mover::new(&Client::new(ClientConfig::default()).unwrap()).unwrap();
        // Wakers of two tasks: the first task has two waiting blocks.
        let wakers = [(), ()].map(|()| Waker::from(std::sync::Arc::new(Ignored)));
        let [mut first, mut second] = [0, 1].map(|index| Context::from_waker(&wakers[index]));
        let mut lent: Vec<LentBuffer<'_>> = Vec::new();
        for _ in 0..BUFFERS {
            match Box::pin(mover.lend()).as_mut().poll(&mut first) {
                Poll::Ready(one) => lent.push(one.unwrap()),
                Poll::Pending => panic!("{} buffers are there", lent.len()),
            }
        }
        let mut waiting = [0, 1, 2].map(|_| Box::pin(mover.lend()));
        assert!(waiting[0].as_mut().poll(&mut second).is_pending());
        assert!(waiting[1].as_mut().poll(&mut first).is_pending());
        lent.pop();
        // The first task is polled before the second one, for another reason and with one more
        // block. Neither of its blocks may get the buffer that the second task is to get.
        assert!(waiting[1].as_mut().poll(&mut first).is_pending());
        assert!(waiting[2].as_mut().poll(&mut first).is_pending());
        assert!(waiting[0].as_mut().poll(&mut second).is_ready());
        lent.clear();
        assert!(waiting[1].as_mut().poll(&mut first).is_ready());
        assert!(waiting[2].as_mut().poll(&mut first).is_ready());
        assert_eq!(mover.buffers.borrow().len(), BUFFERS);
    }

    #[test]
    fn where_there_is_no_memory_for_another_buffer_one_that_comes_back_will_do() {
        let client = Client::new(ClientConfig::default()).unwrap();
        let (mover, mut taken) = (Mover::new(&client).unwrap(), Vec::new());
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(only) = Box::pin(mover.lend()).as_mut().poll(&mut context) else {
            panic!("nobody has one yet")
        };
        // Register memory until the limit is reached.
        while let Ok(one) = client.register(Box::from([0])) {
            taken.push(one);
        }
        let mut waiting = [1, SMALL_BYTES + 1].map(|length| Box::pin(mover.lend_for(length)));
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        drop(only);
        for one in &mut waiting {
            match one.as_mut().poll(&mut context) {
                Poll::Ready(lent) => drop(lent.unwrap()),
                Poll::Pending => panic!("it has come back"),
            }
        }
        // If there is no buffer at all, waiting for one would never end.
        let poor = Mover::new(&client).unwrap();
        let Poll::Ready(refused) = Box::pin(poor.lend_for(1)).as_mut().poll(&mut context) else {
            panic!("it waits for nothing")
        };
        assert!(refused.is_err());
    }
}
