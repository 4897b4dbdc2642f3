//! Tests data: read, written, committed, appended, and seen by local processes.

use std::io::{Read, Write};

use dafs_client::{
    ClientError, Group, OpenOptions, ReadStream, Recovery, RegionPath, SessionOptions, Stability,
    Status, WriteStream, block_on,
};

use crate::fixture::{Fixture, Transport, over_each, pattern, transports};

#[test]
fn what_is_written_is_read_back_and_lies_in_the_file() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let data = pattern(3_000_001, 5);
        let file = session.open("/data", &OpenOptions::write()).unwrap();
        file.write_at(&data, 0).unwrap();
        let mut back = vec![0; data.len() + 10];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), data.len());
        assert_eq!(back[..data.len()], data);
        file.commit().unwrap();
        assert_eq!(std::fs::read(fixture.local("data")).unwrap(), data);
        file.close().unwrap();
    });
}

#[test]
fn reads_and_writes_of_odd_sizes_at_odd_offsets_match_a_model() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let file = session.open("/odd", &OpenOptions::write()).unwrap();
        let mut model: Vec<u8> = Vec::new();
        let mut state = 42u64;
        for round in 0..400 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            let offset = (state >> 40) as usize % 300_000;
            let length = (state >> 20) as usize % 20_000;
            if state >> 63 == 0 {
                let bytes = pattern(length, state);
                file.write_at(&bytes, offset as u64).unwrap();
                if length > 0 && model.len() < offset + length {
                    model.resize(offset + length, 0);
                }
                let start = offset.min(model.len());
                model[start..].iter_mut().zip(&bytes).for_each(|(m, b)| *m = *b);
            } else {
                let mut bytes = vec![9; length];
                let count = file.read_at(&mut bytes, offset as u64).unwrap();
                let there = model.len().saturating_sub(offset).min(length);
                assert_eq!(count, there, "round {round}");
                assert_eq!(bytes[..count], model[offset.min(model.len())..][..count]);
            }
        }
        file.close().unwrap();
        assert_eq!(std::fs::read(fixture.local("odd")).unwrap(), model);
    });
}

#[test]
fn many_transfers_are_under_way_at_once() {
    over_each(|fixture, transport| {
        let data = pattern(4 << 20, 3);
        std::fs::write(fixture.local("big"), &data).unwrap();
        let (client, session) = fixture.connect(transport);
        let file = session.open("/big", &OpenOptions::read()).unwrap();
        let buffer = client.allocate(4 << 20).unwrap();
        let group = client.group();
        let block = 4096;
        for index in 0..1024 {
            let slice = buffer.slice(index * block, block).unwrap();
            let offset = (index * block) as u64;
            session.submit_read(&file, offset, slice, group, index as u64).unwrap();
        }
        let mut seen = vec![false; 1024];
        while seen.iter().any(|seen| !seen) {
            assert!(client.wait(group, 1, None) > 0);
            while let Some(done) = client.next(group) {
                assert_eq!(done.result.unwrap().length, 4096);
                assert!(!std::mem::replace(&mut seen[done.context as usize], true));
            }
        }
        assert_eq!(buffer.memory().to_vec(0, 4 << 20), data);
    });
}

#[test]
fn reads_and_writes_of_one_turn_keep_out_of_each_others_way() {
    over_each(|fixture, transport| {
        let mut model = pattern(2 * HALF, 1);
        std::fs::write(fixture.local("mixed"), &model).unwrap();
        let (client, session) = fixture.connect(transport);
        let file = session.open("/mixed", &OpenOptions::write()).unwrap();
        let shared = client.allocate(2 * HALF).unwrap();
        let heap = client.register(vec![0; 2 * HALF].into()).unwrap();
        for (seed, buffer) in [(2, &shared), (3, &heap)] {
            // The first half of the file is read and the second written, piece by piece. Pieces end
            // within blocks, so that neighbours share blocks, and span segments.
            model[HALF..].copy_from_slice(&pattern(HALF, seed));
            buffer.memory().write(HALF, &model[HALF..]);
            let (group, mut under_way, mut at) = (client.group(), 0, 0);
            for turn in 0.. {
                let length = (1 + turn * 7919 % 15_000).min(HALF - at);
                if length == 0 {
                    break;
                }
                let [from, to] = [at, HALF + at].map(|at| buffer.slice(at, length).unwrap());
                let (low, high) = (at as u64, (HALF + at) as u64);
                let want = length as u64;
                session.submit_write(&file, high, to, Stability::Unstable, group, want).unwrap();
                session.submit_read(&file, low, from, group, want).unwrap();
                (under_way, at) = (under_way + 2, at + length);
            }
            while under_way > 0 {
                assert!(client.wait(group, 1, None) > 0);
                while let Some(done) = client.next(group) {
                    assert_eq!(u64::from(done.result.unwrap().length), done.context);
                    under_way -= 1;
                }
            }
            assert!(buffer.memory().to_vec(0, HALF) == model[..HALF], "what was read");
            let mut back = vec![0; 2 * HALF];
            assert_eq!(file.read_at(&mut back, 0).unwrap(), 2 * HALF);
            assert!(back == model, "what was written");
        }
        file.close().unwrap();
        assert!(std::fs::read(fixture.local("mixed")).unwrap() == model);
    });
}

