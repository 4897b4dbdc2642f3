//! Merges and sorts with the engine in memory, compared with the standard library's sort.

use std::rc::Rc;

use dafs_extmem::{
    BlockFile, Budget, Engine, Error, Flow, Format, LineOrder, MemoryEngine, MergeOptions, Order,
    RecordLayout, Stream, TypedReader, TypedWriter, Watch, merge, sort,
};
use proptest::prelude::*;

/// An engine in memory, and the options that the tests vary.
struct Bench {
    engine: MemoryEngine,
    options: MergeOptions,
}

impl Bench {
    fn new(budget: usize, block_bytes: usize, depth: usize) -> Self {
        let (flow, budget) = (Flow { block_bytes, depth }, Budget::of(budget));
        let options = MergeOptions { flow, budget, is_unique: false, watch: Watch::default() };
        Self { engine: MemoryEngine::new(), options }
    }

    fn streams(&self, files: &[Vec<u8>]) -> Vec<Stream> {
        let make = |(index, bytes): (usize, &Vec<u8>)| {
            let name = index.to_string();
            self.engine.put(&name, bytes.clone());
            Stream::whole(self.engine.open(name.as_ref()).unwrap()).unwrap()
        };
        files.iter().enumerate().map(make).collect()
    }

    fn temporary(&self) -> impl Fn() -> dafs_extmem::Result<Rc<dyn BlockFile>> {
        let engine = self.engine.clone();
        move || engine.temporary("nowhere".as_ref())
    }

    fn sorted(&self, files: &[Vec<u8>], format: &Format) -> (Vec<u8>, dafs_extmem::Sorted) {
        let (streams, output) =
            (self.streams(files), self.engine.create("output".as_ref()).unwrap());
        let done = sort(&streams, format, &self.temporary(), output.file(), &self.options);
        output.publish(false).unwrap();
        (self.engine.get("output").unwrap(), done.unwrap())
    }

    fn merged(&self, files: &[Vec<u8>], format: &Format) -> dafs_extmem::Result<Vec<u8>> {
        let (streams, output) =
            (self.streams(files), self.engine.create("output".as_ref()).unwrap());
        merge(&streams, format, &self.temporary(), output.file(), &self.options)?;
        output.publish(false).unwrap();
        Ok(self.engine.get("output").unwrap())
    }
}

fn records(size: usize, key: &str) -> (Format, RecordLayout) {
    let layout = RecordLayout::new(size, key.parse().unwrap()).unwrap();
    (Format::Records(layout), layout)
}

fn lines() -> Format {
    Format::Lines(Rc::new(LineOrder::new(&[], "").unwrap()))
}

/// Sorts the records with the standard library, which sorts stably.
fn reference(bytes: &[u8], layout: RecordLayout) -> Vec<u8> {
    let mut all: Vec<&[u8]> = bytes.chunks(layout.record_bytes()).collect();
    all.sort_by(|left, right| layout.compare(left, right));
    all.concat()
}

/// Generates whole records of bytes with few different values, so that keys repeat.
fn bytes(size: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::collection::vec(0_u8..4, size), 0..200).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn records_are_sorted_stably(
        (files, key) in (1_usize..40).prop_flat_map(|size| {
            let key = (0..size).prop_flat_map(move |at| (Just(at), 1..=size - at));
            (prop::collection::vec(bytes(size), 0..4), (Just(size), key))
        }),
        depth in 1_usize..4,
        is_reverse in any::<bool>(),
    ) {
        let (size, (offset, length)) = key;
        let turn = if is_reverse { ":r" } else { "" };
        let (format, layout) = records(size, &format!("{offset}:{length}:b{turn}"));
        let bench = Bench::new(20_000, 50, depth);
        let (sorted, done) = bench.sorted(&files, &format);
        prop_assert_eq!(done.bytes, sorted.len() as u64);
        prop_assert_eq!(sorted, reference(&files.concat(), layout));
    }

    #[test]
    fn any_number_of_streams_is_merged(
        files in prop::collection::vec(bytes(3), 0..20),
        depth in 1_usize..4,
        block in 1_usize..100,
    ) {
        let (format, layout) = records(3, "1:2");
        let files: Vec<Vec<u8>> = files.iter().map(|file| reference(file, layout)).collect();
        let bench = Bench::new(usize::MAX, block, depth);
        prop_assert_eq!(bench.merged(&files, &format).unwrap(), reference(&files.concat(), layout));
    }

    #[test]
    fn lines_are_sorted_whatever_their_lengths(
        text in prop::collection::vec("[ab]{0,30}|[a-z]{100,300}", 0..200),
        ends in any::<bool>(),
        budget in 3000_usize..20_000,
    ) {
        let mut file = text.join("\n");
        if ends && !file.is_empty() {
            file.push('\n');
        }
        let mut all: Vec<&str> = file.lines().collect();
        all.sort_unstable();
        let expected: String = all.iter().map(|line| format!("{line}\n")).collect();
        let bench = Bench::new(budget, 64, 2);
        let (sorted, done) = bench.sorted(&[file.clone().into_bytes()], &lines());
        prop_assert_eq!(done.records, all.len() as u64);
        prop_assert_eq!(sorted, expected.into_bytes());
    }
}

