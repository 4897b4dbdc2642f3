//! `dafs exec`: programs that are sent to a server, and what it says of mistakes.

mod place;
// Each test program uses what it needs of it.
#[allow(dead_code)]
mod preloaded;
// Nothing is waited for here.
#[allow(dead_code)]
mod program;

use std::path::Path;
use std::process::Output;

use place::Place;
use preloaded::library;
use program::dafs;

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
    assert!(run("dafs=dafs://localhost/", &library()).contains("no absolute path"));
    assert!(run("/dafs=http://localhost/", &library()).contains("http"));
    let errors = run("/dafs=dafs://localhost/", Path::new("/nowhere.so"));
    assert!(errors.contains("/nowhere.so, which is no file"), "{errors}");
    let output = dafs().args(["exec", "--", "echo"]).env_remove("DAFS_PRELOAD_MAP").output();
    assert!(text(&output.unwrap()).1.contains("--map"));
}
