//! Random sequences of work compared with a model: a list of messages and an image of each side's
//! memory.
//!
//! Invariant of the generator: it never does anything whose result the transport leaves open. A
//! cell is written once between two messages that were seen to arrive, and it is never written and
//! read at the same time.

use std::collections::VecDeque;

use dafs_dat::{CompletionStatus, Gather, LocalSegment, Operation, Rights, SendOptions, Signal};
use dafs_types::Random;

use crate::fixture::Fixture;
use crate::pair::{Buffer, Pair, Side};
use crate::writes::memories;

pub(crate) fn any_sequence_agrees_with_the_model(fixture: &dyn Fixture) {
    let only = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    for seed in seeds {
        let _replay = Replay(seed);
        Run::new(fixture, seed).go();
    }
}

/// Prints how to replay a failure.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: {SEED_VARIABLE}={} cargo test -p dafs-dat --test conformance \
                 any_sequence",
                self.0
            );
        }
    }
}

struct Run {
    pair: Pair,
    dice: Random,
    models: [Model; 2],
    contexts: u64,
}

/// What one side has posted and what it must observe.
struct Model {
    /// The memory that the peer can reach, and its expected final contents.
    exposed: Buffer,
    image: Vec<u8>,
    cells: Vec<Cell>,
    /// Room for everything posted here. Each part is used once.
    scratch: Buffer,
    used: u64,
    receives: VecDeque<(u64, u64)>,
    /// The messages from the peer that have not arrived.
    due: VecDeque<Message>,
    reads: VecDeque<Read>,
    /// The number of events of this side that were checked.
    judged: usize,
    sends: VecDeque<u64>,
    writes: VecDeque<u64>,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    /// True if it was written and no later message was seen to arrive.
    unsettled: bool,
    /// The number of writes.
    writes: u64,
    readers: u32,
}

struct Message {
    bytes: Vec<u8>,
    /// The receiver's cells that are placed when this message arrives, each with its number of
    /// writes at that time.
    settles: Vec<(usize, u64)>,
}

struct Read {
    context: u64,
    cell: usize,
    at: u64,
    expected: Vec<u8>,
}

impl Model {
    fn new(side: &mut Side, dice: &mut Random) -> Self {
        let image = dice.bytes(CELLS * CELL_BYTES);
        let memory = memories(image.len())[dice.below(4)].clone();
        memory.write(0, &image);
        Self {
            exposed: side.register(memory, Rights::REMOTE),
            image,
            cells: vec![Cell::default(); CELLS],
            scratch: side.buffer(SCRATCH_BYTES, Rights::LOCAL),
            used: 0,
            receives: VecDeque::new(),
            due: VecDeque::new(),
            reads: VecDeque::new(),
            judged: 0,
            sends: VecDeque::new(),
            writes: VecDeque::new(),
        }
    }

    /// Reserves unused room, cut into random segments.
    fn take(&mut self, dice: &mut Random, length: usize) -> (u64, Vec<LocalSegment>) {
        let start = self.used;
        self.used += length as u64;
        let mut segments = Vec::new();
        let mut done = 0;
        while done < length || segments.is_empty() {
            let here = dice.below(length - done + 1);
            segments.push(self.scratch.region.local(start + done as u64, here as u32));
            done += here;
            if segments.len() == SEGMENTS_MAX && done < length {
                let rest = (length - done) as u32;
                segments.push(self.scratch.region.local(start + done as u64, rest));
                done = length;
            }
        }
        (start, segments)
    }
}

impl Run {
    fn new(fixture: &dyn Fixture, seed: u64) -> Self {
        let mut dice = Random::new(seed);
        let world = fixture.world(seed);
        let mut config = world.endpoint.clone();
        config.read_depth = 1 + dice.below(8) as u16;
        let mut pair = Pair::over(world, &config, &config);
        let models =
            [Model::new(&mut pair.initiator, &mut dice), Model::new(&mut pair.acceptor, &mut dice)];
        let mut run = Self { pair, dice, models, contexts: 0 };
        run.judge();
        run
    }

