//! Tests changes of ranges other than writes: the cache must show their effect at once, and must
//! not undo it later.

use std::path::Path;

use dafs_ops::SeekFor;
use dafs_store::local::{LocalConfig, LocalStore};

use super::*;

impl Rig {
    fn range(&mut self, index: usize, work: RangeWork, range: (u64, u64)) -> u64 {
        let file = self.files[index].open;
        for _ in 0..1000 {
            match self.cache.work_on_range(file, work.clone(), range) {
                RangeStep::Job(job) => {
                    let done = job.run_in_parts(|| ());
                    let _ = self.cache.on_ranged(&done);
                    return done.result.unwrap();
                }
                RangeStep::Dirty => {
                    self.commit_range(index, range, Stability::Unstable).unwrap();
                }
                RangeStep::Wait => self.progress(),
            }
        }
        panic!("work on a range does not end");
    }

    pub(super) fn allocate(&mut self, index: usize, offset: u64, length: u64) {
        self.range(index, RangeWork::Allocate, (offset, length));
        let model = &mut self.files[index].model;
        model.resize(model.len().max((offset + length) as usize), 0);
    }

    pub(super) fn deallocate(&mut self, index: usize, offset: u64, length: u64) {
        self.range(index, RangeWork::Deallocate, (offset, length));
        let model = &mut self.files[index].model;
        let end = model.len().min((offset + length) as usize);
        model[end.min(offset as usize)..end].fill(0);
    }

    pub(super) fn copy(&mut self, from: (usize, u64), to: (usize, u64), length: u64) {
        let size = self.files[from.0].model.len() as u64;
        let length = length.min(size.saturating_sub(from.1));
        if length == 0 || from.0 == to.0 && from.1.abs_diff(to.1) < length {
            return;
        }
        self.commit_range(from.0, (from.1, 0), Stability::Unstable).unwrap();
        let source = self.cache.open_file(self.files[from.0].open).unwrap();
        let work = RangeWork::Copy { source, offset: from.1 };
        assert_eq!(self.range(to.0, work, (to.1, length)), length);
        let bytes = self.files[from.0].model[from.1 as usize..][..length as usize].to_vec();
        let model = &mut self.files[to.0].model;
        model.resize(model.len().max((to.1 + length) as usize), 0);
        model[to.1 as usize..][..length as usize].copy_from_slice(&bytes);
    }
}

#[test]
fn dirty_data_does_not_come_back_into_a_hole() {
    let mut rig = Rig::new(1, 2 << 20);
    rig.write(0, 0, &[7; 50_000]).unwrap();
    rig.deallocate(0, 5000, 20_001);
    rig.check(0, 0, 60_000);
    rig.commit(0, Stability::FileSync).unwrap();
    rig.check(0, 0, 60_000);
    assert!(rig.disk(0) == rig.files[0].model);
}

#[test]
fn nothing_is_written_or_read_from_the_file_while_a_range_is_changed() {
    let mut rig = Rig::new(1, 2 << 20);
    rig.write(0, 0, &[7; 8192]).unwrap();
    rig.commit(0, Stability::Unstable).unwrap();
    let file = rig.files[0].open;
    let step = rig.cache.work_on_range(file, RangeWork::Allocate, (0, 100_000));
    let RangeStep::Job(job) = step else { panic!("{step:?}") };
    let (mut spans, mut jobs) = (Spans::new(), Vec::new());
    let (hint, drop_it) = (CacheHint::default(), dafs_types::CachePattern::DontNeed);
    rig.cache.hint(file, 0, 0, drop_it, hint, &mut jobs);
    assert_eq!(rig.cache.plan_fill(file, 0, 8192, hint, &mut jobs), Planned::Wait);
    let prepared = rig.cache.prepare_write(file, 0, 10, &mut spans, &mut jobs);
    assert_eq!(prepared, Prepared::Wait);
    let _ = rig.cache.on_ranged(&job.failed(StoreError::NoSpace));
    rig.write(0, 0, &[8; 10]).unwrap();
    rig.check(0, 0, 9000);
}

