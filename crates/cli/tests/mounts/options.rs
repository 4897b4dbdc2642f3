//! Tests mount options, rarely used calls, and which users may mount.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno;

use crate::mounts::host::{Host, have, missing, run, shell};
use crate::program::dafs;

/// Writes, reads, appends to, maps and truncates a file, and compares it with the local file.
fn use_a_file(host: &Host) {
    let content: Vec<u8> = (0..2_500_003_u32).map(|n| (n % 253) as u8).collect();
    let mut file =
        File::options().read(true).write(true).create_new(true).open(host.at("file")).unwrap();
    file.write_all(&content).unwrap();
    file.write_all_at(b"changed", 1_000_001).unwrap();
    let mut appended = File::options().append(true).open(host.at("file")).unwrap();
    appended.write_all(b"the end").unwrap();
    let mut wanted = content;
    wanted[1_000_001..1_000_008].copy_from_slice(b"changed");
    wanted.extend_from_slice(b"the end");
    let mut found = Vec::new();
    File::open(host.at("file")).unwrap().read_to_end(&mut found).unwrap();
    assert!(found == wanted);
    file.sync_all().unwrap();
    assert!(std::fs::read(host.exported("file")).unwrap() == wanted);
    file.set_len(10).unwrap();
    file.set_len(20).unwrap();
    wanted.truncate(10);
    wanted.resize(20, 0);
    assert_eq!(std::fs::read(host.at("file")).unwrap(), wanted);
    assert_eq!(host.at("file").metadata().unwrap().len(), 20);
    drop((file, appended));
    assert_eq!(std::fs::read(host.exported("file")).unwrap(), wanted);
}

#[test]
fn files_are_the_same_whatever_the_page_cache_does() {
    for options in ["", "writeback", "direct_io", "local_append", "attr_timeout=0,writeback"] {
        let Some(host) = Host::mounted(options) else { return };
        use_a_file(&host);
    }
}

#[test]
fn memory_maps_reach_the_file() {
    if !have(&["python3"]) {
        return;
    }
    for options in ["", "writeback", "direct_io"] {
        let Some(host) = Host::mounted(options) else { return };
        let script = "import mmap\nf = open('m', 'wb+'); f.truncate(20000)\n\
                      m = mmap.mmap(f.fileno(), 20000); m[9000:9005] = b'there'; m.flush()\n\
                      print(open('m', 'rb').read()[8999:9006]); m.close(); f.close()";
        let said = run(&host.at(""), &format!("python3 -c \"{script}\""));
        assert_eq!(said, "b'\\x00there\\x00'\n", "{options}");
        assert_eq!(&std::fs::read(host.exported("m")).unwrap()[9000..9005], b"there");
    }
}