    fn go(&mut self) {
        for _ in 0..STEPS {
            let here = self.dice.below(2);
            match self.dice.below(12) {
                0..=2 => self.receive(here),
                3..=5 => self.send(here),
                6..=8 => self.write(here),
                9 => self.read(here),
                _ => {
                    self.pair.turn();
                    self.judge();
                }
            }
        }
        let mut budget = 1_000_000;
        while !self.is_idle() {
            self.pair.turn();
            self.judge();
            budget -= 1;
            assert!(budget > 0, "work is stuck: {:?}", self.pair.acceptor.events.last());
        }
        self.settle_all();
        for model in &self.models {
            assert!(model.exposed.bytes() == model.image, "memory differs from the model");
        }
    }

    fn side(&mut self, here: usize) -> &mut Side {
        if here == 0 { &mut self.pair.initiator } else { &mut self.pair.acceptor }
    }

    fn context(&mut self) -> u64 {
        self.contexts += 1;
        self.contexts
    }

    // ---- posting --------------------------------------------------------------

    fn receive(&mut self, here: usize) {
        if self.models[here].receives.len() >= RECEIVES_MAX {
            return;
        }
        let context = self.context();
        let (at, segments) = self.models[here].take(&mut self.dice, MESSAGE_BYTES_MAX);
        self.side(here).receive(context, &segments);
        self.models[here].receives.push_back((context, at));
    }