#[test]
fn what_the_file_does_not_have_yet_is_in_no_hole() {
    let real = Real::new();
    std::fs::write(real.path("file"), vec![7; 8192]).unwrap();
    let path = std::fs::File::options().write(true).open(real.path("file")).unwrap();
    path.set_len(4 << 20).unwrap();
    let file = real.open("file", ShareAccess::Both);
    if file.seek(0, SeekFor::Hole) != Ok(8192) {
        return dafs_tests::skip("this file system makes no holes");
    }
    let config = CacheConfig { arena_bytes: 4 << 20, ..CacheConfig::default() };
    let mut cache = Cache::new(config).unwrap();
    let version = file.version().unwrap();
    let open = cache.open(file, version).unwrap();
    let list = |cache: &mut Cache, range: (u64, u64)| {
        let step = cache.work_on_range(open, RangeWork::ListHoles, range);
        let RangeStep::Job(job) = step else { panic!("{step:?}") };
        let done = job.run_in_parts(|| ());
        let _ = cache.on_ranged(&done);
        done.result.unwrap();
        done.holes.into_iter().map(|hole| (hole.start, hole.end)).collect::<Vec<_>>()
    };
    assert_eq!(list(&mut cache, (0, 1 << 20)), [(8192, 1 << 20)]);
    assert_eq!(list(&mut cache, (4096, 4096)), []);
    assert_eq!(list(&mut cache, (3 << 20, 1 << 20)), [(3 << 20, 4 << 20)]);
    for place in [98_304, 5 << 20] {
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        let prepared = cache.prepare_write(open, place, 4096, &mut spans, &mut jobs);
        let Prepared::Ready(token) = prepared else { panic!("whole blocks need no fill") };
        let _ = cache.write_done(token, Moment(0));
    }
    assert_eq!(list(&mut cache, (0, 1 << 20)), [(8192, 98_304), (102_400, 1 << 20)]);
    // The file on disk is shorter than the cache says.
    let behind = [(4 << 20, 5 << 20), ((5 << 20) + 4096, 6 << 20)];
    assert_eq!(list(&mut cache, (4 << 20, 2 << 20)), behind);
}

/// A file of a real file system.
struct Real {
    directory: tempfile::TempDir,
    store: LocalStore,
}

impl Real {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (tree, state) = (directory.path().join("tree"), directory.path().join("state"));
        std::fs::create_dir(&tree).unwrap();
        let store = LocalStore::new(&LocalConfig::new(&tree, state)).unwrap();
        Self { directory, store }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("tree").join(name)
    }

    fn open(&self, name: &str, access: ShareAccess) -> Arc<dyn File> {
        let who = Credentials::superuser();
        let top = self.store.root(&who).unwrap().handle;
        let handle = self.store.lookup(&who, &top, name.as_bytes()).unwrap().handle;
        self.store.open(&who, &handle, access).unwrap()
    }
}

fn blocks(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap())
}

#[test]
fn a_real_file_gets_storage_and_holes() {
    let real = Real::new();
    std::fs::write(real.path("file"), vec![7; 1 << 20]).unwrap();
    let file = real.open("file", ShareAccess::Both);
    let full = blocks(&real.path("file"));
    match file.deallocate(256 << 10, 512 << 10) {
        Err(StoreError::NotSupported) => {
            return dafs_tests::skip("this file system makes no holes");
        }
        done => done.unwrap(),
    }
    assert!(blocks(&real.path("file")) < full, "storage is free again");
    let mut expected = vec![7; 1 << 20];
    expected[256 << 10..768 << 10].fill(0);
    assert!(std::fs::read(real.path("file")).unwrap() == expected);
    assert_eq!(file.seek(0, SeekFor::Hole), Ok(256 << 10));
    assert_eq!(file.seek(300_000, SeekFor::Data), Ok(768 << 10));
    assert_eq!(file.seek(800_000, SeekFor::Hole), Ok(1 << 20));
    assert_eq!(file.seek(1 << 20, SeekFor::Data), Err(StoreError::NoDevice));
    file.allocate(1 << 20, 1 << 20).unwrap();
    assert_eq!(file.version().unwrap().size, 2 << 20);
    expected.resize(2 << 20, 0);
    assert!(std::fs::read(real.path("file")).unwrap() == expected);
    assert!(blocks(&real.path("file")) >= full, "storage is reserved");
    let reader = real.open("file", ShareAccess::Read);
    assert!(Arc::ptr_eq(&reader, &file), "an object has one open file");
}