#[test]
fn any_memory_will_do_and_the_library_says_how_it_is_reached() {
    over_each(|fixture, transport| {
        let data = pattern(100_000, 8);
        std::fs::write(fixture.local("file"), &data).unwrap();
        let (client, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        let shared = client.allocate(100_000).unwrap();
        let heap = client.register(vec![0; 100_000].into()).unwrap();
        for buffer in [&shared, &heap] {
            let slice = buffer.slice(0, 100_000).unwrap();
            assert_eq!(file.read_into(0, slice).unwrap().length, 100_000);
            assert_eq!(buffer.memory().to_vec(0, 100_000), data);
        }
        let path = session.path_of(&shared).unwrap();
        match transport {
            Transport::Shm => {
                assert_eq!(path, RegionPath::Mapped);
                let path = session.path_of(&heap).unwrap();
                assert!(matches!(path, RegionPath::ProcessVm | RegionPath::Staged));
            }
            Transport::Tcp | Transport::Verbs => assert_eq!(path, RegionPath::Network),
        }
    });
}

#[test]
fn checksums_change_nothing_but_the_trust() {
    over_each(|fixture, transport| {
        let options = SessionOptions::default().checksums(true);
        let (_, session) = fixture.connect_with(transport, &options);
        let data = pattern(700_003, 6);
        let file = session.open("/sums", &OpenOptions::write()).unwrap();
        file.write_at(&data, 11).unwrap();
        file.write_at(&data[..100], 0).unwrap();
        let mut back = vec![0; data.len()];
        assert_eq!(file.read_at(&mut back[..500_000], 11).unwrap(), 500_000);
        assert_eq!(back[100..500_000], data[100..500_000]);
    });
}

#[test]
fn writes_with_checksums_over_each_other_wait_for_room_and_all_succeed() {
    over_each(|fixture, transport| {
        let options = SessionOptions::default().checksums(true);
        let (client, session) = fixture.connect_with(transport, &options);
        let file = session.open("/sums", &OpenOptions::write()).unwrap();
        // More in total than a server buffers before it processes requests.
        let (length, count) = (16 << 20, 6);
        let data = pattern(length, 9);
        let buffer = client.allocate(length).unwrap();
        buffer.memory().write(0, &data);
        let group = client.group();
        for _ in 0..count {
            let slice = buffer.slice(0, length).unwrap();
            session.submit_write(&file, 5, slice, Stability::Unstable, group, 0).unwrap();
        }
        assert_eq!(client.wait(group, count, None), count);
        while let Some(done) = client.next(group) {
            assert_eq!(done.result.unwrap().length as usize, length);
        }
        file.close().unwrap();
        assert!(std::fs::read(fixture.local("sums")).unwrap()[5..] == data);
    });
}

#[test]
fn streams_copy_a_file() {
    over_each(|fixture, transport| {
        let data = pattern(5_000_017, 12);
        std::fs::write(fixture.local("source"), &data).unwrap();
        let (_, session) = fixture.connect(transport);
        let source = session.open("/source", &OpenOptions::read()).unwrap();
        let target = session.open("/target", &OpenOptions::write()).unwrap();
        let mut reader = ReadStream::new(&source, 4, 65_536).unwrap();
        let mut writer = WriteStream::new(&target, 4, 65_536).unwrap();
        let mut chunk = vec![0; 10_007];
        loop {
            let count = reader.read(&mut chunk).unwrap();
            if count == 0 {
                break;
            }
            writer.write_all(&chunk[..count]).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(std::fs::read(fixture.local("target")).unwrap(), data);
    });
}

#[test]
fn futures_run_side_by_side() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(8192, 2)).unwrap();
        let (client, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        let buffer = client.allocate(8192).unwrap();
        let first = file.read_async(0, buffer.slice(0, 4096).unwrap());
        let second = file.read_async(4096, buffer.slice(4096, 4096).unwrap());
        let (second, first) =
            block_on(&client, async { (second.await.unwrap(), first.await.unwrap()) });
        assert_eq!((first.length, second.length), (4096, 4096));
        assert_eq!(buffer.memory().to_vec(0, 8192), pattern(8192, 2));
    });
}

#[test]
fn local_changes_show_at_the_next_open() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"before").unwrap();
        let (_, session) = fixture.connect(transport);
        let read = || {
            let file = session.open("/file", &OpenOptions::read()).unwrap();
            let mut bytes = vec![0; 100];
            let count = file.read_at(&mut bytes, 0).unwrap();
            bytes.truncate(count);
            bytes
        };
        assert_eq!(read(), b"before");
        std::fs::write(fixture.local("file"), b"after, and longer").unwrap();
        assert_eq!(read(), b"after, and longer");
    });
}