    fn send(&mut self, here: usize) {
        let there = 1 - here;
        // A message is never sent without a receive for it.
        if self.models[there].due.len() >= self.models[there].receives.len() {
            return;
        }
        let context = self.context();
        let length = self.dice.below(MESSAGE_BYTES_MAX + 1);
        let bytes = self.dice.bytes(length);
        let (at, segments) = self.models[here].take(&mut self.dice, length);
        self.models[here].scratch.memory.write(at as usize, &bytes);
        let plain = self.dice.below(3) == 0;
        let gather: Vec<Gather<'_>> = if plain {
            vec![Gather::Bytes(&bytes)]
        } else {
            segments.into_iter().map(Gather::Segment).collect()
        };
        let signal = self.signal();
        let options = SendOptions { signal, invalidate: None };
        self.side(here).gather(context, &gather, options);
        if signal == Signal::Always {
            self.models[here].sends.push_back(context);
        }
        let cells = &self.models[there].cells;
        let written = |cell: &usize| cells[*cell].unsettled;
        let settles = (0..CELLS).filter(written).map(|cell| (cell, cells[cell].writes)).collect();
        self.models[there].due.push_back(Message { bytes, settles });
    }

    fn write(&mut self, here: usize) {
        let there = 1 - here;
        let cell = self.dice.below(CELLS);
        let state = self.models[there].cells[cell];
        if state.unsettled || state.readers > 0 {
            return;
        }
        let context = self.context();
        let offset = self.dice.below(CELL_BYTES);
        let length = self.dice.below(CELL_BYTES - offset + 1);
        let bytes = self.dice.bytes(length);
        let (at, segments) = self.models[here].take(&mut self.dice, length);
        self.models[here].scratch.memory.write(at as usize, &bytes);
        let start = cell * CELL_BYTES + offset;
        let remote = self.models[there].exposed.region.remote(start as u64, length as u32);
        let signal = self.signal();
        self.side(here).write_signal(context, &segments, remote, signal);
        if signal == Signal::Always {
            self.models[here].writes.push_back(context);
        }
        let model = &mut self.models[there];
        model.image[start..start + length].copy_from_slice(&bytes);
        model.cells[cell].unsettled = true;
        model.cells[cell].writes += 1;
    }

    fn read(&mut self, here: usize) {
        let there = 1 - here;
        let cell = self.dice.below(CELLS);
        if self.models[there].cells[cell].unsettled {
            return;
        }
        let context = self.context();
        let offset = self.dice.below(CELL_BYTES);
        let length = self.dice.below(CELL_BYTES - offset + 1);
        let (at, segments) = self.models[here].take(&mut self.dice, length);
        let start = cell * CELL_BYTES + offset;
        let remote = self.models[there].exposed.region.remote(start as u64, length as u32);
        self.side(here).read(context, &segments, remote);
        let expected = self.models[there].image[start..start + length].to_vec();
        self.models[there].cells[cell].readers += 1;
        self.models[here].reads.push_back(Read { context, cell, at, expected });
    }

    fn signal(&mut self) -> Signal {
        if self.dice.below(3) == 0 { Signal::OnError } else { Signal::Always }
    }

    // ---- judging --------------------------------------------------------------

    fn judge(&mut self) {
        for here in 0..2 {
            let judged = self.models[here].judged;
            let side = self.side(here);
            let done: Vec<_> = side.completions().copied().skip(judged).collect();
            assert!(!side.is_broken(), "broken: {:?}", side.events.last());
            self.models[here].judged += done.len();
            for completion in done {
                assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
                let context = completion.cookie;
                match completion.operation {
                    Operation::Receive => self.arrived(here, context, completion.length),
                    Operation::RdmaRead => self.was_read(here, context, completion.length),
                    Operation::Send => {
                        assert_eq!(self.models[here].sends.pop_front(), Some(context));
                    }
                    Operation::RdmaWrite => {
                        assert_eq!(self.models[here].writes.pop_front(), Some(context));
                    }
                }
            }
        }
    }

    fn arrived(&mut self, here: usize, context: u64, length: u32) {
        let model = &mut self.models[here];
        let (expected, at) = model.receives.pop_front().expect("a receive was posted");
        assert_eq!(context, expected, "the oldest receive");
        let message = model.due.pop_front().expect("a message was sent");
        assert_eq!(length as usize, message.bytes.len());
        let seen = model.scratch.memory.to_vec(at as usize, message.bytes.len());
        assert!(seen == message.bytes, "message {context} differs");
        for (cell, writes) in message.settles {
            if model.cells[cell].writes != writes {
                // An earlier message settled that write, and another write is in flight.
                continue;
            }
            let start = cell * CELL_BYTES;
            let seen = model.exposed.memory.to_vec(start, CELL_BYTES);
            assert!(seen == model.image[start..start + CELL_BYTES], "cell {cell} not placed");
            model.cells[cell].unsettled = false;
        }
    }

    fn was_read(&mut self, here: usize, context: u64, length: u32) {
        let read = self.models[here].reads.pop_front().expect("a read was posted");
        assert_eq!(context, read.context, "reads complete in order");
        assert_eq!(length as usize, read.expected.len());
        let seen = self.models[here].scratch.memory.to_vec(read.at as usize, length as usize);
        assert!(seen == read.expected, "read {context} differs");
        self.models[1 - here].cells[read.cell].readers -= 1;
    }

    fn is_idle(&self) -> bool {
        self.models.iter().all(|model| {
            model.due.is_empty()
                && model.reads.is_empty()
                && model.sends.is_empty()
                && model.writes.is_empty()
        })
    }

    /// Sends a last message in each direction, after which every write is placed.
    fn settle_all(&mut self) {
        for here in 0..2 {
            if self.models[1 - here].receives.is_empty() {
                self.receive(1 - here);
            }
            self.send(here);
        }
        let mut budget = 1_000_000;
        while !self.is_idle() {
            self.pair.turn();
            self.judge();
            budget -= 1;
            assert!(budget > 0, "the last messages are stuck");
        }
    }
}

const SEED_VARIABLE: &str = "DAFS_CONFORMANCE_SEED";
const SEEDS: u64 = 25;
const STEPS: usize = 600;
const CELLS: usize = 48;
const CELL_BYTES: usize = 3000;
const MESSAGE_BYTES_MAX: usize = 2000;
const RECEIVES_MAX: usize = 20;
const SEGMENTS_MAX: usize = 12;
/// Room for the greatest need of every step.
const SCRATCH_BYTES: usize = (STEPS + 16) * CELL_BYTES;