#[test]
fn a_merge_beyond_the_limit_takes_passes_and_stays_stable() {
    let (format, layout) = records(8, "0:1");
    // Each file has one record for each key, which contains the number of the file.
    let file = |index: u8| (0..50).flat_map(|key| [key, index, 0, 0, 0, 0, 0, 0]).collect();
    let files: Vec<Vec<u8>> = (0..40).map(file).collect();
    let bench = Bench::new(4 * (2 << 16), 1 << 16, 1);
    let streams = bench.streams(&files);
    let output = bench.engine.create("output".as_ref()).unwrap();
    let done = merge(&streams, &format, &bench.temporary(), output.file(), &bench.options).unwrap();
    assert!(done.passes > 1 && done.order < 40, "{done:?}");
    output.publish(false).unwrap();
    let merged = bench.engine.get("output").unwrap();
    assert_eq!(merged, reference(&files.concat(), layout));
}

#[test]
fn of_equal_keys_the_first_is_kept() {
    let (format, _) = records(2, "0:1");
    let mut bench = Bench::new(20_000, 4, 2);
    bench.options.is_unique = true;
    let files = [b"a1a2b1".to_vec(), b"a3c1".to_vec(), b"b2c2".to_vec()];
    assert_eq!(bench.merged(&files, &format).unwrap(), b"a1b1c1");
    assert_eq!(bench.sorted(&files, &format).0, b"a1b1c1");
}

#[test]
fn what_is_not_sorted_is_named() {
    let (format, _) = records(1, "0:1");
    let bench = Bench::new(usize::MAX, 2, 2);
    match bench.merged(&[b"abc".to_vec(), b"acb".to_vec()], &format) {
        Err(Error::OutOfOrder { file, record }) => assert_eq!((file.as_str(), record), ("1", 3)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn half_a_record_is_refused() {
    let (format, _) = records(4, "0:4:u");
    let bench = Bench::new(usize::MAX, 64, 2);
    let error = bench.merged(&[vec![0; 10]], &format).unwrap_err();
    assert!(matches!(error, Error::Ragged { size: 10, record_bytes: 4, .. }), "{error}");
}

#[test]
fn a_limit_that_is_too_low_is_refused() {
    let (format, _) = records(1 << 20, "0:8:u");
    let bench = Bench::new(1 << 20, 1 << 20, 2);
    let error = bench.merged(&[vec![0; 1 << 20], vec![0; 1 << 20]], &format).unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    let long = vec![b'x'; 1 << 20];
    let (streams, output) =
        (bench.streams(&[long]), bench.engine.create("output".as_ref()).unwrap());
    let done = sort(&streams, &lines(), &bench.temporary(), output.file(), &bench.options);
    assert!(matches!(done, Err(Error::Memory { .. })), "{done:?}");
    assert!(bench.engine.get("output").is_none());
}

#[test]
fn a_range_of_a_stream_is_a_stream() {
    let bench = Bench::new(0, 3, 2);
    let whole = bench.streams(&[b"0123456789".to_vec()]).remove(0);
    let part = whole.sub(2..8).sub(1..100);
    assert_eq!(part.len(), 5);
    let mut blocks = part.blocks(bench.options.flow, &bench.options.watch).unwrap();
    let mut read = Vec::new();
    while let Some((memory, length)) = blocks.next_block().unwrap() {
        read.extend(memory.to_vec(0, length));
    }
    assert_eq!(read, b"34567");
}

#[test]
fn values_of_a_type_go_out_and_come_back() {
    let (engine, flow) = (MemoryEngine::new(), Flow { block_bytes: 100, depth: 3 });
    let output = engine.create("values".as_ref()).unwrap();
    let mut writer = TypedWriter::new(output.file(), flow);
    let values: Vec<[u32; 3]> = (0..1000).map(|value| [value, value * value, 7]).collect();
    for value in &values {
        writer.put(value).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), 1000);
    assert!(engine.open("values".as_ref()).is_err(), "it has no name until it is whole");
    output.publish(false).unwrap();
    let stream = Stream::whole(engine.open("values".as_ref()).unwrap()).unwrap();
    let reader = TypedReader::new(&stream, flow, &Watch::default()).unwrap();
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<[u32; 3]>>(), values);
    assert!(TypedReader::<[u64; 7]>::new(&stream, flow, &Watch::default()).is_err());
}

#[test]
fn whoever_asks_ends_the_work() {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut bench = Bench::new(usize::MAX, 1, 2);
    let asked = stop.clone();
    bench.options.watch = Watch::stopped_by(stop).telling(move |_| {
        asked.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let (format, _) = records(1, "0:1");
    let error = bench.merged(&[b"abc".to_vec()], &format).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}
