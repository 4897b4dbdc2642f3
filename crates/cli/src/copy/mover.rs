//! The octets of many files on their way at once, through a few registered buffers.
//!
//! A block goes from the socket or the server's cache into its buffer and from there to
//! the file, without another copy.
//!
//! Invariant: a flow ends when none of its blocks is under way, and its buffers are free
//! then; an error ends a flow, not the others.

use std::os::fd::AsFd;

use anyhow::{Error, Result, bail};
use dafs_client::{Buffer, Client, Completion, Group, Stability};

use super::side::Open;

/// What is done with a file's octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Copy,
    /// Both are read.
    Compare,
}

/// Two open files, and how far their octets are.
pub struct Flow {
    pub item: usize,
    pub to: Open,
    /// Octets that have arrived, or were compared.
    pub moved: u64,
    pub differs: bool,
    from: Open,
    purpose: Purpose,
    next: u64,
    end: u64,
    under_way: usize,
    error: Option<Error>,
}

/// A flow at its end.
pub struct Ended {
    pub flow: Flow,
    pub error: Option<Error>,
}

/// A buffer in use: a part of some flow's file.
#[derive(Clone, Copy, Default)]
struct Block {
    flow: usize,
    offset: u64,
    /// Octets there are, on each side.
    counts: [usize; 2],
    /// Reads under way.
    reads: usize,
}

/// The registered buffers that everything passes through.
pub struct Mover {
    client: Client,
    group: Group,
    /// Each holds two blocks: one for each side when files are compared.
    buffers: Vec<Buffer>,
    blocks: [Block; BUFFERS],
    free: Vec<usize>,
    flows: Vec<Option<Flow>>,
    under_way: usize,
}

impl Flow {
    pub fn new(purpose: Purpose, item: usize, from: Open, to: Open, end: u64) -> Self {
        Self {
            item,
            to,
            moved: 0,
            differs: false,
            from,
            purpose,
            next: 0,
            end,
            under_way: 0,
            error: None,
        }
    }

    fn is_done(&self) -> bool {
        self.under_way == 0 && self.next >= self.end
    }

    fn stop(&mut self, error: Error) {
        self.next = self.end;
        self.error.get_or_insert(error);
    }
}

impl Mover {
    pub fn new(client: &Client) -> Result<Self> {
        let buffers = (0..BUFFERS)
            .map(|_| client.allocate(2 * BLOCK_BYTES))
            .collect::<std::result::Result<_, _>>()?;
        Ok(Self {
            client: client.clone(),
            group: client.group(),
            buffers,
            blocks: [Block::default(); BUFFERS],
            free: (0..BUFFERS).collect(),
            flows: (0..FLOWS).map(|_| None).collect(),
            under_way: 0,
        })
    }

