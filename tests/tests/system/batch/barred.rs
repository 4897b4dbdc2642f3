//! Tests batches against fences, locks and share reservations: each transfer is checked separately
//! when it begins.

use std::time::Duration;

use dafs_client::{OpenOptions, SessionOptions, ShareAccess, ShareDeny};
use dafs_types::{CacheHint, RequestId, StateId, Status};
use dafs_wire::messages::{
    BatchRequest, FileChunk, Lock, LockOptions, LockType, SessionOptions as WireOptions, Unlock,
};
use dafs_wire::{Array, Checksum, DirectBuffers, Request};

use super::messages::{
    Asked, Batcher, HELD, One, PLACE, READ, SYNCHRONOUS, WRITE, completions_of, patient,
    synchronous,
};
use crate::fencing::{named, set_file};
use crate::fixture::{Fixture, over_each, pattern, transports};

/// Returns a request for a lock of a thousand bytes.
fn lock_of(holder: &Batcher, lock_type: LockType, offset: u64) -> Lock {
    let (file, state, options) = (holder.file, holder.state, LockOptions::from_bits(0).unwrap());
    Lock { file, lock_type, options, state, offset, length: 1000 }
}

#[test]
fn a_lock_stands_against_the_requests_it_meets_and_no_others() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(50_000, 1)).unwrap();
        let mut holder = Batcher::connect(fixture, transport, b"holder");
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        let lock = lock_of(&holder, LockType::Write, 1000);
        assert_eq!(holder.rogue.outcome(&Request::Lock(lock)), Some(Status::Ok));
        let requests = [
            One(1, READ, 0, 1000),
            One(2, READ, 500, 501),
            One(3, WRITE, 1999, 10),
            One(4, WRITE, 2000, 10),
        ];
        let statuses = |batcher: &mut Batcher| {
            batcher.run(&requests).iter().map(|done| done.status).collect::<Vec<_>>()
        };
        let (ok, locked) = (Status::Ok, Status::Locked);
        assert_eq!(statuses(&mut batcher), [ok, locked, locked, ok]);
        assert_eq!(statuses(&mut holder), [ok; 4], "its own");
        let Lock { file, state, offset, length, .. } = lock;
        let unlock = Unlock { file, lock_type: LockType::Write, state, offset, length };
        assert_eq!(holder.rogue.outcome(&Request::LockU(unlock)), Some(Status::Ok));
        assert_eq!(statuses(&mut batcher), [ok; 4]);
    });
}

#[test]
fn a_lock_that_is_granted_while_a_batch_is_held_stands_against_it() {
    for transport in transports() {
        let fixture = patient(|_| {});
        let mut batcher = Batcher::connect(&fixture, transport, b"batcher");
        batcher.listen(&fixture, transport);
        let requests = [One(1, WRITE, 0, 100), One(2, WRITE, 5000, 100)];
        assert_eq!(batcher.submit(&requests, HELD), Status::Ok);
        let mut holder = Batcher::connect(&fixture, transport, b"holder");
        let lock = lock_of(&holder, LockType::Read, 0);
        assert_eq!(holder.rogue.outcome(&Request::Lock(lock)), Some(Status::Ok));
        assert_eq!(batcher.hurry(1), Status::Ok);
        assert_eq!(batcher.told(), [(1, Status::Locked)]);
        assert_eq!(batcher.hurry(2), Status::Ok);
        assert_eq!(batcher.told(), [(2, Status::Ok)]);
    }
}

#[test]
fn a_lock_is_granted_when_what_began_before_it_is_over() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(50_000, 5)).unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        batcher.memory.write(PLACE, &[0xcc; PLACE]);
        // Over TCP the server must wait for bytes that are not sent yet.
        batcher.send(1, &[One(1, WRITE, 0, PLACE as u32)], SYNCHRONOUS);
        let mut holder = Batcher::connect(fixture, transport, b"holder");
        let lock = lock_of(&holder, LockType::Read, 0);
        holder.rogue.request(1, 700, &Request::Lock(lock));
        let answer = batcher.rogue.answer().unwrap();
        assert_eq!(completions_of(&answer)[0].status, Status::Ok);
        assert_eq!(holder.rogue.status(), Some(Status::Ok));
        assert_eq!(holder.run(&[One(1, READ, 0, PLACE as u32)])[0].status, Status::Ok);
        assert_eq!(holder.bytes(1, PLACE), [0xcc; PLACE]);
    });
}

