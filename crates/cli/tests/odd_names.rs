//! Tests names that are not UTF-8 with the command, the mount and the preload library.
//!
//! Invariant: each interface creates exactly the name it was given, byte for byte, and shows names
//! of local processes unchanged.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};

use crate::mounts::host::Host;
use crate::place::Place;
use crate::preloaded::{has, library};
use crate::program::dafs;

/// All non-ASCII bytes, the longest names, names that look like escapes, and random names.
fn odd_names() -> Vec<OsString> {
    let mut names: Vec<Vec<u8>> = (0x80..=0xff).map(|byte| vec![b'n', byte]).collect();
    names.extend([vec![0xff; 255], b"\xee\xbe\x80".repeat(85), b"new\nline\x1b".to_vec()]);
    names.extend(["\u{efff}", "\u{efc3}\u{efa9}", "e\u{301}", "\u{e9}"].map(|name| name.into()));
    let mut random = dafs_types::Random::new(7);
    for _ in 0..40 {
        let length = 1 + random.below(255);
        let mut name = random.bytes(length);
        name.iter_mut().filter(|byte| matches!(byte, 0 | b'/')).for_each(|byte| *byte = b'_');
        names.push(name);
    }
    names.retain(|name| !matches!(&name[..], b"." | b".."));
    let names: BTreeSet<Vec<u8>> = names.into_iter().collect();
    names.into_iter().map(OsString::from_vec).collect()
}

fn entries(directory: &Path) -> BTreeSet<OsString> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Runs a command with arguments of any bytes.
fn run(arguments: &[&OsStr]) -> Output {
    dafs().args(arguments).output().unwrap()
}

fn ok(arguments: &[&OsStr]) -> Vec<u8> {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    output.stdout
}

#[test]
fn directories_with_names_of_any_bytes_are_served() {
    let mut place = Place::new();
    let names = [&b"caf\xe9"[..], b"caf\xe8", b"a=b\xff", b"\xee\xbe\x80"].map(OsStr::from_bytes);
    let directories = names.map(|name| place.path("").join(name));
    for directory in &directories {
        std::fs::create_dir(directory).unwrap();
        std::fs::write(directory.join("file"), directory.as_os_str().as_bytes()).unwrap();
    }
    let content = |directory: &Path| directory.as_os_str().as_bytes().to_vec();
    let base = place.url("").into_bytes();
    let url = |path: &[u8]| OsString::from_vec([&base, path].concat());
    let journals = place.path("state/journals");
    for directory in &directories {
        let url = url(b"file");
        let before = entries(&journals).len();
        place.kill_server();
        place.serve_directories(&[directory.as_os_str()]);
        assert_eq!(ok(&["cat".as_ref(), &url]), content(directory));
        assert_eq!(entries(&journals).len(), before + 1, "{directory:?} has one of its own");
    }
    place.kill_server();
    let named = OsStr::from_bytes(b"na\xefme=");
    let named = [named, directories[0].as_os_str()].into_iter().collect::<OsString>();
    let all = directories.iter().map(|path| path.as_os_str()).chain([&*named]);
    place.serve_directories(&all.collect::<Vec<_>>());
    let listed = ok(&["ls".as_ref(), &url(b"")]);
    let listed: BTreeSet<&[u8]> = listed.split(|byte| *byte == b'\n').collect();
    for name in names.map(OsStr::as_bytes).into_iter().chain([&b"na\xefme"[..]]) {
        assert!(listed.contains(name), "{listed:?}");
    }
    for (name, directory) in names.iter().zip(&directories) {
        let path = [name.as_bytes(), b"/file"].concat();
        assert_eq!(ok(&["cat".as_ref(), &url(&path)]), content(directory));
    }
    assert_eq!(ok(&["cat".as_ref(), &url(b"na\xefme/file")]), content(&directories[0]));
}

#[test]
fn trees_with_names_of_any_bytes_are_copied_both_ways_listed_and_removed() {
    let place = Place::new();
    let tree = place.path("tree");
    let deep = tree.join(OsStr::from_bytes(b"de\xfep"));
    std::fs::create_dir_all(&deep).unwrap();
    let names = odd_names();
    for name in &names {
        std::fs::write(deep.join(name), name.as_bytes()).unwrap();
    }
    std::os::unix::fs::symlink(OsStr::from_bytes(b"de\xfep/\xff"), tree.join("link")).unwrap();
    for (index, url) in [place.url(""), place.tcp_url("")].into_iter().enumerate() {
        let [there, again] = ["there", "again"].map(|name| format!("{url}{name}{index}"));
        let back = place.path(&format!("back{index}"));
        let copy = |from: &OsStr, to: &OsStr| {
            ok(&["cp", "-r", "--verify"]
                .map(OsStr::new)
                .iter()
                .copied()
                .chain([from, to])
                .collect::<Vec<_>>())
        };
        copy(tree.as_os_str(), there.as_ref());
        copy(there.as_ref(), again.as_ref());
        copy(again.as_ref(), back.as_os_str());
        let all: BTreeSet<OsString> = names.iter().cloned().collect();
        let served =
            place.path(&format!("export/there{index}")).join(OsStr::from_bytes(b"de\xfep"));
        assert_eq!(entries(&served), all);
        let mut diff = Command::new("diff");
        diff.args(["-r", "--no-dereference"]).arg(&tree).arg(&back);
        assert!(diff.status().unwrap().success());

        // Without a terminal, names are printed unchanged.
        let directory = OsString::from_vec([there.as_bytes(), b"/de\xfep"].concat());
        let mut expected: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        expected.sort_unstable();
        let listed = ok(&["ls".as_ref(), "-a".as_ref(), &directory]);
        assert_eq!(listed, [expected.join(&b'\n'), b"\n".to_vec()].concat());
        ok(&["rm".as_ref(), "-rf".as_ref(), there.as_ref(), again.as_ref()]);
        assert!(!served.exists());
    }
    assert_eq!(entries(&place.path("export")), BTreeSet::new());
}

