//! Tests sessions with several channels: which servers use them, what goes over which channel, and
//! what happens when one or all of them break.

use std::time::Duration;

use dafs_client::{
    Buffer, Chained, Client, ClientConfig, FenceAccess, FenceObject, FenceUpdate, File, Group,
    LockKind, LockOptions, OpenOptions, Outcome, Recovery, RecoveryOptions, Session,
    SessionOptions, SetAttributes, ShareAccess, Stability, Status,
};
use dafs_types::FileHandle;
use dafs_types::placement::{ChannelCount, ChannelIndex};
use dafs_wire::messages::{ChannelsResult, OpenResult, ReadDirectResult};
use dafs_wire::{Checksum, Request, Response};

use crate::fencing::status;
use crate::fixture::{Fixture, Transport, any, await_that, far, pattern, transports};
use crate::reconnect::child::ServerProcess;
use crate::reconnect::proxy::Proxy;
use crate::reconnect::script::{Act, Script, opened};
use crate::reconnect::scripted::{self, closed, discarded};

const NONE: LockOptions = LockOptions::from_bits(0).unwrap();

fn with_channels(channels: u16) -> SessionOptions {
    SessionOptions::default().channels(channels)
}

/// Starts a server that uses four channels per client.
fn wide() -> Fixture {
    Fixture::with(|config| config.sessions.client_channels = 4)
}

/// Opens enough files that each channel has some of them.
fn open_files(session: &Session) -> Vec<File> {
    let open = |number| session.open(format!("/file-{number}"), &OpenOptions::write()).unwrap();
    (0..FILES).map(open).collect()
}

/// Submits writes to all files without waiting.
fn write_all(session: &Session, files: &[File], group: Group, seed: u64) {
    submit_all(session, files, group, (seed, BLOCK, Stability::Unstable));
}

/// Does the same with this length and stability.
fn submit_all(
    session: &Session,
    files: &[File],
    group: Group,
    (seed, length, stability): (u64, usize, Stability),
) {
    for (number, file) in files.iter().enumerate() {
        let buffer = session.client().allocate(length).unwrap();
        buffer.write(0, &pattern(length, seed + number as u64));
        let slice = buffer.slice(0, length).unwrap();
        session.submit_write(file, 0, slice, stability, group, 0).unwrap();
    }
}

/// Reads a byte of a file with a chain.
fn look<'s>(session: &'s Session, number: usize, into: &Buffer) -> Chained<'s> {
    let slice = into.slice(number, 1).unwrap();
    let chain = session.chain().open(format!("/file-{number}"), &OpenOptions::read());
    chain.read_into(7, slice).close().run_async()
}

/// Waits for the completions of a group and counts them.
fn wait_for_all(client: &Client, group: Group, count: usize) {
    for _ in 0..count {
        client.wait(group, 1, None);
        client.next(group).unwrap().result.unwrap();
    }
}

fn check_all(files: &[File], seed: u64) {
    for (number, file) in files.iter().enumerate() {
        assert!(has_bytes(BLOCK, file, seed + number as u64), "file {number} has other bytes");
    }
}

fn has_bytes(length: usize, file: &File, seed: u64) -> bool {
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, 0).unwrap();
    bytes == pattern(length, seed)
}

