//! Checks what is installed: the symbols, the header, the manual, and the example of docs/c.md.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::{
    STRICT, Served, TRANSPORTS, archive, crate_path, has, library, repository, succeed,
};

fn text(output: &std::process::Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn header() -> String {
    std::fs::read_to_string(repository("include/dafs.h")).unwrap()
}

/// Returns the names of all functions that the header declares.
fn functions() -> BTreeSet<String> {
    let header = header();
    let code = header.lines().filter(|line| !line.starts_with("//") && !line.starts_with(' '));
    let declared = code.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        (name.starts_with("dap_") && !line.starts_with("typedef")).then(|| name.to_owned())
    });
    let declared: BTreeSet<String> = declared.collect();
    assert!(declared.len() > 40, "{declared:?}");
    declared
}

#[test]
fn symbols_are_those_of_the_header_with_a_version() {
    let object = library().join("libdafs.so.0");
    let listed = text(&succeed(Command::new("readelf").args(["-W", "--dyn-syms"]).arg(&object)));
    let defined = listed.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The version is also a symbol, but in no section.
        let is_ours = fields.len() >= 8 && !["UND", "ABS", "Ndx"].contains(&fields[6]);
        (is_ours && fields[4] != "LOCAL").then(|| fields[7].to_owned())
    });
    let expected = functions().into_iter().map(|name| format!("{name}@@DAFS_1.0"));
    assert_eq!(defined.collect::<BTreeSet<_>>(), expected.collect::<BTreeSet<_>>());
    let dynamic = text(&succeed(Command::new("readelf").args(["-W", "-d"]).arg(&object)));
    assert!(dynamic.contains("soname: [libdafs.so.0]"), "{dynamic}");
}

#[test]
fn the_header_is_c11_and_cpp17_by_itself() {
    for (compiler, language, standard) in [("cc", "c", "c11"), ("c++", "c++", "c++17")] {
        let mut command = Command::new(compiler);
        command.args(STRICT).arg("-fsyntax-only").arg(format!("-std={standard}"));
        // A header alone may not be included twice, but a source may include it twice.
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("source");
        std::fs::write(&source, "#include <dafs.h>\n#include <dafs.h>\nextern int empty;\n")
            .unwrap();
        command.arg("-I").arg(repository("include")).args(["-x", language]).arg(&source);
        let output = succeed(&mut command);
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_manual_names_every_function_as_the_header_declares_it() {
    let manual = std::fs::read_to_string(crate_path("dafs.3")).unwrap();
    let code: String = header()
        .lines()
        .filter(|line| !line.starts_with("//"))
        .fold(String::new(), |all, line| all + " " + line.trim());
    for name in functions() {
        let line = manual.lines().find(|line| line.contains(&format!("{name}(")));
        let line = line.unwrap_or_else(|| panic!("{name} is not in the manual"));
        let declared = line.trim_start_matches(".B ").replace("\\-", "-");
        assert!(code.contains(&declared), "the header has {declared} in another way");
    }
    if has("man") {
        let mut man = Command::new("man");
        man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "200").args(["--warnings", "-l"]);
        let output = succeed(man.arg(crate_path("dafs.3")));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Installs into a directory of this test.
fn install(prefix: &Path) {
    let mut make = Command::new("make");
    make.current_dir(repository(".")).arg("install-c");
    make.arg(format!("ARCHIVE={}", archive().display()));
    succeed(make.arg(format!("PREFIX={}", prefix.display())));
}

/// Returns the first program in a language from the documentation.
fn documented_program(language: &str) -> String {
    let page = std::fs::read_to_string(repository("docs/c.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Returns what pkg-config prints for the library.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let said = text(&succeed(command.args(arguments).arg("dafs")));
    said.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_documented_example_runs_with_what_is_installed() {
    if !has("pkg-config") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let prefix = place.path().join("prefix");
    install(&prefix);
    for name in ["lib/libdafs.so", "lib/libdafs.a", "include/dafs.h", "share/man/man3/dafs.3"] {
        assert!(prefix.join(name).exists(), "{name}");
    }
    assert_eq!(pkg_config(&prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let source = place.path().join("cat.c");
    std::fs::write(&source, documented_program("c")).unwrap();
    for is_static in [false, true] {
        let program = place.path().join("cat");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"]).arg(&source);
        if is_static {
            cc.args(pkg_config(&prefix, &["--cflags"])).arg(prefix.join("lib/libdafs.a"));
            let libraries = pkg_config(&prefix, &["--static", "--libs"]);
            cc.args(libraries.iter().filter(|library| *library != "-ldafs"));
        } else {
            cc.args(pkg_config(&prefix, &["--cflags", "--libs"]));
        }
        succeed(cc.arg("-o").arg(&program));
        for transport in TRANSPORTS {
            let served = Served::start(transport);
            std::fs::write(served.local("model.txt"), "a model\n").unwrap();
            let mut cat = Command::new(&program);
            if !is_static {
                cat.env("LD_LIBRARY_PATH", prefix.join("lib"));
            }
            let output = succeed(cat.args([&served.url, "/model.txt"]));
            assert_eq!(text(&output), "a model\n");
            let missing = Command::new(&program)
                .env("LD_LIBRARY_PATH", prefix.join("lib"))
                .args([&served.url, "/missing"])
                .output()
                .unwrap();
            assert_eq!(missing.status.code(), Some(1));
            assert!(String::from_utf8_lossy(&missing.stderr).contains("/missing"));
        }
    }
}
