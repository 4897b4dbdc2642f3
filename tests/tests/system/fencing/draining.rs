//! Tests requests in flight when a client is fenced off: they end before the change is answered,
//! and have no effect afterwards.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_client::{FenceObject, File, OpenOptions, Session, Status};
use dafs_dat::Region;
use dafs_memory::{Memory, Pages};
use dafs_server::Defect;
use dafs_types::{CacheHint, FileHandle, Stability, StateId};
use dafs_wire::messages::{
    AppendInline, Create, InlineData, NewObject, Placement, ReadDirect, WriteDirect,
};
use dafs_wire::{ByteOrder, Checksum, DirectBuffers, FileAttributeBlock, Request};

use super::{SessionOptions_, login, named, set_file};
use crate::fixture::{Fixture, HANG, Transport, await_that, far, transports};
use crate::rogue::{Rogue, status_of};

const WRITES: usize = 32;
const LENGTH: u32 = 1 << 20;
/// The number of attempts at something that usually happens.
const TRIES: usize = 30;
/// Longer than reading the file takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts a server on which writes and their transfers take a while.
fn fixture(defect: Option<Defect>, patience: Duration) -> Fixture {
    Fixture::with(|config| {
        config.sessions.credits.initial = 64;
        config.sessions.credits.session_max = 64;
        // The whole file stays in the cache, which keeps at most a sixteenth of a growing file. A
        // read of missing data waits for the writes to it.
        config.cache.arena_bytes = 16 * WRITES * LENGTH as usize;
        config.patience.fence = patience;
        config.defect = defect;
    })
}

/// A client with writes in flight to every part of a file.
struct Victim {
    rogue: Rogue,
    memory: Memory,
}

impl Victim {
    fn connect(fixture: &Fixture, transport: Transport) -> (Self, Region) {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let options = SessionOptions_ {
            requests_max: 64,
            response_cache: true,
            ..SessionOptions_::default()
        };
        rogue.credits = 64;
        rogue.request(0, 0, &login("victim", options));
        assert_eq!(rogue.status(), Some(Status::Ok));
        let memory = Memory::shared(WRITES * LENGTH as usize, Pages::Small).unwrap();
        memory.write(0, &vec![0xbb; WRITES * LENGTH as usize]);
        let region = rogue.expose(&memory);
        (Self { rogue, memory }, region)
    }

    fn write_everywhere(&mut self, (file, state): (FileHandle, StateId), region: Region) {
        for index in 0..WRITES {
            let offset = index as u64 * u64::from(LENGTH);
            let buffers = [self.rogue.buffer(&region, offset, LENGTH)];
            let write = WriteDirect {
                file,
                state,
                offset,
                length: LENGTH,
                // Every other write is also on its way to the disk.
                stability: if index % 2 == 0 { Stability::Unstable } else { Stability::DataSync },
                hint: CacheHint(0),
                checksum: Checksum::NONE,
                buffers: DirectBuffers::from(&buffers[..]),
            };
            self.rogue.request(index as u16, 100, &Request::WriteDirect(write));
        }
    }

