//! Creations that a kill of the server may interrupt.

use std::mem::MaybeUninit;

use dafs_store::local::{LocalConfig, LocalStore};
use dafs_store::{AttributeChanges, Store};
use dafs_types::{CreateMode, Credentials, ShareAccess, Verifier};
use rustix::fs::inotify;
use rustix::io::Errno;

/// The server may be killed at any time. A client then repeats an exclusive creation, and must get
/// its own file. So the file may have its name only together with the verifier.
#[test]
fn a_file_of_an_exclusive_creation_never_has_its_name_without_the_verifier() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let store = LocalStore::new(&LocalConfig::new(&tree, place.path().join("state"))).unwrap();
    let watch =
        inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
    let kinds = inotify::WatchFlags::CREATE | inotify::WatchFlags::ATTRIB;
    inotify::add_watch(&watch, &tree, kinds).unwrap();
    let who = Credentials::plain(
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
    .unwrap();
    let top = store.root(&who).unwrap().handle;
    let mode = CreateMode::Exclusive(Verifier(*b"verifier"));
    let changes = AttributeChanges { mode: Some(0o640), ..AttributeChanges::default() };
    let create = || store.create_file(&who, &top, b"f", mode, &changes, ShareAccess::Both);
    let (made, _) = create().unwrap();
    assert!(made.is_new);
    let shown = store.lookup(&who, &top, b"f").unwrap();
    assert_eq!(shown.handle, made.object.handle);
    assert_eq!((shown.attributes.mode, shown.attributes.link_count), (0o640, 1));
    assert_eq!(made.object.attributes.link_count, 1);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    // The attributes of the file, of which the times are the verifier, do not change after the
    // file has its name. Before that, the kernel reports the file under another name.
    let named = loop {
        let event = events.next().unwrap();
        if event.file_name() == Some(c"f") {
            break event.events();
        }
    };
    assert_eq!(named, inotify::ReadFlags::CREATE);
    assert_eq!(events.next().err(), Some(Errno::AGAIN));
    assert!(!create().unwrap().0.is_new, "the repeated creation finds the file");
}