#[test]
fn every_command_takes_names_of_any_bytes() {
    let place = Place::new();
    let export = place.path("export");
    let local = |name: &[u8]| export.join(OsStr::from_bytes(name));
    for url in [place.url(""), place.tcp_url("")] {
        let at = |name: &[u8]| OsString::from_vec([url.as_bytes(), name].concat());
        let told = |command: &str, names: &[&[u8]]| {
            let names: Vec<OsString> = names.iter().map(|name| at(name)).collect();
            let words = command.split(' ').map(OsStr::new);
            ok(&words.chain(names.iter().map(OsString::as_os_str)).collect::<Vec<_>>())
        };
        told("mkdir -p", &[b"\xfea/\xfeb"]);
        std::fs::write(local(b"\xfea/caf\xe9"), "bytes").unwrap();
        assert_eq!(told("cat", &[b"\xfea/caf\xe9"]), b"bytes");
        assert_eq!(told("cat", &[b"%fea/caf%e9"]), b"bytes", "as URLs have it");
        assert_eq!(told("ls", &[b"\xfea/caf\xe9"]), b"caf\xe9\n");
        let shown = told("stat --json", &[b"\xfea/caf\xe9"]);
        assert!(shown.starts_with(b"{"), "{}", String::from_utf8_lossy(&shown));
        let listed = String::from_utf8(told("ls --json", &[b"\xfea"])).unwrap();
        assert!(listed.contains(r#""name":"caf\\xe9""#), "{listed}");
        assert!(listed.contains(r#""name_hex":"636166e9""#), "{listed}");
        told("ln", &[b"\xfea/caf\xe9", b"\xfelink"]);
        assert_eq!(std::fs::read(local(b"\xfelink")).unwrap(), b"bytes");
        told("mv", &[b"\xfelink", b"\xfea/\xfeb"]);
        assert_eq!(
            entries(&local(b"\xfea/\xfeb")),
            [OsString::from_vec(b"\xfelink".to_vec())].into()
        );
        let symbolic = [OsStr::new("ln"), "-s".as_ref(), OsStr::from_bytes(b"caf\xe9")];
        ok(&[symbolic[0], symbolic[1], symbolic[2], &at(b"\xfea/\xfes")]);
        assert_eq!(told("cat", &[b"\xfea/\xfes"]), b"bytes");
        assert!(told("ls -l", &[b"\xfea/\xfes"]).ends_with(b" \xfes -> caf\xe9\n"));
        let missing = run(&["cat".as_ref(), &at(b"caf\xe9")]);
        let said = String::from_utf8(missing.stderr).unwrap();
        assert!(!missing.status.success() && said.contains("caf\\xe9"), "{said}");
        told("gzip --force", &[b"\xfea/caf\xe9"]);
        assert!(local(b"\xfea/caf\xe9.gz").is_file());
        told("gunzip", &[b"\xfea/caf\xe9.gz"]);
        told("sort --output", &[b"\xfea/s\xf6rted", b"\xfea/caf\xe9"]);
        assert_eq!(std::fs::read(local(b"\xfea/s\xf6rted")).unwrap(), b"bytes\n");
        told("rm -r", &[b"\xfea"]);
        assert_eq!(entries(&export), BTreeSet::new());
    }
}

#[test]
fn the_mount_has_names_of_any_bytes() {
    let Some(host) = Host::mounted("") else { return };
    let (mounted, served) = (host.at(""), host.exported(""));
    let names = odd_names();
    let all: BTreeSet<OsString> = names.iter().cloned().collect();
    for name in &names {
        std::fs::write(mounted.join(name), name.as_bytes()).unwrap();
        assert_eq!(std::fs::read(served.join(name)).unwrap(), name.as_bytes());
    }
    assert_eq!(entries(&served), all);
    assert_eq!(entries(&mounted), all);
    for pair in names.windows(2) {
        let [old, new] = pair else { unreachable!() };
        let (old, new) = (mounted.join(old), mounted.join(new));
        std::fs::remove_file(&new).unwrap();
        std::fs::rename(&old, &new).unwrap();
        std::fs::hard_link(&new, &old).unwrap();
        std::fs::remove_file(&old).unwrap();
        std::os::unix::fs::symlink(new.file_name().unwrap(), &old).unwrap();
        assert_eq!(std::fs::read_link(&old).unwrap().as_os_str(), new.file_name().unwrap());
        assert_eq!(std::fs::read(&old).unwrap(), names[0].as_bytes());
        std::fs::remove_file(&old).unwrap();
        std::fs::create_dir(&old).unwrap();
        std::fs::remove_dir(&old).unwrap();
    }
    let last = mounted.join(names.last().unwrap());
    let attribute = OsStr::from_bytes(b"user.\xff\xee");
    setxattr(&last, attribute, b"value", XattrFlags::empty()).unwrap();
    let mut list = [0; 64];
    let length = listxattr(&last, &mut list[..]).unwrap();
    assert_eq!(&list[..length], b"user.\xff\xee\0");
    let mut value = [0; 16];
    let length = getxattr(served.join(last.file_name().unwrap()), attribute, &mut value[..]);
    assert_eq!(&value[..length.unwrap()], b"value");
    std::fs::remove_file(&last).unwrap();
    assert_eq!(entries(&served), BTreeSet::new());
}

#[test]
fn programs_under_the_preload_library_have_names_of_any_bytes() {
    if !has(&["python3", "sh", "cat", "ls"]) {
        return;
    }
    let place = Place::new();
    let export = place.path("export");
    let names = odd_names();
    std::fs::write(place.path("names"), names.join(OsStr::new("\0")).as_bytes()).unwrap();
    let prefix = OsStr::from_bytes(b"/he\xffre");
    let exec = |command: &[&OsStr]| {
        let map = [prefix.as_bytes(), b"=", place.url("").as_bytes()].concat();
        dafs()
            .env("DAFS_PRELOAD_LIBRARY", library())
            .args(["exec", "--map"])
            .arg(OsString::from_vec(map))
            .arg("--")
            .args(command)
            .output()
            .unwrap()
    };
    let list = place.path("names");
    let output =
        exec(&["python3".as_ref(), "-c".as_ref(), PROGRAM.as_ref(), list.as_ref(), prefix]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(entries(&export), [OsString::from_vec(b"k\xe9pt".to_vec())].into());
    // Programs started from here inherit the working directory.
    let shell = OsStr::from_bytes(
        b"mkdir /he\xffre/d\xfd && cd /he\xffre/d\xfd && \
        cat ../k\xe9pt > c\xe9 && sh -c 'pwd; ls; cat c\xe9'",
    );
    let output = exec(&["sh".as_ref(), "-c".as_ref(), shell]);
    assert_eq!(output.stdout, b"/he\xffre/d\xfd\nc\xe9\nkept", "{output:?}");
}

/// Does the usual operations with each name and checks the results.
const PROGRAM: &str = r#"
import os, sys
names = open(sys.argv[1], "rb").read().split(b"\0")
top = os.fsencode(sys.argv[2])
at = lambda *parts: os.path.join(top, *parts)
for name in names:
    with open(at(name), "wb") as file:
        file.write(name)
assert sorted(os.listdir(top)) == sorted(names)
assert sorted(entry.name for entry in os.scandir(top)) == sorted(names)
for name in names:
    assert os.stat(at(name)).st_size == len(name)
    assert open(at(name), "rb").read() == name
for old, new in zip(names, names[1:]):
    os.unlink(at(new))
    os.rename(at(old), at(new))
    os.link(at(new), at(old))
    os.unlink(at(old))
    os.symlink(new, at(old))
    assert os.readlink(at(old)) == new
    assert os.path.realpath(at(old)) == at(new)
    assert open(at(old), "rb").read() == names[0]
    os.unlink(at(old))
    os.mkdir(at(old))
    os.chdir(at(old))
    assert os.getcwdb() == at(old)
    os.symlink(b"../" + new, b"l\xfc")
    assert open(b"l\xfc", "rb").read() == names[0]
    directory = os.open(b".", os.O_RDONLY)
    assert os.listdir(directory) == [os.fsdecode(b"l\xfc")]
    os.unlink(b"l\xfc", dir_fd=directory)
    os.close(directory)
    os.chdir(top)
    os.rmdir(old)
os.unlink(at(names[-1]))
with open(at(b"k\xe9pt"), "wb") as file:
    file.write(b"kept")
os.setxattr(at(b"k\xe9pt"), b"user.\xff", b"value")
assert os.listxattr(at(b"k\xe9pt")) == [os.fsdecode(b"user.\xff")]
assert os.getxattr(at(b"k\xe9pt"), b"user.\xff") == b"value"
"#;