#[test]
fn what_a_local_process_has_appended_stays_when_its_block_is_written_in_part() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(4000, 1)).unwrap();
        let (_, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        let mut local = std::fs::File::options().append(true).open(fixture.local("file")).unwrap();
        local.write_all(&[7; 50]).unwrap();
        file.write_at(&[8; 10], 4080).unwrap();
        file.close().unwrap();
        let content = std::fs::read(fixture.local("file")).unwrap();
        assert_eq!(content.len(), 4090);
        assert!(content[..4000] == pattern(4000, 1));
        assert_eq!(content[4000..4050], [7; 50]);
        assert_eq!((&content[4050..4080], &content[4080..]), (&[0; 30][..], &[8; 10][..]));
    });
}

#[test]
fn appends_of_many_sessions_do_not_overlap() {
    over_each(|fixture, transport| {
        let (_, first) = fixture.connect(transport);
        let (_, second) = fixture.connect(transport);
        let a = first.open("/log", &OpenOptions::write()).unwrap();
        let b = second.open("/log", &OpenOptions::write()).unwrap();
        for round in 0..50u8 {
            a.append(&[round; 33]).unwrap();
            b.append(&[round | 0x80; 71]).unwrap();
        }
        let bytes = std::fs::read(fixture.local("log")).unwrap();
        assert_eq!(bytes.len(), 50 * 104);
        let mut at = 0;
        for round in 0..50u8 {
            assert!(bytes[at..at + 33].iter().all(|b| *b == round));
            assert!(bytes[at + 33..at + 104].iter().all(|b| *b == round | 0x80));
            at += 104;
        }
    });
}

#[test]
fn stable_writes_are_in_the_file_when_they_are_answered() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let file = session.open("/stable", &OpenOptions::write()).unwrap();
        let buffer = client.allocate(8192).unwrap();
        buffer.write(0, &pattern(8192, 4));
        let slice = buffer.slice(0, 8192).unwrap();
        let stability = Stability::FileSync;
        session.submit_write(&file, 0, slice, stability, Group::DEFAULT, 7).unwrap();
        assert_eq!(client.wait(Group::DEFAULT, 1, None), 1);
        let done = client.next(Group::DEFAULT).unwrap();
        assert_eq!((done.context, done.result.unwrap().length), (7, 8192));
        assert_eq!(std::fs::read(fixture.local("stable")).unwrap(), pattern(8192, 4));
    });
}

#[test]
fn a_file_larger_than_the_cache_goes_through_it() {
    for transport in transports() {
        let fixture = Fixture::with(|config| {
            config.cache.arena_bytes = 4 << 20;
            config.cache.dirty_bytes_max = 1 << 20;
        });
        let (_, session) = fixture.connect(transport);
        let data = pattern(20 << 20, 9);
        let file = session.open("/large", &OpenOptions::write()).unwrap();
        file.write_at(&data, 0).unwrap();
        let mut back = vec![0; data.len()];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), data.len());
        assert!(back == data);
        file.close().unwrap();
        assert!(std::fs::read(fixture.local("large")).unwrap() == data);
    }
}

#[test]
fn an_orderly_stop_loses_nothing_that_was_acknowledged() {
    for transport in transports() {
        let fixture = Fixture::new();
        let options = SessionOptions::default().recovery(Recovery::Off);
        let (client, session) = fixture.connect_with(transport, &options);
        let file = session.open("/kept", &OpenOptions::write()).unwrap();
        file.write_at(&pattern(500_000, 1), 0).unwrap();
        let (directory, _) = fixture.stop();
        let kept = std::fs::read(directory.path().join("export/kept")).unwrap();
        assert!(kept == pattern(500_000, 1));
        let error = file.read_at(&mut [0; 10], 0).unwrap_err();
        assert!(matches!(error, ClientError::SessionEnded { .. }), "{error}");
        drop((file, session, client));
    }
}

#[test]
fn nothing_written_changes_nothing() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let file = session.open("/none", &OpenOptions::write()).unwrap();
        let nothing = client.allocate(1).unwrap().slice(0, 0).unwrap();
        file.write_at(&[], 20_000).unwrap();
        assert_eq!(file.write_from(10_000, nothing.clone()).unwrap().length, 0);
        assert_eq!(file.read_into(10_000, nothing).unwrap().length, 0);
        assert_eq!(file.metadata().unwrap().size, 0);
    });
}

#[test]
fn ranges_beyond_every_file_are_refused() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let file = session.open("/edge", &OpenOptions::write()).unwrap();
        let buffer = client.allocate(4096).unwrap();
        for offset in [u64::MAX, u64::MAX - 4095, i64::MAX as u64] {
            let error = file.write_from(offset, buffer.slice(0, 4096).unwrap()).unwrap_err();
            assert_eq!(error.status(), Some(Status::FBig), "{offset}");
            let error = file.read_into(offset, buffer.slice(0, 4096).unwrap()).unwrap_err();
            assert_eq!(error.status(), Some(Status::FBig), "{offset}");
        }
        let far = (1 << 40) - 4096;
        assert_eq!(file.read_into(far, buffer.slice(0, 4096).unwrap()).unwrap().length, 0);
    });
}

/// Half the size of a file that is read and written in many pieces at once.
const HALF: usize = 700_001;
