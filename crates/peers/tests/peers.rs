//! Tests with a real nfs-ganesha server, mounted by a real libnfs.

use dafs_peers::{Ganesha, PeerError, Reply, Request, flag};
use dafs_tests::Required;

/// Starts a server of a new directory; `None` if the host has none.
fn server() -> Option<(tempfile::TempDir, Ganesha)> {
    let directory = tempfile::tempdir().unwrap();
    match Ganesha::start(directory.path()) {
        Ok(server) => Some((directory, server)),
        Err(error) if error.is_missing() => {
            Required::Peers.skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn data_written_over_nfs_is_in_the_directory() {
    let Some((directory, server)) = server() else { return };
    let mut nfs = server.mount().unwrap();
    nfs.mkdir("/sub", 0o755).unwrap();
    let file = nfs.open("/sub/file", flag::READ_WRITE | flag::CREATE, 0o640).unwrap();
    let content: Vec<u8> = (0..3 << 20).map(|index: u32| (index / 7) as u8).collect();
    let (count, content) = nfs.pwrite(file, 0, content).unwrap();
    assert_eq!(count, content.len());
    nfs.fsync(file).unwrap();
    assert_eq!(std::fs::read(directory.path().join("sub/file")).unwrap(), content);

    let (count, read) = nfs.pread(file, 1 << 20, vec![0; 3 << 20]).unwrap();
    assert_eq!((count, &read[..count]), (2 << 20, &content[1 << 20..]));
    let attributes = nfs.stat("/sub/file").unwrap();
    assert_eq!((attributes.size, attributes.mode & 0o777), (3 << 20, 0o640));
    nfs.truncate("/sub/file", 5).unwrap();
    assert_eq!(nfs.stat("/sub/file").unwrap().size, 5);

    nfs.close(file).unwrap();
    assert!(matches!(nfs.pread(file, 0, vec![0; 1]), Err(PeerError::NotOpen)));
    nfs.unlink("/sub/file").unwrap();
    nfs.rmdir("/sub").unwrap();
    let error = nfs.open("/sub/file", flag::READ, 0).unwrap_err();
    assert!(matches!(error, PeerError::Request { errno: 2, .. }), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    assert!(server.cpu().unwrap().as_secs() < 60);
}

#[test]
fn many_requests_are_in_flight_at_once() {
    const BLOCK: usize = 4096;
    const COUNT: usize = 64;
    let Some((directory, server)) = server() else { return };
    let mut nfs = server.mount().unwrap();
    let file = nfs.open("/file", flag::READ_WRITE | flag::CREATE, 0o644).unwrap();
    for index in 0..COUNT {
        let (offset, buffer) = ((index * BLOCK) as u64, vec![index as u8; BLOCK]);
        nfs.submit(Request::Write { file, offset, buffer }).unwrap();
    }
    assert_eq!(nfs.under_way(), COUNT);
    // A synchronous call keeps completions that arrive before its own.
    assert!(nfs.stat("/file").unwrap().size <= (COUNT * BLOCK) as u64);
    for _ in 0..COUNT {
        assert!(matches!(nfs.wait().unwrap().result, Ok(Reply::Moved { count: BLOCK, .. })));
    }
    let tickets: Vec<_> = (0..COUNT)
        .map(|index| {
            let (offset, buffer) = ((index * BLOCK) as u64, vec![0; BLOCK]);
            nfs.submit(Request::Read { file, offset, buffer }).unwrap()
        })
        .collect();
    let mut seen = [false; COUNT];
    while nfs.under_way() > 0 {
        let completion = nfs.wait().unwrap();
        let Ok(Reply::Moved { count: BLOCK, buffer }) = completion.result else {
            panic!("{completion:?}");
        };
        assert!(tickets.contains(&completion.ticket));
        assert!(buffer.iter().all(|&byte| byte == buffer[0]));
        assert!(!std::mem::replace(&mut seen[usize::from(buffer[0])], true));
    }
    assert_eq!(seen, [true; COUNT]);
    // Requests in flight end with the mount.
    nfs.submit(Request::Read { file, offset: 0, buffer: vec![0; BLOCK] }).unwrap();
    drop(nfs);
    assert_eq!(directory.path().join("file").metadata().unwrap().len(), (COUNT * BLOCK) as u64);
}
