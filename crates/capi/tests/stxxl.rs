//! Runs STXXL's sort over libdafs, in a program that knows nothing of DAFS and in one that names a
//! file on a server.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use dafs_tests::Required;

use crate::support::{Served, TRANSPORTS, crate_path, has, library, repository, succeed};

/// True if programs with STXXL can be compiled here. Where tests must not be skipped, it must be
/// true.
fn has_stxxl() -> bool {
    if !has("g++") {
        return false;
    }
    let mut asked = Command::new("g++");
    asked.args(["-E", "-include", "stxxl/vector", "-x", "c++", "/dev/null"]);
    let is_there = asked.output().is_ok_and(|output| output.status.success());
    if !is_there {
        Required::Faces.skip("libstxxl-dev is missing");
    }
    is_there
}

/// Compiles a source of `stxxl/` in a directory.
fn compile(source: &str, place: &Path) -> PathBuf {
    let program = place.join(source.replace(".cpp", ""));
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-Wall", "-Wextra", "-O1"]);
    command.arg("-I").arg(repository("include")).arg(crate_path("stxxl").join(source));
    command.arg("-o").arg(&program).arg("-L").arg(library()).args(["-ldafs", "-lstxxl"]);
    command.args(["-fopenmp", "-pthread"]);
    succeed(command.arg(format!("-Wl,-rpath,{}", library().display())));
    program
}

/// Installs the disk types next to a libdafs. Returns the library to load.
fn install(place: &Path) -> PathBuf {
    let (prefix, lib) = (place.join("prefix"), place.join("prefix/lib"));
    std::fs::create_dir_all(&lib).unwrap();
    std::fs::create_dir(prefix.join("include")).unwrap();
    symlink(repository("include/dafs.h"), prefix.join("include/dafs.h")).unwrap();
    let mut command = Command::new(crate_path("stxxl").join("install"));
    command.arg(&prefix).env("CXXFLAGS", "-Wall -Wextra -Werror -O1");
    let refused = command.output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("make install-c"), "{told}");
    symlink(library().join("libdafs.so"), lib.join("libdafs.so")).unwrap();
    succeed(&mut command);
    assert!(prefix.join("include/dafs_stxxl.hpp").is_file());
    lib.join("libdafs_stxxl.so")
}

/// Returns a command for a program that loads the disk types.
fn loading(plugin: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", plugin).env("LD_LIBRARY_PATH", library());
    command
}

/// Writes an STXXL configuration with one disk.
fn configure(place: &Path, disk: &str) -> PathBuf {
    let path = place.join("stxxl.conf");
    std::fs::write(&path, format!("disk={disk},64MiB,dafs\n")).unwrap();
    path
}

#[test]
fn a_program_that_knows_nothing_of_dafs_sorts_on_it() {
    if !has_stxxl() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let plugin = install(place.path());
    let program = compile("sorts.cpp", place.path());
    for transport in TRANSPORTS {
        let served = Served::start(transport);
        let mut sorts = loading(&plugin, &program);
        sorts.current_dir(place.path()).arg("2000000");
        sorts.env("STXXLCFG", configure(place.path(), &format!("{}disk", served.url)));
        let output = succeed(&mut sorts);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("sorted 2000000"), "{told}");
        let disk = std::fs::metadata(served.local("disk")).unwrap();
        assert_eq!(disk.len(), 64 << 20, "it was the server's file that was used");
    }
    // Other kinds of disks are still those of STXXL.
    let mut sorts = loading(&plugin, &program);
    sorts.current_dir(place.path()).arg("100000");
    let (local, conf) = (place.path().join("local"), place.path().join("other.conf"));
    std::fs::write(&conf, format!("disk={},64MiB,syscall\n", local.display())).unwrap();
    succeed(sorts.env("STXXLCFG", conf));
    assert_eq!(std::fs::metadata(local).unwrap().len(), 64 << 20);
}

#[test]
fn a_file_is_sorted_where_it_lies() {
    if !has_stxxl() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let plugin = install(place.path());
    let program = compile("in_place.cpp", place.path());
    let mut numbers: Vec<u64> =
        (0..1_500_000_u64).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for transport in TRANSPORTS {
        let served = Served::start(transport);
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        std::fs::write(served.local("numbers"), bytes).unwrap();
        let mut sorts = loading(&plugin, &program);
        sorts.current_dir(place.path()).arg(format!("{}numbers", served.url));
        sorts.env("STXXLCFG", configure(place.path(), &format!("{}disk", served.url)));
        let output = succeed(&mut sorts);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("sorted 1500000"), "{told}");
        let sorted = std::fs::read(served.local("numbers")).unwrap();
        numbers.sort_unstable();
        let numbers = numbers.iter().flat_map(|number| number.to_ne_bytes());
        assert!(sorted.into_iter().eq(numbers), "over {transport:?}");
    }
    let failed = Command::new(&program).arg("dafs+shm:///nowhere!/x").output().unwrap();
    let told = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && told.contains("connecting to"), "{told}");
}