#[test]
fn what_others_deny_is_denied_to_batches_without_an_open() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(5000, 2)).unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        let close = dafs_wire::messages::Close { file: batcher.file, state: batcher.state };
        assert_eq!(batcher.rogue.outcome(&Request::Close(close)), Some(Status::Ok));
        let (_client, session) = fixture.connect(transport);
        let denying = OpenOptions::read().access(ShareAccess::Read).deny(ShareDeny::Write);
        let held = session.open("/file", &denying).unwrap();
        let buffers = [batcher.buffer(1, 10)];
        let chunks = [FileChunk { offset: 0, length: 10, hint: CacheHint(0) }];
        let wire = [READ, WRITE].map(|direction| BatchRequest {
            file: batcher.file,
            request: RequestId(direction as u64),
            state: StateId::ANONYMOUS,
            direction,
            chunks: Array::from(&chunks[..]),
            buffers: DirectBuffers::from(&buffers[..]),
            checksum: Checksum::NONE,
        });
        let batch = synchronous(&wire);
        let mut statuses = || {
            let done = completions_of(&batcher.rogue.ask(&batch).unwrap());
            done.iter().map(|done| done.status).collect::<Vec<_>>()
        };
        assert_eq!(statuses(), [Status::Ok, Status::Locked]);
        held.close().unwrap();
        assert_eq!(statuses(), [Status::Ok, Status::Ok]);
    });
}

#[test]
fn a_fence_that_falls_while_a_batch_is_held_bars_it() {
    for transport in transports() {
        let fixture = patient(|_| {});
        let before = std::fs::read(fixture.local("file")).unwrap();
        // With or without the kernel's authentication, the owner of a file may fence it.
        let (_client, owner) = fixture.connect_with(transport, &named("owner"));
        let mut batcher = Batcher::connect(&fixture, transport, b"batcher");
        batcher.listen(&fixture, transport);
        let requests = [One(1, READ, 0, 100), One(2, WRITE, 0, 100), One(3, READ, 9000, 100)];
        assert_eq!(batcher.submit(&requests, Asked { count: 3, ..HELD }), Status::Ok);
        assert_eq!(batcher.hurry(3), Status::Ok);
        assert_eq!(batcher.told(), [(3, Status::Ok)]);
        set_file(&owner, "/file", &["owner"]);
        assert_eq!(batcher.hurry(1), Status::Ok);
        assert_eq!(batcher.told(), [(1, Status::Access)]);
        assert_eq!(batcher.hurry(2), Status::Ok);
        assert_eq!(batcher.told(), [(2, Status::Access)]);
        let done = batcher.run(&requests);
        assert!(done.iter().all(|done| done.status == Status::Access));
        set_file(&owner, "/file", &[]);
        assert_eq!(batcher.run(&requests[..1])[0].status, Status::Ok);
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), before);
    }
}

#[test]
fn a_fence_is_up_when_no_transfer_of_a_batch_can_have_an_effect_any_more() {
    for transport in transports() {
        let fixture = Fixture::with(|config| config.patience.fence = Duration::from_millis(50));
        std::fs::write(fixture.local("file"), pattern(200_000, 3)).unwrap();
        let (client, owner) = fixture.connect_with(transport, &named("owner"));
        let options = WireOptions { requests_max: 8, ..WireOptions::default() };
        let mut victim = Batcher::connect_with(&fixture, transport, b"victim", options);
        victim.memory.write(0, &vec![0xbb; 40 * PLACE]);
        // Over TCP the server waits for bytes that are not sent before the fence is in force.
        let writes: Vec<_> =
            (0..25).map(|name| One(name, WRITE, name * 4096, PLACE as u32)).collect();
        victim.send(0, &writes, SYNCHRONOUS);
        victim.rogue.interface.flush();
        set_file(&owner, "/file", &["owner"]);
        let file = owner.open("/file", &OpenOptions::read()).unwrap();
        let buffer = client.allocate(200_000).unwrap();
        let look = || {
            let read = file.read_into(0, buffer.slice(0, 200_000).unwrap()).unwrap();
            let mut bytes = vec![0; read.length as usize];
            buffer.read(0, &mut bytes);
            bytes
        };
        let fenced = look();
        // Now the client would send them. A reply, if any, is from before the fence.
        let _ = victim.rogue.answer();
        owner.ping().unwrap();
        assert!(look() == fenced, "something came behind the fence");
    }
}

#[test]
fn a_barred_request_leaves_the_others_of_its_batch_alone() {
    for transport in transports() {
        let fixture = patient(|limits| limits.early_start_below = 1);
        std::fs::write(fixture.local("other"), pattern(5000, 4)).unwrap();
        let (_client, owner) = fixture.connect_with(transport, &named("owner"));
        let (client, session) = fixture.connect_with(transport, &SessionOptions::default());
        let (file, other) = (
            session.open("/file", &OpenOptions::read()).unwrap(),
            session.open("/other", &OpenOptions::read()).unwrap(),
        );
        set_file(&owner, "/file", &["owner"]);
        let buffer = client.allocate(2000).unwrap();
        let slice = |at| buffer.slice(at, 1000).unwrap();
        for submitted in [false, true] {
            let batch = session.batch().read(&file, 0, slice(0)).read(&other, 0, slice(1000));
            let done =
                if submitted { batch.submit().unwrap().wait() } else { batch.run().unwrap() };
            assert_eq!(done[0].clone().unwrap_err().status(), Some(Status::Access));
            assert_eq!(done[1], Ok(1000));
        }
        set_file(&owner, "/file", &[]);
    }
}
