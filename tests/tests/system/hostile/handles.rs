//! Tests handles and state ids that are forged, stale, or belong to another client.

use dafs_types::{CacheHint, FileHandle, ShareAccess, Stability, StateId, Status};
use dafs_wire::messages::{
    Close, GetAttributes, InlineData, Lookup, OneHandle, Placement, ReadInline, WriteInline,
};
use dafs_wire::{AttributeBitmap, Path, Request};

use crate::bystander::beside_bystanders;
use crate::fixture::Fixture;
use crate::rogue::{Rogue, opening};

/// Returns the statuses of all requests that use a handle.
fn outcomes(rogue: &mut Rogue, file: FileHandle) -> Vec<Status> {
    let names = ["x"];
    let path = Path::new(&names);
    let hint = CacheHint::default();
    let data = InlineData::Here(b"forged");
    let (state, stability) = (StateId::ANONYMOUS, Stability::FileSync);
    let requests = [
        Request::GetAttrInline(GetAttributes { file, wanted: AttributeBitmap::of(5) }),
        Request::Lookup(Lookup { directory: file, path }),
        Request::LookupP(OneHandle { file }),
        Request::Open(opening(file, path)),
        Request::ReadInline(ReadInline { file, state, offset: 0, length: 10, hint }),
        Request::WriteInline(WriteInline {
            file,
            state,
            offset: 0,
            stability,
            hint,
            placement: Placement::Packed,
            data,
        }),
    ];
    requests.iter().map(|request| rogue.outcome(request).expect("an answer")).collect()
}

#[test]
fn forged_handles_are_bad_handles() {
    beside_bystanders(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"as it was").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let good = rogue.lookup("file");
        let mut forged = vec![FileHandle::NULL, FileHandle([0xff; 64]), FileHandle([0x41; 64])];
        // Changes every single byte.
        forged.extend((0..64).map(|at| {
            let mut handle = good;
            handle.0[at] ^= 1 << (at % 8);
            handle
        }));
        for handle in forged {
            for status in outcomes(&mut rogue, handle) {
                assert_eq!(status, Status::BadHandle, "{handle:?}");
            }
        }
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"as it was");
    });
}

#[test]
fn a_handle_of_another_server_is_a_bad_handle() {
    beside_bystanders(|fixture, transport| {
        let elsewhere = Fixture::new();
        for place in [fixture, &elsewhere] {
            std::fs::write(place.local("file"), b"as it was").unwrap();
        }
        let foreign = Rogue::logged_in(&elsewhere.address(transport)).lookup("file");
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        for status in outcomes(&mut rogue, foreign) {
            assert_eq!(status, Status::BadHandle);
        }
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"as it was");
    });
}

#[test]
fn a_handle_whose_file_is_gone_is_stale() {
    beside_bystanders(|fixture, transport| {
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        for round in 0..20 {
            std::fs::write(fixture.local("file"), b"old").unwrap();
            let handle = rogue.lookup("file");
            std::fs::remove_file(fixture.local("file")).unwrap();
            if round % 2 == 1 {
                // Probably with the same inode number.
                std::fs::write(fixture.local("file"), b"new").unwrap();
            }
            for status in outcomes(&mut rogue, handle) {
                assert_eq!(status, Status::Stale);
            }
        }
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"new");
    });
}

#[test]
fn state_ids_of_others_open_nothing() {
    beside_bystanders(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"as it was").unwrap();
        let (_, honest) = fixture.connect(transport);
        let options = dafs_client::OpenOptions::write().deny(dafs_client::ShareDeny::Both);
        let held = honest.open("/file", &options).unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let file = rogue.lookup("file");
        let mut guesses = vec![u64::MAX, 1, 1 << 40, 0x0123_4567_89ab_cdef];
        guesses.extend((0..64).map(|bit| 1u64 << bit));
        for state in guesses.into_iter().map(StateId) {
            let hint = CacheHint::default();
            let read = ReadInline { file, state, offset: 0, length: 9, hint };
            let write = WriteInline {
                file,
                state,
                offset: 0,
                stability: Stability::FileSync,
                hint,
                placement: Placement::Packed,
                data: InlineData::Here(b"overwrite"),
            };
            let close = Close { file, state };
            for request in
                [Request::ReadInline(read), Request::WriteInline(write), Request::Close(close)]
            {
                let status = rogue.outcome(&request).expect("an answer");
                let refused = [Status::BadStateId, Status::StaleStateId, Status::OldStateId];
                assert!(refused.contains(&status), "{state:?} {status:?}");
            }
        }
        let mut bytes = [0; 9];
        assert_eq!(held.read_at(&mut bytes, 0).unwrap(), 9);
        assert_eq!(&bytes, b"as it was");
        assert_eq!(rogue_opens(&mut rogue), Status::ShareDenied);
    });
}

fn rogue_opens(rogue: &mut Rogue) -> Status {
    let (directory, names) = (rogue.root(), ["file"]);
    let open = opening(directory, Path::new(&names));
    assert_eq!(open.access, ShareAccess::Both);
    rogue.outcome(&Request::Open(open)).expect("an answer")
}
