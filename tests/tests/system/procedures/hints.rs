//! Tests the effect of CACHE_HINT and of the hint in a READ on the server's cache (draft 6.5.6).
//!
//! The cache's counters show it: bytes read from files, reads that missed the cache, and bytes
//! cached at the end.

use dafs_client::{CacheHint, CachePattern, File, OpenOptions};
use dafs_server::ServerStats;
use dafs_types::StateId;
use dafs_wire::Request;
use dafs_wire::messages::ReadInline;

use super::found;
use crate::fixture::{Fixture, far, pattern};
use crate::rogue::Rogue;

const FILE_BYTES: usize = 1 << 20;
const HALF: u64 = FILE_BYTES as u64 / 2;
const NONE: CacheHint = CacheHint(0);
/// Bit 0 of a hint.
const PREFETCH: u32 = 1;

/// Encodes the likelihood of reads and writes, 1 to 7.
const fn likely(read: u32, write: u32) -> u32 {
    read << 1 | write << 4
}

/// Returns the server's counters after a client did this to a file. The server does not read ahead
/// by default.
fn counted(act: impl FnOnce(&File)) -> ServerStats {
    counted_by(Fixture::with(|config| config.cache.read_ahead_bytes_max = 0), act)
}

fn counted_by(fixture: Fixture, act: impl FnOnce(&File)) -> ServerStats {
    std::fs::write(fixture.local("file"), pattern(FILE_BYTES, 3)).unwrap();
    let (client, session) = fixture.connect(far());
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    act(&file);
    file.close().unwrap();
    drop((session, client));
    fixture.stop().1
}

fn read(file: &File, offset: u64, length: usize) {
    let mut bytes = vec![0; length];
    assert_eq!(file.read_at(&mut bytes, offset).unwrap(), length);
    assert!(bytes == pattern(FILE_BYTES, 3)[offset as usize..][..length], "what is there");
}

/// Reads every other block. A prefetch reads longer runs, so it has finished when this is done.
fn read_half(file: &File) {
    (0..FILE_BYTES as u64).step_by(8192).for_each(|offset| read(file, offset, 4096));
}

fn hint(file: &File, pattern: CachePattern, hint: CacheHint) {
    file.hint(0, FILE_BYTES as u32, pattern, hint).unwrap();
}

#[test]
fn what_will_be_needed_is_fetched_and_what_is_unlikely_is_not() {
    let fetched = |pattern, word| {
        let stats = counted(|file| {
            hint(file, pattern, CacheHint(word));
            read_half(file);
        });
        stats.cache.fill_bytes
    };
    for (pattern, word) in [
        (CachePattern::WillNeed, 0),
        (CachePattern::WillNeed, likely(4, 4)),
        (CachePattern::Normal, PREFETCH),
        (CachePattern::Random, PREFETCH | likely(7, 1)),
        (CachePattern::Sequential, PREFETCH | likely(1, 7)),
    ] {
        assert_eq!(fetched(pattern, word), FILE_BYTES as u64, "{pattern:?} {word:#x}");
    }
    // Without a request, or with both likelihoods below the middle, a prefetch is ignored.
    for (pattern, word) in [
        (CachePattern::Normal, 0),
        (CachePattern::Normal, likely(7, 7)),
        (CachePattern::Random, 0),
        (CachePattern::Sequential, 0),
        (CachePattern::DontNeed, 0),
        (CachePattern::DontNeed, PREFETCH),
        (CachePattern::Normal, PREFETCH | likely(3, 3)),
        (CachePattern::WillNeed, likely(1, 1)),
    ] {
        assert_eq!(fetched(pattern, word), FILE_BYTES as u64 / 2, "{pattern:?} {word:#x}");
    }
}

#[test]
fn what_is_not_needed_any_more_makes_room_at_once() {
    let twice = |between: Option<CachePattern>| {
        counted(|file| {
            read(file, 0, FILE_BYTES);
            if let Some(pattern) = between {
                hint(file, pattern, NONE);
            }
            read(file, 0, FILE_BYTES);
        })
    };
    for kept in [None, Some(CachePattern::Random), Some(CachePattern::WillNeed)] {
        assert_eq!(twice(kept).cache.fill_bytes, FILE_BYTES as u64, "{kept:?}");
    }
    let let_go = twice(Some(CachePattern::DontNeed));
    assert_eq!(let_go.cache.fill_bytes, 2 * FILE_BYTES as u64);
    let empty = counted(|file| {
        read(file, 0, FILE_BYTES);
        hint(file, CachePattern::DontNeed, NONE);
    });
    let full = counted(|file| read(file, 0, FILE_BYTES));
    assert_eq!(empty.cache.used_bytes, 0);
    assert!(full.cache.used_bytes >= FILE_BYTES as u64);
}

#[test]
fn patterns_decide_what_is_read_ahead() {
    let from_start = |pattern: Option<CachePattern>, offset| {
        let stats = counted_by(Fixture::new(), |file| {
            if let Some(pattern) = pattern {
                hint(file, pattern, NONE);
            }
            read(file, offset, 4096);
        });
        stats.cache.fill_bytes
    };
    // A read from the start looks like a stream.
    assert!(from_start(None, 0) > 4096);
    assert!(from_start(Some(CachePattern::Normal), 0) > 4096);
    assert_eq!(from_start(Some(CachePattern::Random), 0), 4096);
    // A read from elsewhere does not, but a hint can say that it is one.
    assert_eq!(from_start(None, HALF), 4096);
    assert_eq!(from_start(Some(CachePattern::Random), HALF), 4096);
    assert!(from_start(Some(CachePattern::Sequential), HALF) > 4096);
}

#[test]
fn the_hint_of_a_read_says_whether_more_will_follow() {
    let fetched = |word: u32| {
        let fixture = Fixture::new();
        std::fs::write(fixture.local("file"), pattern(FILE_BYTES, 3)).unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(far()));
        let (file, state) = rogue.open("file");
        assert_ne!(state, StateId::ANONYMOUS);
        let hint = CacheHint(word);
        let read = ReadInline { file, state, offset: 0, length: 4096, hint };
        let answer = rogue.ask(&Request::ReadInline(read)).unwrap();
        assert_eq!(found!(ReadInline, &answer).data.len(), 4096);
        drop(rogue);
        fixture.stop().1.cache.fill_bytes
    };
    let ahead = fetched(0);
    assert!(ahead > 4096);
    // A prefetch hint has no effect here; a read likelihood below the middle has.
    assert_eq!(fetched(PREFETCH), ahead);
    assert_eq!(fetched(likely(7, 1)), ahead);
    assert_eq!(fetched(PREFETCH | likely(3, 7)), 4096);
}
