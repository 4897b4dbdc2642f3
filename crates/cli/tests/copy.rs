//! `dafs cp` while its server is killed and started again.

use std::path::Path;
use std::process::{Child, Stdio};

use crate::place::Place;
use crate::program::{await_that, dafs};

impl Place {
    fn copy(&self, from: &str, to: &str) -> Child {
        dafs().args(["cp", "-r", from, to]).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 8 * 31 + seed) as u8 | 1).collect()
}

fn count(directory: &Path) -> usize {
    directory.read_dir().map_or(0, Iterator::count)
}

#[test]
fn what_a_killed_server_has_lost_is_copied_again() {
    let mut place = Place::new();
    std::fs::create_dir(place.path("tree")).unwrap();
    let length = |index: usize| if index.is_multiple_of(8) { 4 << 20 } else { index * 100 };
    for index in 0..FILES {
        let path = place.path("tree").join(index.to_string());
        std::fs::write(path, content(index, length(index))).unwrap();
    }
    let tree = place.path("tree");
    let copy = place.copy(tree.to_str().unwrap(), &place.url(""));
    let copied = place.path("export/tree");
    for enough in [FILES / 8, FILES / 2] {
        await_that("some files", || count(&copied) >= enough);
        place.kill_server();
        place.serve();
    }
    let output = copy.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for index in 0..FILES {
        let octets = std::fs::read(copied.join(index.to_string())).unwrap();
        assert!(octets == content(index, length(index)), "{index} differs");
    }
}

const FILES: usize = 200;