#[test]
fn transfers_are_spread_over_as_many_channels_as_the_server_has_use_for() {
    for transport in transports().into_iter().filter(|one| *one != Transport::Verbs) {
        let fixture = wide();
        let (client, session) = fixture.connect_with(transport, &with_channels(8));
        assert_eq!(session.channel_count(), 4);
        let files = open_files(&session);
        let group = client.group();
        write_all(&session, &files, group, 1);
        wait_for_all(&client, group, FILES);
        check_all(&files, 1);
        let buffer = client.allocate(FILES).unwrap();
        let chains: Vec<_> = (0..FILES).map(|number| look(&session, number, &buffer)).collect();
        // All chains are in flight: none waits for the first.
        for chain in chains {
            dafs_client::block_on(&client, chain).unwrap();
        }
        let mut bytes = vec![0; FILES];
        buffer.read(0, &mut bytes);
        let right = (0..FILES).all(|number| bytes[number] == pattern(BLOCK, 1 + number as u64)[7]);
        assert!(right, "{bytes:?}");
        let shown = fixture.look();
        assert_eq!(shown.sessions.len(), 4, "each channel is a session");
        let first = &shown.sessions[0].view;
        for one in &shown.sessions {
            assert_eq!((one.view.client, one.view.opens), (first.client, FILES as u32));
            let traffic = one.traffic;
            assert!(traffic.written_bytes > 0 && traffic.read_bytes > 0, "{traffic:?}");
            assert!(traffic.read_bytes % BLOCK as u64 > 0, "chains have read bytes: {traffic:?}");
        }
        drop(files);
        session.disconnect().unwrap();
        await_that("all channels have left", || fixture.look().sessions.is_empty());
    }
}

#[test]
fn a_session_that_is_dropped_leaves_with_all_its_channels() {
    let fixture = wide();
    let (_client, session) = fixture.connect_with(any(), &with_channels(4));
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    file.try_lock(LockKind::Exclusive, 0, 1, NONE).unwrap();
    let (_, other) = fixture.connect(any());
    let same = other.open("/file", &OpenOptions::write()).unwrap();
    assert_eq!(status(same.write_at(b"x", 0)), Some(Status::Locked));
    // The file is not closed and the lock not released: they end with the client.
    std::mem::forget(file);
    // The last handle on the session is in that file.
    let left = session.clone();
    drop(session);
    left.disconnect().unwrap();
    same.write_at(b"x", 0).unwrap();
}

#[test]
fn more_channels_than_the_server_has_use_for_are_not_made() {
    let fixture = Fixture::with(|config| config.reactors = 1);
    let (_, one) = fixture.connect_with(any(), &with_channels(8));
    assert_eq!(one.channel_count(), 1);
    let fixture = wide();
    let (_, two) = fixture.connect_with(any(), &with_channels(2));
    assert_eq!(two.channel_count(), 2);
    let options = with_channels(8).recovery(Recovery::Off).response_cache(true);
    let (_, without) = fixture.connect_with(any(), &options);
    assert_eq!(without.channel_count(), 1, "it could not come back");
    assert_eq!(fixture.look().sessions.len(), 3);
}

#[test]
fn a_server_that_does_not_know_the_question_has_one_channel() {
    let play = |_, request: &Request<'_>| match request {
        Request::Channels(_) => Act::refuse(Status::NotSupp),
        Request::Open(_) => opened(7, 1),
        Request::Close(_) => closed(),
        other => panic!("{other:?}"),
    };
    for (channels, asked) in [(1, &[][..]), (4, &["1: CHANNELS"][..])] {
        let script = Script::start(|_| 1, play);
        let client = Client::new(ClientConfig::default()).unwrap();
        let session = client.connect_to(&script.address, &with_channels(channels)).unwrap();
        assert_eq!(session.channel_count(), 1);
        assert_eq!(script.asked(), asked);
        session.open("/file", &OpenOptions::read()).unwrap().close().unwrap();
    }
}

#[test]
fn a_server_that_takes_a_channel_for_another_client_is_not_used_by_it() {
    let script = Script::start(
        // As two servers behind one name would do.
        |connection| connection,
        |_, request| match request {
            Request::Channels(_) => {
                Act::Say(Status::Ok, Response::Channels(ChannelsResult { count: 2 }))
            }
            other => panic!("{other:?}"),
        },
    );
    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect_to(&script.address, &with_channels(2)).unwrap();
    assert_eq!(session.channel_count(), 1);
    assert_eq!(script.asked(), ["1: CHANNELS", "2: DISCONNECT"]);
}

