//! Checks of the prose: words that made readers stop do not come back, and a doc comment of a
//! public item says something.
//!
//! `docs/glossary.md` has the words to use. `tools/sample-prose` draws comments and paragraphs for
//! a reader to judge, which no machine can.

use std::path::Path;

use crate::{files_in, root};

/// Words and phrases to avoid, and what to write.
const AVOID: &[(&str, &str)] = &[
    ("octet", "byte"),
    ("octets", "bytes"),
    ("somebody", "a client, a process, a user"),
    ("nobody", "no client, no process, no user; `nobody` in backticks is the user"),
    ("whoever", "the client that, a process that"),
    ("whomever", "the client that"),
    ("let go", "release"),
    ("lets go", "releases"),
    ("be it", "whether"),
    ("is had", "name what has it"),
    ("who has not come in", "a client that has not authenticated"),
];

/// Words that the doc comment of a public item has at least.
const WORDS_MIN: usize = 4;

#[test]
fn comments_use_the_words_of_the_trade() {
    let mut found = Vec::new();
    for path in files_in("src", 50) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let comment =
                line.trim_start().strip_prefix("//").map(|rest| rest.trim_matches(['/', '!']));
            found.extend(avoided(comment.unwrap_or_default(), &path, number + 1));
        }
    }
    assert!(found.is_empty(), "docs/glossary.md has better words:\n{}", found.join("\n"));
}

#[test]
fn documents_use_the_words_of_the_trade() {
    let mut found = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code {
                found.extend(avoided(line, &path, number + 1));
            }
        }
    }
    assert!(found.is_empty(), "docs/glossary.md has better words:\n{}", found.join("\n"));
}

#[test]
fn doc_comments_of_public_items_say_something() {
    let mut found = Vec::new();
    for path in files_in("src", 50) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, comment, item) in short_comments(&text) {
            found.push(format!("{}:{number}: {comment:?} of {item}", shown(&path)));
        }
    }
    assert!(found.is_empty(), "write at least {WORDS_MIN} words:\n{}", found.join("\n"));
}

#[test]
fn bad_prose_is_noticed() {
    let place = Path::new("file.md");
    for (text, wanted) in [
        ("Sends an octet.", 1),
        ("Nobody waits, and whoever came is let go.", 3),
        ("Runs as `nobody`, or as \"nobody\".", 0),
        ("Calls `let go(octets)` of the old interface.", 0),
        ("Sends a byte to a client that waits.", 0),
    ] {
        assert_eq!(avoided(text, place, 1).len(), wanted, "{text}");
    }
    let code = "/// It.\n#[inline]\npub fn a() {}\n/// It.\nfn b() {}\n/// Returns the size in bytes.\n\
                pub fn c() {}\n/// It.\n/// Or not.\npub(crate) fn d() {}\n";
    let found: Vec<_> = short_comments(code).map(|(number, _, item)| (number, item)).collect();
    assert_eq!(found, [(1, "pub fn a() {}")]);
}

/// What one line says that it should not.
fn avoided(line: &str, path: &Path, number: usize) -> Vec<String> {
    // Code in backticks and quoted text have words of their own.
    let prose: String = line.split(['`', '"']).step_by(2).collect::<Vec<_>>().join("~");
    let words: Vec<String> = prose
        .split(|letter: char| !letter.is_alphanumeric() && letter != '~' && letter != '-')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let line = format!(" {} ", words.join(" "));
    let is_there = |phrase: &str| line.contains(&format!(" {phrase} "));
    let said = AVOID.iter().filter(|(phrase, _)| is_there(phrase));
    said.map(|(phrase, better)| format!("{}:{number}: {phrase:?}: write {better}", shown(path)))
        .collect()
}

/// Doc comments of public items that are too short: line, text, item.
fn short_comments(text: &str) -> impl Iterator<Item = (usize, String, &str)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let is_doc = |line: &&&str| line.starts_with("///") && !line.starts_with("////");
        let count = lines[at..].iter().take_while(is_doc).count();
        if count == 0 {
            at += 1;
            continue;
        }
        let comment = lines[at..at + count].iter().map(|line| line[3..].trim());
        let comment = comment.collect::<Vec<_>>().join(" ");
        let item = lines[at + count..].iter().find(|line| !line.starts_with("#["));
        if let Some(item) = item
            && item.starts_with("pub ")
            && comment.split_whitespace().count() < WORDS_MIN
        {
            found.push((at + 1, comment, *item));
        }
        at += count;
    }
    found.into_iter()
}

/// The pages of the repository.
fn documents() -> Vec<std::path::PathBuf> {
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];
    let mut found: Vec<_> = names.iter().map(|name| root().join(name)).collect();
    for folder in ["docs", "docs/decisions", "docs/operating", "docs/spec"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        let pages = entries.map(|entry| entry.unwrap().path());
        // The glossary names what it replaces.
        found.extend(pages.filter(|path| {
            path.extension().is_some_and(|extension| extension == "md")
                && !path.ends_with("glossary.md")
        }));
    }
    assert!(found.len() > 40, "the documents were not found");
    found
}

/// A path as people look for it.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
