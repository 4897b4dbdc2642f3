//! Checks that every place which `ARCHITECTURE.md` names exists.
//!
//! A path in backticks is relative to the repository, to `crates`, or to the crate or folder that
//! was named last. A name followed by parentheses, such as `serve()`, is a function in the file
//! that was named last, or in a file of the folder that was named last.

use std::path::{Path, PathBuf};

use crate::{root, walk};

#[test]
fn every_place_that_the_architecture_names_is_there() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let missing = missing(&text);
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:#?}");
    assert!(quoted(&text).filter(|token| is_path(token)).count() > 50, "no paths were found");
}

#[test]
fn what_is_not_there_is_noticed() {
    let none: &[&str] = &[];
    for (text, wanted) in [
        ("`tests/tests/house.rs` with `root()` and `walk()`, and `named.rs`", none),
        ("`server/src/requests/serve.rs`, `lib.rs`", none),
        (
            "`server/src`, which has `a_function_that_nobody_has()`",
            &["a_function_that_nobody_has()"],
        ),
        ("`server/src/no-such.rs`", &["server/src/no-such.rs"]),
        ("`tests/tests/house.rs` with `no_such()`", &["no_such()"]),
        ("`serve.rs`", &["serve.rs"]),
        ("`Client::wait`, `make test`, `DAFS_REQUIRE_KDC=1`", none),
    ] {
        assert_eq!(missing(text), wanted, "{text}");
    }
}

/// Returns the names that do not exist.
fn missing(text: &str) -> Vec<String> {
    let mut last: Option<PathBuf> = None;
    let mut missing = Vec::new();
    for token in quoted(text) {
        if is_path(token) {
            match find(token, last.as_deref()) {
                Some(found) => last = Some(found),
                None => missing.push(token.to_owned()),
            }
        } else if let Some(function) = function_in(token)
            && !last.as_deref().is_some_and(|place| has_function(place, function))
        {
            missing.push(token.to_owned());
        }
    }
    missing
}

/// Returns the texts in backticks. Each is in one line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn is_path(token: &str) -> bool {
    let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let is_one = token.contains('/') || token.ends_with(".rs");
    is_one && token.chars().all(is_of_path) && !token.starts_with('/')
}

fn function_in(token: &str) -> Option<&str> {
    let name = token.strip_suffix("()")?;
    let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    (is_name && !name.is_empty()).then_some(name)
}

fn find(token: &str, last: Option<&Path>) -> Option<PathBuf> {
    let mut places = vec![root(), root().join("crates")];
    if let Some(last) = last {
        places.extend(last.parent().map(Path::to_path_buf));
        places.push(last.to_path_buf());
        // Up to the source folder of the crate.
        let sources = last.ancestors().find(|place| place.ends_with("src"));
        places.extend(sources.map(Path::to_path_buf));
    }
    places.iter().map(|place| place.join(token)).find(|path| path.exists())
}

fn has_function(place: &Path, function: &str) -> bool {
    let mut files = Vec::new();
    if place.is_dir() {
        walk(place, &mut files);
    } else {
        files.push(place.to_path_buf());
    }
    let is_there =
        |text: String| ["(", "<"].iter().any(|next| text.contains(&format!("fn {function}{next}")));
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).any(is_there)
}
