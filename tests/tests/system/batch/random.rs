//! Tests random batches against a model: files as arrays of bytes, to which each batch is applied
//! when it is accepted, because of two batches with the same bytes the one accepted first runs
//! first. Within a batch, no written byte is accessed twice. `DAFS_BATCH_SEED` runs only one seed.

use std::time::Duration;

use dafs_client::{Batched, Buffer, Client, File, OpenOptions, Session, SessionOptions, Slice};
use dafs_types::Random;

use crate::fixture::{Fixture, Transport, transports};

const FILES: usize = 2;
const FILE_BYTES: usize = 60_000;
const MEMORY_BYTES: usize = 200_000;

#[test]
fn random_batches_do_what_the_model_does() {
    let only = std::env::var("DAFS_BATCH_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    for transport in transports() {
        for seed in only.map_or(0..24, |seed| seed..seed + 1) {
            eprintln!("DAFS_BATCH_SEED={seed} over {transport:?}");
            Play::new(seed, transport).run();
        }
    }
}

struct Play {
    dice: Random,
    fixture: Fixture,
    client: Client,
    session: Session,
    files: Vec<File>,
    model: Vec<Vec<u8>>,
    under_way: Vec<UnderWay>,
}

/// A batch, and the expected results of its reads.
struct UnderWay {
    batched: Batched,
    lengths: Vec<u32>,
    cancelled: Vec<bool>,
    reads: Vec<Read>,
}

/// A read in a batch: its index, its memory and the expected contents.
struct Read {
    request: usize,
    slices: Vec<(usize, usize)>,
    buffer: Buffer,
    expected: Vec<u8>,
}

impl Play {
    fn new(seed: u64, transport: Transport) -> Self {
        let mut dice = Random::new(seed);
        let early_start_below = dice.below(2) as u32;
        let run_bytes_max = [1 << 20, 5000][dice.below(2)];
        let fixture = Fixture::with(|config| {
            config.sessions.batch.early_start_below = early_start_below;
            config.sessions.batch.run_bytes_max = run_bytes_max;
        });
        let model: Vec<_> = (0..FILES).map(|_| dice.bytes(FILE_BYTES)).collect();
        for (index, content) in model.iter().enumerate() {
            std::fs::write(fixture.local(&index.to_string()), content).unwrap();
        }
        let options = SessionOptions::default().checksums(dice.percent(30));
        let (client, session) = fixture.connect_with(transport, &options);
        let open = |index| session.open(format!("/{index}"), &OpenOptions::write()).unwrap();
        let files = (0..FILES).map(open).collect();
        Self { dice, fixture, client, session, files, model, under_way: Vec::new() }
    }

    fn run(mut self) {
        for _ in 0..30 {
            self.batch();
            match self.dice.below(4) {
                0 if !self.under_way.is_empty() => {
                    let index = self.dice.below(self.under_way.len());
                    let done = self.under_way.swap_remove(index);
                    self.finish(done);
                }
                1 if !self.under_way.is_empty() => {
                    let index = self.dice.below(self.under_way.len());
                    let batch = &self.under_way[index];
                    let request = self.dice.below(batch.lengths.len().max(1));
                    if request < batch.lengths.len() {
                        batch.batched.expedite(request).unwrap();
                    }
                }
                2 => {
                    self.client.process_events(Some(Duration::ZERO));
                }
                _ => {}
            }
        }
        while let Some(done) = self.under_way.pop() {
            self.finish(done);
        }
        for (index, content) in self.model.iter().enumerate() {
            let is = std::fs::read(self.fixture.local(&index.to_string())).unwrap();
            assert!(is == *content, "file {index} differs");
        }
        drop((self.files, self.session, self.client));
        let (_, stats) = self.fixture.stop();
        assert_eq!((stats.batched_requests, stats.parked_requests, stats.loans), (0, 0, 0));
    }

    /// Splits a range at random places.
    fn cut(&mut self, length: usize) -> Vec<usize> {
        let mut cuts = Vec::new();
        let mut left = length;
        while left > 0 {
            let take = if cuts.len() == 7 { left } else { 1 + self.dice.below(left) };
            cuts.push(take);
            left -= take;
        }
        cuts
    }