    /// Collects replies until all have arrived or the connection has ended.
    fn outcomes(&mut self) -> Vec<(usize, Status)> {
        let mut outcomes = Vec::new();
        while outcomes.len() < WRITES {
            let Some(answer) = self.rogue.answer() else { break };
            let header = dafs_wire::ResponseHeader::decode(ByteOrder::NATIVE, &answer).unwrap();
            outcomes.push((usize::from(header.stream.0), status_of(&answer)));
        }
        outcomes
    }
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; WRITES * LENGTH as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// True if any data of the victim is visible.
fn has_begun(file: &File) -> bool {
    let mut byte = [0];
    (0..WRITES as u64).any(|index| {
        file.read_at(&mut byte, index * u64::from(LENGTH)).unwrap();
        byte == [0xbb]
    })
}

/// Opens the file for a client that stays admitted.
fn prepare(fixture: &Fixture, transport: Transport) -> (Session, File) {
    let (_, session) = fixture.connect_with(transport, &named("survivor"));
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    file.write_at(&vec![0xaa; WRITES * LENGTH as usize], 0).unwrap();
    file.commit().unwrap();
    (session, file)
}

/// Fences off a stopped client. Returns true if anything changed after the reply when the client
/// continues, and the statuses that it received.
fn stopped_member(fixture: &Fixture, transport: Transport) -> (bool, Vec<(usize, Status)>) {
    let (session, file) = prepare(fixture, transport);
    let (mut victim, region) = Victim::connect(fixture, transport);
    let open = victim.rogue.open("file");
    victim.write_everywhere(open, region);
    await_that("the first bytes of the victim's", || {
        victim.rogue.turn();
        has_begun(&file)
    });
    set_file(&session, "/file", &["survivor"]);
    let answered = content(&file);
    let outcomes = victim.outcomes();
    let mut is_changed = false;
    for _ in 0..5 {
        victim.rogue.turn();
        is_changed |= content(&file) != answered;
    }
    for (index, outcome) in &outcomes {
        let from = index * LENGTH as usize;
        if *outcome == Status::Ok {
            let written = &answered[from..from + LENGTH as usize];
            is_changed |= written.iter().any(|byte| *byte != 0xbb);
        } else {
            assert_eq!(*outcome, Status::Access, "write {index}");
        }
    }
    file.close().unwrap();
    (is_changed, outcomes)
}

#[test]
fn nothing_of_a_stopped_member_lands_after_the_answer() {
    for transport in transports() {
        let fixture = fixture(None, Duration::from_millis(50));
        let (is_changed, outcomes) = stopped_member(&fixture, transport);
        assert!(!is_changed, "over {transport:?}; {outcomes:?}");
    }
}

#[test]
fn an_answer_before_all_is_drained_would_be_noticed() {
    // Whether a write is half done when the list is set depends on timing. So does whether the file
    // must be read again meanwhile: then a read waits for the stopped client's writes until that
    // client is disconnected.
    let is_noticed = (0..TRIES).any(|_| {
        let fixture = fixture(Some(Defect::AnswerFencesEarly), PATIENCE);
        stopped_member(&fixture, far()).0
    });
    assert!(is_noticed, "the test above cannot fail");
}

#[test]
fn a_member_that_goes_on_keeps_its_connection_and_learns_what_became_of_it() {
    for transport in transports() {
        let fixture = fixture(None, HANG);
        let (_session, file) = prepare(&fixture, transport);
        let (mut victim, region) = Victim::connect(&fixture, transport);
        let open = victim.rogue.open("file");
        victim.write_everywhere(open, region);
        await_that("the first bytes of the victim's", || {
            victim.rogue.turn();
            has_begun(&file)
        });
        let is_over = AtomicBool::new(false);
        let (address, over) = (fixture.address(transport), &is_over);
        let answered = std::thread::scope(|scope| {
            let fencer = scope.spawn(move || {
                let client =
                    dafs_client::Client::new(dafs_client::ClientConfig::default()).unwrap();
                let session = client.connect_to(&address, &named("survivor")).unwrap();
                let file = session.open("/file", &OpenOptions::read()).unwrap();
                set_file(&session, "/file", &["survivor"]);
                let answered = content(&file);
                over.store(true, Ordering::Release);
                answered
            });
            while !over.load(Ordering::Acquire) && !fencer.is_finished() {
                victim.rogue.turn();
            }
            fencer.join().unwrap()
        });
        let outcomes = victim.outcomes();
        assert_eq!(outcomes.len(), WRITES, "its connection stands");
        for (index, outcome) in outcomes {
            let from = index * LENGTH as usize;
            let is_there = answered[from..from + LENGTH as usize].iter().all(|byte| *byte == 0xbb);
            match outcome {
                Status::Ok => assert!(is_there, "write {index} was answered for"),
                other => assert_eq!(other, Status::Access, "write {index}"),
            }
        }
        assert_eq!(content(&file), answered);
        let ask = Request::GetAttrInline(dafs_wire::messages::GetAttributes {
            file: open.0,
            wanted: dafs_wire::AttributeBitmap(1),
        });
        assert_eq!(victim.rogue.outcome(&ask), Some(Status::Access));
    }
}

#[test]
fn a_stopped_reader_sees_nothing_that_is_written_after_the_answer() {
    let fixture = fixture(None, Duration::from_millis(50));
    let (session, file) = prepare(&fixture, far());
    let (mut victim, region) = Victim::connect(&fixture, far());
    let (handle, state) = victim.rogue.open("file");
    for index in 0..WRITES {
        let offset = index as u64 * u64::from(LENGTH);
        let buffers = [victim.rogue.buffer(&region, offset, LENGTH)];
        let read = ReadDirect {
            file: handle,
            state,
            offset,
            length: LENGTH,
            hint: CacheHint(0),
            buffers: DirectBuffers::from(&buffers[..]),
        };
        victim.rogue.request(index as u16, 100, &Request::ReadDirect(read));
    }
    await_that("the first bytes at the victim's", || {
        victim.rogue.turn();
        victim.memory.to_vec(0, 1) == [0xaa]
    });
    set_file(&session, "/file", &["survivor"]);
    file.write_at(&vec![0xcc; WRITES * LENGTH as usize], 0).unwrap();
    let outcomes = victim.outcomes();
    assert!(outcomes.iter().all(|(_, status)| matches!(status, Status::Ok | Status::Access)));
    let seen = victim.memory.to_vec(0, WRITES * LENGTH as usize);
    assert!(!seen.contains(&0xcc), "{outcomes:?}");
}

/// Tests a client whose requests are being journaled.
fn journaled_member(transport: Transport) {
    let fixture = Fixture::with_journal();
    let (_, session) = fixture.connect_with(transport, &named("survivor"));
    session.create_dir("/names", 0o755).unwrap();
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    file.write_at(b"start", 0).unwrap();
    let (mut victim, _) = Victim::connect(&fixture, transport);
    let names = victim.rogue.lookup("names");
    let (handle, state) = victim.rogue.open("file");
    let mut room = [0; 64];
    let none = dafs_types::SetAttributes::default();
    let attributes = FileAttributeBlock::encode_set(ByteOrder::NATIVE, &none, &mut room).unwrap();
    let texts: Vec<String> = (0..8).map(|index| format!("made-{index}")).collect();
    for (index, name) in texts.iter().enumerate() {
        let object = NewObject::Directory;
        let create = Create { directory: names, name, object, attributes };
        victim.rogue.request(index as u16, 100, &Request::Create(create));
        let append = AppendInline {
            file: handle,
            state,
            stability: Stability::DataSync,
            hint: CacheHint(0),
            placement: Placement::Packed,
            data: InlineData::Here(b"appended"),
        };
        victim.rogue.request(8 + index as u16, 100, &Request::AppendInline(append));
    }
    set_file(&session, "/names", &["survivor"]);
    set_file(&session, "/file", &["survivor"]);
    let listed = |session: &Session| {
        let entries = session.read_dir("/names").unwrap();
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    };
    let size = |session: &Session| session.metadata("/file").unwrap().size;
    let answered = (listed(&session), size(&session));
    let (mut made, mut appended) = (Vec::new(), 0);
    for _ in 0..2 * texts.len() {
        let answer = victim.rogue.answer().unwrap();
        let header = dafs_wire::ResponseHeader::decode(ByteOrder::NATIVE, &answer).unwrap();
        let stream = usize::from(header.stream.0);
        match (header.status, texts.get(stream)) {
            (Status::Ok, Some(name)) => made.push(OsString::from(name)),
            (Status::Ok, None) => appended += 8,
            (status, _) => assert_eq!(status, Status::Access),
        }
    }
    made.sort();
    assert_eq!(answered, (made, 5 + appended), "what was answered for is what is there");
    assert_eq!((listed(&session), size(&session)), answered);
    // A server that is killed now and restarted finds nothing to undo.
    drop((file, session));
    let fixture = fixture.journaled();
    let (_, session) = fixture.connect_with(transport, &named("survivor"));
    assert_eq!((listed(&session), size(&session)), answered);
    assert_eq!(session.fencing_list("/names", FenceObject::File).unwrap(), ["survivor"]);
}

#[test]
fn requests_in_the_journal_come_to_their_end_before_the_answer() {
    for transport in transports() {
        journaled_member(transport);
    }
}