    /// No other flow can start before a turn.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() || self.flows.iter().all(Option::is_some)
    }

    pub fn is_empty(&self) -> bool {
        self.flows.iter().all(Option::is_none)
    }

    /// Takes a flow in; there must be room for it.
    pub fn start(&mut self, flow: Flow) {
        if let Some(index) = self.flows.iter().position(Option::is_none) {
            self.flows[index] = Some(flow);
            self.pump(index);
        }
    }

    /// Waits for progress, and hands over the flows that have ended.
    pub fn turn(&mut self, on_end: &mut dyn FnMut(Ended) -> Result<()>) -> Result<()> {
        for index in 0..self.flows.len() {
            self.pump(index);
            if self.flows[index].as_ref().is_some_and(Flow::is_done)
                && let Some(mut flow) = self.flows[index].take()
            {
                let error = flow.error.take();
                on_end(Ended { flow, error })?;
            }
        }
        if self.under_way > 0 {
            let worth_waking = (self.under_way / 4).max(1);
            if self.client.wait(self.group, worth_waking, None) == 0 {
                bail!("transfers were lost; this is a fault of the client library");
            }
            while let Some(done) = self.client.next(self.group) {
                self.under_way -= 1;
                self.on_done(done);
            }
        }
        Ok(())
    }

    /// Starts as many blocks of a flow as there are buffers for.
    fn pump(&mut self, index: usize) {
        let Some(mut flow) = self.flows[index].take() else { return };
        while flow.next < flow.end
            && let Some(buffer) = self.free.pop()
        {
            let left = usize::try_from(flow.end - flow.next).unwrap_or(BLOCK_BYTES);
            let length = left.min(BLOCK_BYTES);
            self.blocks[buffer] = Block { flow: index, offset: flow.next, ..Block::default() };
            flow.next += length as u64;
            flow.under_way += 1;
            if let Err(error) = self.read(&flow, buffer, length) {
                flow.stop(error);
            }
            if self.blocks[buffer].reads == 0 {
                self.on_read(&mut flow, buffer);
            }
        }
        self.flows[index] = Some(flow);
    }

    /// Reads a block on one side, or on both.
    fn read(&mut self, flow: &Flow, buffer: usize, length: usize) -> Result<()> {
        self.read_side(&flow.from, buffer, 0, length)?;
        match flow.purpose {
            Purpose::Copy => Ok(()),
            Purpose::Compare => self.read_side(&flow.to, buffer, 1, length),
        }
    }

    fn read_side(&mut self, from: &Open, buffer: usize, half: usize, length: usize) -> Result<()> {
        let (at, offset) = (half * BLOCK_BYTES, self.blocks[buffer].offset);
        match from {
            Open::Local(file) => {
                let memory = self.buffers[buffer].memory();
                self.blocks[buffer].counts[half] =
                    memory.read_file(at, length, file.as_fd(), offset)?;
            }
            Open::Remote(file) => {
                let slice = self.buffers[buffer].slice(at, length)?;
                let context = context(buffer, Step::Read(half));
                file.session().submit_read(file, offset, slice, self.group, context)?;
                self.under_way += 1;
                self.blocks[buffer].reads += 1;
            }
        }
        Ok(())
    }

    fn on_done(&mut self, done: Completion) {
        let (buffer, step) = of_context(done.context);
        let index = self.blocks[buffer].flow;
        let Some(mut flow) = self.flows[index].take() else { return };
        let block = &mut self.blocks[buffer];
        let length = match &done.result {
            Ok(transferred) => transferred.length as usize,
            Err(_) => 0,
        };
        let is_last = match step {
            Step::Read(half) => {
                block.counts[half] = length;
                block.reads -= 1;
                block.reads == 0
            }
            Step::Write => {
                block.counts[0] -= length.min(block.counts[0]);
                false
            }
        };
        let ended = match (done.result, step, &flow.to) {
            (Err(error), ..) => Err(error.into()),
            (Ok(transferred), Step::Write, Open::Remote(file)) => {
                flow.moved += u64::from(transferred.length);
                file.note_unstable(transferred.verifier).map_err(Error::from)
            }
            _ => Ok(()),
        };
        if let Err(error) = ended {
            flow.stop(error);
        }
        if is_last {
            self.on_read(&mut flow, buffer);
        } else if step == Step::Write {
            if self.blocks[buffer].counts[0] > 0 && flow.error.is_none() {
                flow.stop(Error::msg("the server wrote less than it was given"));
            }
            self.let_go(&mut flow, buffer);
        }
        self.flows[index] = Some(flow);
    }

    /// All that was to be read of a block has been read, or failed.
    fn on_read(&mut self, flow: &mut Flow, buffer: usize) {
        let result = match (&flow.error, flow.purpose) {
            (Some(_), _) => Ok(false),
            (None, Purpose::Copy) => self.write(flow, buffer),
            (None, Purpose::Compare) => {
                let block = self.blocks[buffer];
                flow.moved += block.counts[0] as u64;
                flow.differs |= !self.is_same(buffer);
                Ok(false)
            }
        };
        match result {
            Ok(true) => {}
            Ok(false) => self.let_go(flow, buffer),
            Err(error) => {
                flow.stop(error);
                self.let_go(flow, buffer);
            }
        }
    }

    /// Writes a block out of its buffer. True if that is under way.
    fn write(&mut self, flow: &mut Flow, buffer: usize) -> Result<bool> {
        let Block { offset, counts: [count, _], .. } = self.blocks[buffer];
        match &flow.to {
            Open::Local(file) => {
                self.buffers[buffer].memory().write_file(0, count, file.as_fd(), offset)?;
                flow.moved += count as u64;
                Ok(false)
            }
            Open::Remote(_) if count == 0 => Ok(false),
            Open::Remote(file) => {
                let slice = self.buffers[buffer].slice(0, count)?;
                let (session, stability) = (file.session(), Stability::Unstable);
                let context = context(buffer, Step::Write);
                session.submit_write(file, offset, slice, stability, self.group, context)?;
                self.under_way += 1;
                Ok(true)
            }
        }
    }

    fn let_go(&mut self, flow: &mut Flow, buffer: usize) {
        flow.under_way -= 1;
        self.free.push(buffer);
    }

    /// Whether both halves of a buffer hold the same.
    fn is_same(&self, buffer: usize) -> bool {
        let [first, second] = self.blocks[buffer].counts;
        let memory = &self.buffers[buffer];
        let (mut left, mut right) = ([0; COMPARE_BYTES], [0; COMPARE_BYTES]);
        first == second
            && (0..first).step_by(COMPARE_BYTES).all(|at| {
                let length = COMPARE_BYTES.min(first - at);
                memory.read(at, &mut left[..length]);
                memory.read(BLOCK_BYTES + at, &mut right[..length]);
                left[..length] == right[..length]
            })
    }
}

/// What a completion ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read(usize),
    Write,
}

fn context(buffer: usize, step: Step) -> u64 {
    let step = match step {
        Step::Read(half) => half as u64,
        Step::Write => 2,
    };
    buffer as u64 * 4 + step
}

fn of_context(context: u64) -> (usize, Step) {
    let step = match context % 4 {
        2 => Step::Write,
        half => Step::Read(half as usize),
    };
    ((context / 4) as usize % BUFFERS, step)
}

/// Blocks under way at once, and octets of each.
const BUFFERS: usize = 16;
pub const BLOCK_BYTES: usize = 512 << 10;
/// Files open at once.
const FLOWS: usize = 16;
/// Octets compared in one step: two of them fit the first cache.
const COMPARE_BYTES: usize = 8 << 10;
