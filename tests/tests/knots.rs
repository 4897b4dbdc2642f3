//! Limits how the parts of a crate depend on each other: cycles of modules that import each other,
//! and structs with many fields.
//!
//! A module is a file. It imports another one if it names an item of it by a path from `crate`,
//! `super` or `self`, in a `use` or elsewhere in its code. Tests and comments do not count. A
//! module that only re-exports the contents of its folder is not part of a cycle as long as the
//! modules in the folder name each other and not it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{root, walk};

/// For each crate that is checked, by folder: the maximum number of modules in a cycle of imports,
/// and the maximum number of fields of a struct. The goals are five and twenty. Larger numbers may
/// only decrease.
const LIMITS: &[(&str, usize, usize)] = &[
    ("client", 5, 20),
    ("server", 5, 20),
    ("filer", 8, 20),
    ("sessions", 6, 20),
    ("nfs-state", 5, 20),
    ("rpcrdma", 5, 20),
    ("files", 5, 20),
];

/// The maximum number of server files that add methods to the reactor, which can access everything.
/// A file that needs less gets only what it needs. This number may only decrease.
const REACTOR_FILES_MAX: usize = 19;

type Module = Vec<String>;

#[test]
fn modules_import_each_other_in_small_circles_only() {
    for &(folder, limit, _) in LIMITS {
        let circle = longest_circle(&modules_of(folder));
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        let count = names.len();
        assert!(count <= limit, "{count} modules of {folder} import each other: {names:?}");
    }
}

#[test]
fn no_struct_has_more_fields_than_a_reader_can_hold() {
    for &(folder, _, limit) in LIMITS {
        for (module, text) in modules_of(folder) {
            for (name, count) in fields_in(&text) {
                let place = module.join("::");
                assert!(count <= limit, "{folder}::{place}::{name} has {count} fields");
            }
        }
    }
}

#[test]
fn few_files_reach_everything_that_the_server_has() {
    let modules = modules_of("server");
    let reaching = modules.iter().filter(|(_, code)| code.contains("impl Reactor<"));
    let names: Vec<String> = reaching.map(|(module, _)| module.join("::")).collect();
    let count = names.len();
    assert!(count <= REACTOR_FILES_MAX, "{count} files have an `impl Reactor`: {names:?}");
}

/// Returns the code of each module of a crate, without comments and tests.
fn modules_of(folder: &str) -> BTreeMap<Module, String> {
    let source = root().join("crates").join(folder).join("src");
    let mut files = Vec::new();
    walk(&source, &mut files);
    assert!(files.len() > 5, "the files of {folder} were not found");
    let module = |path: &Path| {
        let inside = path.strip_prefix(&source).unwrap().with_extension("");
        let mut names: Module =
            inside.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        if names.last().is_some_and(|last| last == "mod") || matches!(&names[..], [n] if n == "lib")
        {
            names.pop();
        }
        names
    };
    files.iter().map(|path| (module(path), code_of(path))).collect()
}

fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    // A visibility such as `pub(in path)` names a module without importing it.
    let mut parts = code.split("pub(in ");
    let first = parts.next().unwrap().to_owned();
    let code = parts.fold(first, |code, part| code + "pub" + part.split_once(')').unwrap().1);
    // No string in the code contains two slashes followed by a brace.
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Returns the largest set of modules in which each module reaches every other one.
fn longest_circle(modules: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let imports: BTreeMap<&Module, BTreeSet<Module>> =
        modules.iter().map(|(module, code)| (module, imports_of(module, code, modules))).collect();
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        modules.keys().map(|module| (module, reach(module, &imports))).collect();
    let circle = |module: &Module| -> BTreeSet<Module> {
        let back = |other: &&Module| reached[*other].contains(module);
        reached[module].iter().filter(back).cloned().collect()
    };
    modules.keys().map(circle).max_by_key(BTreeSet::len).unwrap_or_default()
}

/// Returns all modules that one reaches. It reaches itself only in a cycle.
fn reach(from: &Module, imports: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = vec![from];
    while let Some(module) = open.pop() {
        for next in &imports[module] {
            if found.insert(next.clone()) {
                open.push(imports.keys().find(|known| **known == next).unwrap());
            }
        }
    }
    found
}

