//! What a server keeps of files takes no space that was given up.

mod place;
mod program;

use place::Place;
use program::{await_that, dafs};

#[test]
fn a_file_that_is_removed_beside_the_server_takes_no_space_any_more() {
    let place = Place::new();
    std::fs::write(place.path("big"), vec![1; 1 << 20]).unwrap();
    let status = dafs().arg("cp").arg(place.path("big")).arg(place.url("big")).status().unwrap();
    assert!(status.success());
    let held_without_name = || {
        let descriptors = format!("/proc/{}/fd", place.server_id());
        let links = std::fs::read_dir(descriptors).unwrap().flatten();
        let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        targets.filter(|target| target.to_string_lossy().ends_with("/big (deleted)")).count()
    };
    std::fs::remove_file(place.path("export/big")).unwrap();
    await_that("the server lets go of it", || held_without_name() == 0);
    // Another of the name is another file.
    std::fs::write(place.path("export/big"), "small").unwrap();
    let output = dafs().arg("cat").arg(place.url("big")).output().unwrap();
    assert_eq!(output.stdout, b"small");
}
