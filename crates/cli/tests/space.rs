//! Tests that files held by a server do not take space after their removal.

use crate::place::Place;
use crate::program::{await_that, dafs};

/// Returns the number of the server's open files in the export that have no name.
fn held_without_name(place: &Place) -> usize {
    let descriptors = format!("/proc/{}/fd", place.server_id());
    let links = std::fs::read_dir(descriptors).unwrap().flatten();
    let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let export = place.path("export");
    let is_held = |target: &std::path::PathBuf| {
        target.starts_with(&export) && target.to_string_lossy().ends_with(" (deleted)")
    };
    targets.filter(is_held).count()
}

/// Some files are removed at the same time, so other threads close them.
#[test]
fn small_files_that_many_remove_take_no_space_any_more() {
    let place = Place::new();
    for transactions in ["200", "203"] {
        let run = ["postmark", "--in-flight", "8", "--files", "100", "--transactions"];
        let status = dafs().args(run).arg(transactions).arg(place.url("")).status().unwrap();
        assert!(status.success());
        await_that("the server lets go of all", || held_without_name(&place) == 0);
    }
    assert_eq!(std::fs::read_dir(place.path("export")).unwrap().count(), 0);
}

#[test]
fn a_file_that_is_removed_beside_the_server_takes_no_space_any_more() {
    let place = Place::new();
    std::fs::write(place.path("big"), vec![1; 1 << 20]).unwrap();
    let status = dafs().arg("cp").arg(place.path("big")).arg(place.url("big")).status().unwrap();
    assert!(status.success());
    std::fs::remove_file(place.path("export/big")).unwrap();
    await_that("the server lets go of it", || held_without_name(&place) == 0);
    // A new file with the same name is another file.
    std::fs::write(place.path("export/big"), "small").unwrap();
    let output = dafs().arg("cat").arg(place.url("big")).output().unwrap();
    assert_eq!(output.stdout, b"small");
}