#[test]
fn a_channel_goes_on_when_the_first_one_has_heard_of_the_restart() {
    // The cookie of the second channel.
    let mut bytes = [0; 64];
    bytes[63] = 7;
    let of_second =
        |file: &FileHandle| ChannelCount::new(2).unwrap().home_of(file) == ChannelIndex(1);
    let file = (0..=255).find_map(|number| {
        bytes[20] = number;
        Some(FileHandle(bytes)).filter(of_second)
    });
    let file = file.unwrap();
    let script = Script::start(
        // The server restarts before the second channel reconnects.
        |connection| if connection < 3 { 1 } else { 2 },
        move |connection, request| match (connection, request) {
            (_, Request::Channels(_)) => {
                Act::Say(Status::Ok, Response::Channels(ChannelsResult { count: 2 }))
            }
            (_, Request::Open(_)) => {
                let Act::Say(status, Response::Open(result)) = opened(7, connection) else {
                    unreachable!("it opens")
                };
                Act::Say(status, Response::Open(OpenResult { file, ..result }))
            }
            // A leftover of the former incarnation.
            (1, Request::Null(_)) | (2, Request::ReadDirect(_)) => Act::Break,
            (_, Request::ReadDirect(_)) => {
                let (length, end_of_file, checksum) = (0, true, Checksum::NONE);
                let result = ReadDirectResult { length, end_of_file, checksum };
                Act::Say(Status::Ok, Response::ReadDirect(result))
            }
            (_, Request::CheckResponse(_)) => Act::refuse(Status::UnknownSession),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, Request::Close(_)) => closed(),
            (_, Request::LockT(_)) => Act::refuse(Status::NotSupp),
            (_, other) => panic!("{other:?}"),
        },
    );
    let client = Client::new(ClientConfig::default()).unwrap();
    let options = scripted::options(Duration::from_secs(60)).channels(2);
    let session = client.connect_to(&script.address, &options).unwrap();
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 0);
    file.close().unwrap();
    let asked = script.asked();
    // Before the third connection was usable, the first one was used, and another took its place.
    // Only then the READ was repeated, with the current state id of the open.
    let before = ["1: CHANNELS", "1: OPEN file Read", "2: READ 1", "3: CHECK of 2", "1: NULL"];
    assert_eq!(asked[..before.len()], before);
    let place = |what: &str| asked.iter().position(|one| one.contains(what)).expect(what);
    let reads: Vec<_> = asked.iter().filter(|one| one.contains("READ")).collect();
    let first = asked[place("OPEN again 7")].split(':').next().unwrap().to_owned();
    assert!(reads.len() == 2 && reads[1].ends_with(&format!("READ {first}")), "{asked:?}");
    assert!(place(reads[1]) > place("OPEN again 7"), "{asked:?}");
}

#[test]
fn what_gives_a_file_up_waits_for_its_transfers() {
    let fixture = wide();
    let (client, session) = fixture.connect_with(any(), &with_channels(4));
    for seed in 0..20 {
        let files = open_files(&session);
        let group = client.group();
        write_all(&session, &files, group, seed);
        let size = SetAttributes { size: Some(1), ..SetAttributes::default() };
        let cuts: Vec<_> =
            files.iter().map(|file| Box::pin(file.set_attributes_async(&size))).collect();
        for cut in cuts {
            dafs_client::block_on(&client, cut).unwrap();
        }
        for number in 0..FILES {
            let name = format!("file-{number}");
            assert_eq!(std::fs::metadata(fixture.local(&name)).unwrap().len(), 1, "{name}");
        }
        write_all(&session, &files, group, seed);
        drop(files);
        wait_for_all(&client, group, 2 * FILES);
    }
}