#[test]
fn names_are_exchanged_for_none_and_kept_where_asked() {
    let Some(host) = Host::mounted("") else { return };
    std::fs::write(host.at("one"), "one").unwrap();
    std::fs::write(host.at("two"), "two").unwrap();
    let rename =
        |from: &str, to: &str, how| renameat_with(CWD, host.at(from), CWD, host.at(to), how);
    assert_eq!(rename("one", "two", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("one", "three", RenameFlags::NOREPLACE).unwrap();
    // The protocol cannot exchange two names.
    assert_eq!(rename("two", "three", RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(std::fs::read_to_string(host.at("three")).unwrap(), "one");
    assert_eq!(std::fs::read_to_string(host.at("two")).unwrap(), "two");
    let nameless = rustix::fs::open(host.at(""), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
    assert_eq!(nameless.unwrap_err(), Errno::OPNOTSUPP);
}

#[test]
fn device_nodes_work_where_they_may() {
    let Some(mut host) = Host::mounted("dev") else { return };
    let guarded = host.mount("");
    let null = rustix::fs::makedev(1, 3);
    mknodat(CWD, host.at("null"), FileType::CharacterDevice, Mode::from(0o666), null).unwrap();
    let far = rustix::fs::makedev(3000, 70_000);
    mknodat(CWD, host.at("far"), FileType::BlockDevice, Mode::RUSR, far).unwrap();
    mknodat(CWD, host.at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let device = |name: &str| host.at(name).metadata().unwrap().rdev();
    assert_eq!((device("null"), device("far")), (null, far));
    assert_eq!(host.exported("far").metadata().unwrap().rdev(), far);
    let mut bytes = Vec::new();
    File::open(host.at("null")).unwrap().read_to_end(&mut bytes).unwrap();
    assert!(bytes.is_empty());
    let refused = File::open(guarded.join("null")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
    assert!(host.at("pipe").metadata().unwrap().rdev() == 0);
    rustix::fs::unlinkat(CWD, host.at("far"), AtFlags::empty()).unwrap();
}

#[test]
fn room_is_that_of_the_served_file_system() {
    let Some(host) = Host::mounted("") else { return };
    let mounted = rustix::fs::statvfs(host.at("")).unwrap();
    let served = rustix::fs::statvfs(host.exported("")).unwrap();
    let bytes = |of: &rustix::fs::StatVfs| of.f_blocks * of.f_frsize;
    assert_eq!(bytes(&mounted), bytes(&served));
    assert_eq!((mounted.f_files, mounted.f_namemax), (served.f_files, served.f_namemax));
    assert!(mounted.f_bavail > 0 && mounted.f_bavail <= mounted.f_bfree);
}

#[test]
fn locks_tell_who_has_them() {
    if !have(&["python3"]) {
        return;
    }
    let Some(mut host) = Host::mounted("") else { return };
    let other = host.mount("");
    std::fs::write(host.at("file"), "some text").unwrap();
    let script = |place: &str| {
        format!(
            "import fcntl, struct; f = open('{place}/file', 'r+')\n\
             lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)\n\
             print(struct.unpack('hhqqi4x', fcntl.fcntl(f, fcntl.F_GETLK, lock)))"
        )
    };
    let hold = format!(
        "import fcntl, os, subprocess, sys; f = open('{}/file', 'r+')\n\
         fcntl.lockf(f, fcntl.LOCK_EX, 10, 5); print(os.getpid(), flush=True)\n\
         for s in sys.argv[1:]: subprocess.run(['python3', '-c', s], check=True)\n\
         fcntl.lockf(f, fcntl.LOCK_UN, 10, 5)\n\
         subprocess.run(['python3', '-c', sys.argv[1]], check=True)",
        host.at("").display()
    );
    let places = [host.at(""), other].map(|place| script(&place.display().to_string()));
    let mut python = std::process::Command::new("python3");
    let output = python.args(["-c", &hold]).args(&places).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let pid = lines[0];
    assert_eq!(lines[1], format!("(1, 0, 5, 10, {pid})"), "{said}");
    assert!(lines[2].starts_with("(1, 0, 5, 10, "), "{said}");
    assert_eq!(lines[3], "(2, 0, 0, 0, 0)", "{said}");
}

#[test]
fn whoever_only_reads_may_take_a_lock_of_flock() {
    let Some(host) = Host::mounted("") else { return };
    std::fs::write(host.at("file"), "text").unwrap();
    let (one, other) = (File::open(host.at("file")).unwrap(), File::open(host.at("file")).unwrap());
    one.lock().unwrap();
    assert!(other.try_lock().is_err());
}

#[test]
fn fstab_mounts_by_the_helper() {
    let Some(host) = Host::new() else { return };
    let helper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/mount.fuse.dafs");
    std::fs::create_dir(host.path("place")).unwrap();
    let mount = format!(
        "DAFS_PROGRAM={} sh {helper} '{}' place -n -o rw,_netdev,attr_timeout=0 -o noatime",
        env!("CARGO_BIN_EXE_dafs"),
        host.url()
    );
    run(&host.path(""), &mount);
    run(&host.path(""), "echo text > place/file");
    assert_eq!(std::fs::read_to_string(host.exported("file")).unwrap(), "text\n");
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let place = host.path("place").display().to_string();
    let line = mounts.lines().find(|line| line.contains(&place)).unwrap();
    assert!(line.contains(" fuse.dafs ") && line.contains("noatime"), "{line}");
    run(&host.path(""), "umount place");
}

#[test]
fn who_is_not_root_mounts_for_himself() {
    if !have(&["fusermount3", "unshare", "setpriv", "mknod"]) {
        return;
    }
    let Some(host) = Host::new() else { return };
    run(
        &host.path(""),
        "chmod 755 . && mkdir place && chown 65534:65534 place && chmod 777 export",
    );
    let dafs = env!("CARGO_BIN_EXE_dafs");
    let may = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    if !shell(&host.path(""), &format!("{may} {dafs} --version")).status.success() {
        return missing("the program where nobody may start it").unwrap_or(());
    }
    // A device that everybody may open, as udev makes it, only for this namespace.
    let script = format!(
        "mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse
        {may} {dafs} mount '{}' place; {may} sh -ec 'cd place; echo text > file; stat -c %u file'
        ! ls place 2> /dev/null; {may} {dafs} unmount place; {may} ls -A place",
        host.url()
    );
    std::fs::write(host.path("script"), script).unwrap();
    let said = run(&host.path(""), "unshare -m sh -e script");
    assert_eq!(said.lines().last(), Some("65534"), "{said}");
    assert_eq!(host.exported("file").metadata().unwrap().uid(), 65534);
}

/// Every option that mount(8) and fstab support for all file systems.
const OF_FSTAB: &[&str] = &[
    "defaults",
    "rw,_netdev",
    "nofail",
    "noauto",
    "auto",
    "user",
    "user=ann",
    "users",
    "owner",
    "group",
    "nouser",
    "nousers",
    "noowner",
    "nogroup",
    "x-systemd.automount",
    "X-mount.mkdir",
    "x-systemd.device-timeout=5",
    "relatime",
    "noatime",
    "atime",
    "nodiratime",
    "diratime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "sync",
    "dirsync",
    "async",
    "nosuid,nodev,noexec",
    "suid",
    "dev",
    "exec",
    "silent",
    "loud",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "comment=hello",
    "symfollow",
    "nosymfollow",
    "allow_other",
    "default_permissions",
    "_rnetdev",
    "ro",
];

/// Runs the helper of mount(8) as mount does.
fn helper(host: &Host, place: &std::path::Path, arguments: &[&str]) -> std::process::Output {
    let helper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/mount.fuse.dafs");
    let mut command = std::process::Command::new("sh");
    command.arg(helper).arg(host.url()).arg(place).args(arguments);
    command.env("DAFS_PROGRAM", env!("CARGO_BIN_EXE_dafs")).output().unwrap()
}

#[test]
fn every_option_that_fstab_has_for_all_file_systems_is_taken_and_no_other() {
    let Some(host) = Host::new() else { return };
    std::fs::write(host.exported("file"), "here").unwrap();
    let place = host.path("place");
    std::fs::create_dir(&place).unwrap();
    for options in OF_FSTAB {
        let output = helper(&host, &place, &["-o", options]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options}: {said}");
        let text = std::fs::read_to_string(place.join("file"));
        // Processes of other tests may briefly have inherited a descriptor on the mount.
        let mut unmount = dafs();
        unmount.args(["unmount", "--lazy"]).arg(&place);
        assert!(unmount.status().unwrap().success(), "{options}");
        assert_eq!(text.unwrap(), "here", "{options}");
    }
    let output = helper(&host, &place, &["-o", "rw,nosuchthing"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("nosuchthing"), "{said}");
}

#[test]
fn links_lead_nowhere_and_writes_are_stable_where_an_option_says_so() {
    let Some(host) = Host::mounted("nosymfollow,sync,nodev,noatime") else { return };
    std::fs::write(host.at("file"), "text").unwrap();
    std::os::unix::fs::symlink("file", host.at("link")).unwrap();
    let refused = std::fs::read(host.at("link")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(40));
    let shown = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let place = host.at("").display().to_string();
    let line = shown.lines().find(|line| line.contains(place.trim_end_matches('/'))).unwrap();
    for option in ["nosymfollow", "sync", "nodev", "nosuid", "noatime"] {
        assert!(line.contains(option), "{option}: {line}");
    }
}
