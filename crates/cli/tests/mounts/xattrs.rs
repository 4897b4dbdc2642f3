//! Tests extended attributes.

use rustix::fs::{
    XattrFlags, getxattr, getxattr_query, listxattr, listxattr_query, removexattr, setxattr,
};
use rustix::io::Errno;

use crate::mounts::host::{Host, have, run};

#[test]
fn attributes_of_users_are_set_told_and_removed() {
    let Some(host) = Host::mounted("") else { return };
    let file = host.at("file");
    std::fs::write(&file, "text").unwrap();
    let set = |name: &str, value: &[u8], how| setxattr(&file, name, value, how);
    let get = |name: &str| {
        let mut value = vec![0; 65_536];
        getxattr(&file, name, &mut value[..]).map(|length| value[..length].to_vec())
    };
    set("user.a", b"one", XattrFlags::empty()).unwrap();
    assert_eq!(set("user.a", b"two", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"two", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.b", b"longer than before", XattrFlags::CREATE).unwrap();
    set("user.b", b"short", XattrFlags::REPLACE).unwrap();
    set("user.empty", b"", XattrFlags::empty()).unwrap();
    assert_eq!(get("user.a").unwrap(), b"one");
    assert_eq!(get("user.b").unwrap(), b"short");
    assert_eq!(get("user.empty").unwrap(), b"");
    assert_eq!(get("user.c"), Err(Errno::NODATA));

    let mut value = [0; 4];
    assert_eq!(getxattr(&file, "user.b", &mut value[..]), Err(Errno::RANGE));
    assert_eq!(getxattr_query(&file, "user.b"), Ok(5));
    let mut list = [0; 64];
    let length = listxattr(&file, &mut list[..]).unwrap();
    let mut names: Vec<_> = list[..length].split(|byte| *byte == 0).collect();
    names.sort_unstable();
    assert_eq!(names, [&b""[..], b"user.a", b"user.b", b"user.empty"]);
    assert_eq!(listxattr_query(&file), Ok(length));
    assert_eq!(listxattr(&file, &mut list[..7]), Err(Errno::RANGE));

    removexattr(&file, "user.a").unwrap();
    assert_eq!(removexattr(&file, "user.a"), Err(Errno::NODATA));
    let mut there = [0; 16];
    let length = getxattr(host.exported("file"), "user.b", &mut there[..]).unwrap();
    assert_eq!(&there[..length], b"short", "they are the served file's own");
}

#[test]
fn what_the_server_does_not_keep_is_refused() {
    let Some(host) = Host::mounted("") else { return };
    let file = host.at("file");
    std::fs::write(&file, "text").unwrap();
    for name in ["trusted.a", "security.a"] {
        let set = setxattr(&file, name, b"value", XattrFlags::empty());
        assert_eq!(set, Err(Errno::OPNOTSUPP), "{name}");
        assert_eq!(getxattr(&file, name, &mut [0u8; 9][..]), Err(Errno::OPNOTSUPP), "{name}");
    }
    let list = getxattr(&file, "system.posix_acl_access", &mut [0u8; 9][..]);
    assert_eq!(list, Err(Errno::OPNOTSUPP));
    let set = |length| setxattr(&file, "user.a", &vec![b'x'; length], XattrFlags::empty());
    assert_eq!(set(65_537), Err(Errno::TOOBIG));
    set(100).unwrap();
    // If the served file system has no space for a value, the old value stays.
    if let Err(error) = set(65_536) {
        assert!(matches!(error, Errno::NOSPC | Errno::TOOBIG), "{error}");
        assert_eq!(getxattr(&file, "user.a", &mut [0u8; 200][..]), Ok(100));
    }
    std::os::unix::fs::symlink("file", host.at("link")).unwrap();
    assert_eq!(rustix::fs::llistxattr(host.at("link"), &mut [0u8; 9][..]), Ok(0));
}

#[test]
fn programs_keep_attributes() {
    if !have(&["setfattr", "getfattr", "tar", "rsync"]) {
        return;
    }
    let Some(host) = Host::mounted("") else { return };
    run(&host.at(""), "mkdir d && touch d/f && setfattr -n user.mark -v value d d/f");
    run(&host.at(""), "cp -a --preserve=xattr d copied");
    run(&host.at(""), "tar --xattrs -cf d.tar d && mkdir x && tar --xattrs -C x -xf d.tar");
    run(&host.at(""), "rsync -aX d/ synced/");
    for place in ["copied", "x/d", "synced"] {
        let shown = run(&host.at(place), "getfattr --only-values -n user.mark . f");
        assert_eq!(shown, "valuevalue", "{place}");
        let shown = run(&host.exported(place), "getfattr --only-values -n user.mark . f");
        assert_eq!(shown, "valuevalue", "{place} on the server");
    }
    assert_eq!(run(&host.at(""), "rsync -aXi d/ synced/"), "");
}