#[test]
fn what_a_chain_leaves_open_is_closed_over_the_first_channel() {
    let fixture = wide();
    let (client, session) = fixture.connect_with(any(), &with_channels(4));
    drop(open_files(&session));
    let buffer = client.allocate(FILES).unwrap();
    // Reads through opens for writing are refused.
    let options = OpenOptions::read().access(ShareAccess::Write);
    let chains: Vec<_> = (0..FILES)
        .map(|number| {
            let chain = session.chain().open(format!("/file-{number}"), &options);
            chain.read_into(0, buffer.slice(number, 1).unwrap()).close().run_async()
        })
        .collect();
    let mut left = Vec::new();
    for chain in chains {
        let failure = dafs_client::block_on(&client, chain).unwrap_err();
        assert_eq!((failure.member, failure.name), (1, "READ_DIRECT"));
        let Outcome::Opened { file, state, .. } = failure.done[0] else { panic!("{failure:?}") };
        left.push(session.opened(file, state, "file"));
    }
    let opens = || fixture.look().sessions[0].view.opens;
    assert_eq!(opens(), FILES as u32);
    left.into_iter().for_each(|file| file.close().unwrap());
    assert_eq!(opens(), 0);
}

#[test]
fn nothing_is_kept_of_a_file_that_another_channel_is_changing() {
    let fixture = wide();
    let proxy = Proxy::before(&fixture.address(Transport::Tcp));
    let client = Client::new(ClientConfig::default()).unwrap();
    let options = with_channels(2).delegations(true);
    let session = client.connect_to(&proxy.address, &options).unwrap();
    let buffer = client.allocate(BLOCK).unwrap();
    let group = client.group();
    let files: Vec<File> = (0..FILES)
        .map(|number| {
            let name = format!("file-{number}");
            std::fs::write(fixture.local(&name), b"old").unwrap();
            let options = OpenOptions::write().create(false);
            let file = session.open(&name, &options).unwrap();
            // Proves that no other client changes it.
            assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 3);
            file
        })
        .collect();
    assert_eq!(files[0].metadata().unwrap().size, 3);
    let kept = session.delegated_reads();
    assert_eq!(files[0].metadata().unwrap().size, 3);
    assert_eq!(session.delegated_reads(), kept + 1, "attributes are kept");
    // The writes of half of the files are blocked.
    proxy.part_one(1);
    for file in &files {
        let slice = buffer.slice(0, BLOCK).unwrap();
        session.submit_write(file, 0, slice, Stability::Unstable, group, 0).unwrap();
    }
    let old = files.iter().filter(|file| file.metadata().unwrap().size == 3).count();
    assert!(old > 0, "no file waits for its channel");
    proxy.cut_one(1);
    wait_for_all(&client, group, FILES);
    for file in &files {
        assert_eq!(file.metadata().unwrap().size, BLOCK as u64);
    }
}

#[test]
fn one_channel_that_breaks_is_a_pause_for_its_files_alone() {
    let fixture = wide();
    let proxy = Proxy::before(&fixture.address(Transport::Tcp));
    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect_to(&proxy.address, &with_channels(4)).unwrap();
    session.on_event(|event| panic!("the first channel is well: {event:?}"));
    let files = open_files(&session);
    let group = client.group();
    for round in 0..8 {
        write_all(&session, &files, group, round);
        // Links of reconnected channels are after those.
        proxy.cut_one(1 + round as usize % 3);
        wait_for_all(&client, group, FILES);
        check_all(&files, round);
        if round == 2 {
            break;
        }
    }
    assert_eq!(session.channel_count(), 4);
    await_that("all channels are back", || {
        client.process_pending_events();
        fixture.look().sessions.len() == 4
    });
}