/// Returns the modules whose names occur in the code of another one.
fn imports_of(module: &Module, code: &str, modules: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    for path in paths_in(code) {
        let mut segments = path.iter().map(String::as_str).peekable();
        let mut here = match segments.peek() {
            Some(&"crate") => {
                segments.next();
                Module::new()
            }
            Some(&("self" | "super")) => {
                let mut here = module.clone();
                while let Some(up) = segments.next_if(|s| matches!(*s, "self" | "super")) {
                    if up == "super" {
                        here.pop();
                    }
                }
                here
            }
            // A module in the folder of this one.
            _ => module.clone(),
        };
        for segment in segments {
            let mut inside = here.clone();
            inside.push(segment.to_owned());
            if !modules.contains_key(&inside) {
                break;
            }
            here = inside;
        }
        // Items of the crate's root that everything imports are not a module of their own.
        if here != *module && !here.is_empty() {
            found.insert(here);
        }
    }
    found
}

/// Returns every path in a piece of code. Nested `use` declarations are expanded.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("::") {
        let start = rest[..at].rfind(|c: char| !is_of_name(c)).map_or(0, |place| place + 1);
        let (path, behind) = read_path(&rest[start..]);
        let is_group = behind.starts_with("::{");
        if is_group {
            let end = matching(&behind[2..]).map_or(behind.len(), |end| end + 3);
            for part in parts_of(&behind[3..end - 1]) {
                for mut inner in paths_in_part(part) {
                    let mut whole = path.clone();
                    whole.append(&mut inner);
                    paths.push(whole);
                }
            }
            rest = &behind[end..];
        } else {
            paths.push(path);
            rest = behind.strip_prefix("::").unwrap_or(behind);
        }
    }
    paths
}

/// Returns the paths of one part of a group, which may be a group itself.
fn paths_in_part(part: &str) -> Vec<Vec<String>> {
    let part = part.trim();
    if part.contains("::") {
        return paths_in(part);
    }
    vec![read_path(part).0]
}

/// Reads a path at the beginning of a text. Returns it and the rest.
fn read_path(text: &str) -> (Vec<String>, &str) {
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
        path.push(rest[..end].to_owned());
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(next) if next.starts_with(is_of_name) => rest = next,
            _ => return (path, rest),
        }
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the position of the closing brace for the text's opening one.
fn matching(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Splits a text at the commas outside of brackets.
fn parts_of(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0_usize);
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '{' | '(' | '[' | '<' => depth += 1,
            // The arrow of a function type is not a bracket.
            '>' if before == '-' || before == '=' => {}
            '}' | ')' | ']' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Returns the structs with named fields in a piece of code, and their numbers of fields.
fn fields_in(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("struct ") {
        let is_word = code[..at].chars().next_back().is_none_or(|before| !is_of_name(before));
        let rest = &code[at + "struct ".len()..];
        let name: String = rest.chars().take_while(|c| is_of_name(*c)).collect();
        let Some(head) = rest.find(['{', ';', '(']) else { continue };
        if !is_word || name.is_empty() || !rest[head..].starts_with('{') {
            continue;
        }
        let Some(end) = matching(&rest[head..]) else { continue };
        let body: Vec<&str> = rest[head + 1..head + end].lines().collect();
        let is_attribute = |line: &&str| line.trim().starts_with("#[");
        let body: Vec<&str> = body.into_iter().filter(|line| !is_attribute(line)).collect();
        found.push((name, parts_of(&body.join("\n")).len()));
    }
    found
}

#[test]
fn a_circle_is_found_however_its_modules_name_each_other() {
    let code = [
        ("a", "use crate::b::{self, Thing, c::{Deep, Deeper}};"),
        ("b", "fn f() { super::d::act(); }"),
        ("b::c", "use super::Thing;"),
        ("d", "pub(crate) fn act() -> crate::a::Answer { std::mem::take(x) }"),
        ("e", "use crate::a::Answer;"),
    ];
    let modules = code.map(|(name, code)| {
        (name.split("::").map(str::to_owned).collect::<Module>(), code.to_owned())
    });
    let circle = longest_circle(&modules.into_iter().collect());
    let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
    assert_eq!(names, ["a", "b", "b::c", "d"]);
}

#[test]
fn fields_are_counted_whatever_their_types() {
    let code = "pub struct A<T> { a: u8, b: Vec<(u8, T)>, c: Box<dyn Fn(u8) -> [u8; 2]>, }
                struct B(u8, u8); struct C; struct D {} struct E {
                #[serde(default, skip)]
                a: u8 }";
    let expected = [("A", 3), ("D", 0), ("E", 1)];
    assert_eq!(fields_in(code), expected.map(|(name, count)| (name.to_owned(), count)));
}
