//! Tests `dafs exec`: programs that access a server, and error messages for mistakes.

use std::path::Path;
use std::process::Output;

use crate::place::Place;
use crate::preloaded::{has, library};
use crate::program::dafs;

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn programs_find_servers_beneath_their_paths() {
    let place = Place::new();
    std::fs::write(place.path("export/file"), "of the server\n").unwrap();
    std::fs::create_dir(place.path("export/deep")).unwrap();
    let report = place.path("report");
    let output = dafs()
        .env("DAFS_PRELOAD_LIBRARY", library())
        .args(["exec", "--map", &format!("/here={}", place.url("")), "--map"])
        .arg(format!("/there/deep={}", place.url("deep")))
        .args(["--report".as_ref(), report.as_os_str()])
        .args(["--", "sh", "-c"])
        .arg("cat /here/file && cp /here/file /there/deep/copy && ls /here/deep")
        .output()
        .unwrap();
    let (told, errors) = text(&output);
    assert!(output.status.success(), "{errors}");
    assert_eq!(told, "of the server\ncopy\n");
    assert_eq!(std::fs::read(place.path("export/deep/copy")).unwrap(), b"of the server\n");
    let reported = std::fs::read_to_string(report).unwrap();
    assert!(reported.contains("dafs: cat, process"), "{reported}");
}

#[test]
fn an_installed_command_finds_the_installed_library() {
    if !has(&["make", "install", "cat"]) {
        return;
    }
    let place = Place::new();
    std::fs::write(place.path("export/file"), "of the server\n").unwrap();
    let command = place.path("prefix/bin/dafs");
    std::fs::create_dir_all(command.parent().unwrap()).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_dafs"), &command).unwrap();
    let exec = || {
        let mut command = std::process::Command::new(&command);
        command.env_remove("DAFS_PRELOAD_LIBRARY");
        let map = format!("/here={}", place.url(""));
        text(&command.args(["exec", "--map", &map, "--", "cat", "/here/file"]).output().unwrap())
    };
    let (told, errors) = exec();
    assert_eq!(told, "");
    assert!(errors.contains("libdafs_preload.so is neither at"), "{errors}");
    assert!(errors.contains("make install-preload"), "{errors}");
    let made = std::process::Command::new("make")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .args(["--silent", "install-preload"])
        .arg(format!("PRELOAD={}", library().display()))
        .arg(format!("PREFIX={}", place.path("prefix").display()))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made).1);
    assert_eq!(exec(), ("of the server\n".to_owned(), String::new()));
}

#[test]
fn mistakes_are_told_before_the_program_starts() {
    let run = |map: &str, library: &Path| {
        let mut command = dafs();
        command.env("DAFS_PRELOAD_LIBRARY", library).env_remove("DAFS_PRELOAD_MAP");
        let output = command.args(["exec", "--map", map, "--", "echo", "ran"]).output().unwrap();
        assert!(!output.status.success());
        let (told, errors) = text(&output);
        assert_eq!(told, "");
        errors
    };
    assert!(run("/dafs", &library()).contains("PREFIX=URL"));
    assert!(run("dafs=dafs://localhost/", &library()).contains("not an absolute path"));
    assert!(run("/dafs=http://localhost/", &library()).contains("http"));
    let errors = run("/dafs=dafs://localhost/", Path::new("/nowhere.so"));
    assert!(errors.contains("/nowhere.so, which is not a file"), "{errors}");
    let output = dafs().args(["exec", "--", "echo"]).env_remove("DAFS_PRELOAD_MAP").output();
    assert!(text(&output.unwrap()).1.contains("--map"));
}