#[test]
fn a_channel_that_cannot_come_back_leaves_its_transfers_to_the_first() {
    let fixture = wide();
    let proxy = Proxy::before(&fixture.address(Transport::Tcp));
    let client = Client::new(ClientConfig::default()).unwrap();
    let recovery = Recovery::On(
        RecoveryOptions::default()
            .give_up_after(Duration::from_millis(300))
            .pause_min(Duration::from_millis(1))
            .pause_max(Duration::from_millis(20)),
    );
    let options = with_channels(2).recovery(recovery);
    let session = client.connect_to(&proxy.address, &options).unwrap();
    let files = open_files(&session);
    let group = client.group();
    write_all(&session, &files, group, 1);
    wait_for_all(&client, group, FILES);
    // From now on, executed requests are not answered. The data is in the requests.
    proxy.close(true);
    proxy.part_answers_of(1);
    let read = client.allocate(FILES).unwrap();
    submit_all(&session, &files, group, (2, SMALL, Stability::Unstable));
    let chains: Vec<_> = (0..FILES).map(|number| look(&session, number, &read)).collect();
    let (other_client, other) = fixture.connect(any());
    let others = open_files(&other);
    for (number, file) in others.iter().enumerate() {
        await_that("each file is written", || {
            client.process_pending_events();
            has_bytes(SMALL, file, 2 + number as u64)
        });
    }
    // Later writes overwrite that data.
    let others_group = other_client.group();
    write_all(&other, &others, others_group, 3);
    wait_for_all(&other_client, others_group, FILES);
    proxy.cut_one(1);
    wait_for_all(&client, group, FILES);
    for chain in chains {
        let done = dafs_client::block_on(&client, chain).unwrap();
        assert_eq!(done[1].transferred().unwrap().length, 1);
    }
    assert_eq!(session.channel_count(), 1);
    check_all(&others, 3);
    check_all(&files, 3);
    // The session continues with one channel.
    write_all(&session, &files, group, 4);
    wait_for_all(&client, group, FILES);
    check_all(&files, 4);
    files.into_iter().for_each(|file| file.close().unwrap());
    session.disconnect().unwrap();
}

#[test]
fn locks_are_held_through_a_kill_and_all_channels_write_under_them() {
    for transport in [any(), far()] {
        if transport == Transport::Verbs {
            continue;
        }
        let mut server = ServerProcess::start();
        let address = server.address(transport);
        let client = Client::new(ClientConfig::default()).unwrap();
        let session = client.connect_to(&address, &with_channels(4)).unwrap();
        assert_eq!(session.channel_count(), 4);
        let files = open_files(&session);
        for file in &files {
            file.try_lock(LockKind::Exclusive, 0, u64::MAX, NONE).unwrap();
        }
        let group = client.group();
        submit_all(&session, &files, group, (1, BLOCK, Stability::DataSync));
        server.kill();
        server.revive();
        wait_for_all(&client, group, FILES);
        check_all(&files, 1);
        let other_client = Client::new(ClientConfig::default()).unwrap();
        let other = other_client.connect_to(&address, &SessionOptions::default()).unwrap();
        for (number, file) in files.iter().enumerate() {
            let same = other.open(format!("/file-{number}"), &OpenOptions::write()).unwrap();
            assert_eq!(status(same.write_at(b"x", 0)), Some(Status::Locked));
            file.unlock(0, u64::MAX).unwrap();
            same.write_at(b"x", 0).unwrap();
        }
        assert_eq!(session.channel_count(), 4);
    }
}

#[test]
fn a_fence_keeps_every_channel_out() {
    let fixture = wide();
    let (_, owner) = fixture.connect(any());
    let fenced = with_channels(4).fence_id("a".into());
    let (client, session) = fixture.connect_with(any(), &fenced);
    let files = open_files(&session);
    let group = client.group();
    write_all(&session, &files, group, 1);
    wait_for_all(&client, group, FILES);
    let set = |ids: &[&str]| {
        for number in 0..FILES {
            let path = format!("/file-{number}");
            let (access, update) = (FenceAccess::Allow, FenceUpdate::Overwrite);
            owner.set_fence(path, FenceObject::File, access, update, ids).unwrap();
        }
    };
    set(&["b"]);
    write_all(&session, &files, group, 2);
    for _ in 0..FILES {
        client.wait(group, 1, None);
        assert_eq!(status(client.next(group).unwrap().result), Some(Status::Access));
    }
    set(&["a"]);
    check_all(&files, 1);
    write_all(&session, &files, group, 3);
    wait_for_all(&client, group, FILES);
}

const FILES: usize = 24;
const BLOCK: usize = 64 << 10;
/// Fits a request.
const SMALL: usize = 1 << 10;