    /// Builds a batch, applies it to the model and submits it.
    fn batch(&mut self) {
        let (buffer, session) = (self.client.allocate(MEMORY_BYTES).unwrap(), self.session.clone());
        let window = Duration::from_micros(self.dice.below(3000) as u64);
        let mut batch = session.batch().latency(window);
        if self.dice.percent(50) {
            batch = batch.completions(self.dice.below(9) as u32);
        }
        let (mut memory, mut lengths, mut reads) = (0, Vec::new(), Vec::new());
        // The ranges that the batch uses in each file, and whether it writes them.
        let mut touched: Vec<Vec<(usize, usize, bool)>> = vec![Vec::new(); FILES];
        for _ in 0..self.dice.below(40) {
            let (index, is_write) = (self.dice.below(FILES), self.dice.percent(50));
            let most = if self.dice.percent(80) { 3000 } else { 20_000 };
            let length = 1 + self.dice.below(most);
            if memory + length > MEMORY_BYTES {
                break;
            }
            let (ranges, places) = self.ranges(length, is_write, &mut touched[index]);
            let Some(ranges) = ranges else { continue };
            let mut slices: Vec<Slice> = Vec::new();
            let mut pieces = Vec::new();
            for count in self.cut(length) {
                slices.push(buffer.slice(memory, count).unwrap());
                pieces.push((memory, count));
                memory += count;
            }
            let content = &mut self.model[index];
            let (file, bytes) = (&self.files[index], self.dice.bytes(length));
            if is_write {
                let mut from = 0;
                for (at, count) in &pieces {
                    buffer.write(*at, &bytes[from..from + count]);
                    from += count;
                }
                from = 0;
                for (at, count) in places {
                    content[at..at + count].copy_from_slice(&bytes[from..from + count]);
                    from += count;
                }
                batch = batch.write_list(file, &ranges, slices);
            } else {
                let expected =
                    places.iter().flat_map(|(at, count)| content[*at..at + count].to_vec());
                let (request, expected) = (lengths.len(), expected.collect());
                reads.push(Read { request, slices: pieces, buffer: buffer.clone(), expected });
                batch = batch.read_list(file, &ranges, slices);
            }
            lengths.push(length as u32);
        }
        let is_submitted = self.dice.percent(70);
        let batched = if is_submitted { batch.submit() } else { batch.start() };
        let cancelled = vec![false; lengths.len()];
        let mut done = UnderWay { batched: batched.unwrap(), lengths, cancelled, reads };
        if self.dice.percent(20) && !done.lengths.is_empty() {
            let request = self.dice.below(done.lengths.len());
            done.cancelled[request] = done.batched.cancel(request);
        }
        self.under_way.push(done);
    }

    /// Returns ranges of a file with this total length that do not conflict with the rest of the
    /// batch.
    #[expect(clippy::type_complexity)]
    fn ranges(
        &mut self,
        length: usize,
        is_write: bool,
        touched: &mut Vec<(usize, usize, bool)>,
    ) -> (Option<Vec<(u64, u32)>>, Vec<(usize, usize)>) {
        let before = touched.len();
        let mut places = Vec::new();
        for count in self.cut(length) {
            let at = self.dice.below(FILE_BYTES - count + 1);
            let meets = |&(from, to, writes): &(usize, usize, bool)| {
                from < at + count && at < to && (writes || is_write)
            };
            if touched.iter().any(meets) {
                touched.truncate(before);
                return (None, places);
            }
            touched.push((at, at + count, is_write));
            places.push((at, count));
        }
        let ranges = places.iter().map(|&(at, count)| (at as u64, count as u32)).collect();
        (Some(ranges), places)
    }

    fn finish(&mut self, done: UnderWay) {
        let outcomes = done.batched.wait();
        assert_eq!(outcomes.len(), done.lengths.len());
        for (request, outcome) in outcomes.iter().enumerate() {
            match outcome {
                Ok(length) => assert_eq!(*length, done.lengths[request], "request {request}"),
                Err(error) => assert!(done.cancelled[request], "request {request}: {error}"),
            }
        }
        for Read { request, slices, buffer, expected } in done.reads {
            let mut bytes = Vec::new();
            for (at, count) in slices {
                let start = bytes.len();
                bytes.resize(start + count, 0);
                buffer.read(at, &mut bytes[start..]);
            }
            assert!(bytes == expected, "request {request} has read something else");
        }
    }
}