#[test]
fn a_file_that_cannot_have_its_storage_takes_none() {
    let real = Real::new();
    std::fs::write(real.path("file"), b"content").unwrap();
    let file = real.open("file", ShareAccess::Both);
    let before = blocks(&real.path("file"));
    let room = rustix::fs::statvfs(real.path("file")).unwrap();
    let whole = room.f_blocks * room.f_frsize;
    for (offset, length) in [(0, whole + (1 << 20)), (1 << 20, whole)] {
        assert_eq!(file.allocate(offset, length), Err(StoreError::NoSpace));
        assert_eq!(blocks(&real.path("file")), before);
    }
    assert_eq!(std::fs::read(real.path("file")).unwrap(), b"content");
    // Storage that the file has is not needed again.
    let allocated = file.allocate(0, 7);
    assert!(matches!(allocated, Ok(()) | Err(StoreError::NotSupported)), "{allocated:?}");
}

#[test]
fn a_file_opened_for_reading_is_not_changed() {
    let real = Real::new();
    std::fs::write(real.path("file"), b"content").unwrap();
    std::fs::write(real.path("other"), b"others").unwrap();
    let file = real.open("file", ShareAccess::Read);
    let other = real.open("other", ShareAccess::Read);
    let span = dafs_store::CopySpan { source_offset: 0, offset: 0, length: 3 };
    assert_eq!(file.allocate(0, 10), Err(StoreError::Access));
    assert_eq!(file.deallocate(0, 10), Err(StoreError::Access));
    assert_eq!(file.clone_range(&*other, span), Err(StoreError::Access));
    assert_eq!(file.copy_range(&*other, span), Err(StoreError::Access));
    assert_eq!(std::fs::read(real.path("file")).unwrap(), b"content");
}

#[test]
fn ranges_of_real_files_are_copied_or_shared() {
    let real = Real::new();
    let bytes: Vec<u8> = (0..64 << 10).map(|n: u32| (n / 256 + n % 7) as u8).collect();
    std::fs::write(real.path("source"), &bytes).unwrap();
    std::fs::write(real.path("target"), b"").unwrap();
    let source = real.open("source", ShareAccess::Read);
    let target = real.open("target", ShareAccess::Both);
    let span = dafs_store::CopySpan { source_offset: 100, offset: 5, length: 40_000 };
    let copied = target.copy_range(&*source, span);
    if copied != Err(StoreError::NotSupported) {
        assert_eq!(copied, Ok(40_000));
        assert_eq!(std::fs::read(real.path("target")).unwrap()[5..], bytes[100..40_100]);
    }
    let span = dafs_store::CopySpan { source_offset: 0, offset: 0, length: 64 << 10 };
    match target.clone_range(&*source, span) {
        Err(StoreError::NotSupported) => {
            dafs_tests::skip("this file system shares no storage between files");
        }
        done => {
            done.unwrap();
            assert!(std::fs::read(real.path("target")).unwrap() == bytes);
        }
    }
}

/// A file that is changed by a user other than root must not keep its set-id bits, because the
/// program that it contains would run with the rights of its owner.
#[test]
fn set_id_bits_end_with_a_change_of_a_range() {
    if !dafs_tests::is_root() {
        return;
    }
    let real = Real::new();
    let path = real.path("program");
    std::fs::write(&path, vec![7; 8192]).unwrap();
    for change in 0..2 {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4777);
        std::fs::set_permissions(&path, mode).unwrap();
        let who = Credentials::plain(1000, 1000).unwrap();
        let top = real.store.root(&who).unwrap().handle;
        let handle = real.store.lookup(&who, &top, b"program").unwrap().handle;
        let file = real.store.open(&who, &handle, ShareAccess::Both).unwrap();
        match change {
            0 => file.allocate(0, 10_000).unwrap(),
            _ => file.deallocate(0, 4096).unwrap(),
        }
        assert_eq!(file.attributes().unwrap().mode, 0o777);
    }
}
