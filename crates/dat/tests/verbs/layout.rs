//! Checks the layouts of rdma-core's structures with a C compiler. Without a compiler or the
//! headers (libibverbs-dev, librdmacm-dev), the test is skipped.

use std::fmt::Write as _;
use std::process::Command;

use dafs_dat::verbs::raw::{PREFIXES, layouts};

/// Returns a program that prints the size of each structure and the offsets of its fields.
fn program() -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for (name, _, fields) in layouts() {
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
        for (field, _) in fields {
            let offset = format!("offsetof(struct {name}, {field})");
            writeln!(text, "printf(\"{name}.{field} %zu\\n\", {offset});").unwrap();
        }
    }
    text + "return 0; }\n"
}

/// Returns the output of the program, or why it cannot be compiled.
fn answers() -> Result<String, String> {
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (source, binary) = (place.path().join("layout.c"), place.path().join("layout"));
    std::fs::write(&source, program()).map_err(|error| error.to_string())?;
    let compiled = Command::new("cc").arg("-o").args([&binary, &source]).output();
    let compiled = compiled.map_err(|error| format!("no C compiler: {error}"))?;
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
        let is_missing = said.contains("rdma_cma.h");
        assert!(is_missing, "a structure or field is not rdma-core's: {said}");
        return Err("no headers of rdma-core".into());
    }
    let output = Command::new(&binary).output().map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn structures_are_as_c_has_them() {
    let answers = match answers() {
        Ok(answers) => answers,
        Err(why) => return dafs_tests::skip(why),
    };
    let number = |what: &str| -> usize {
        let line = answers.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {what}"))
    };
    for (name, size, fields) in layouts() {
        let theirs = number(name);
        let is_prefix = PREFIXES.contains(&name);
        assert!(size == theirs || is_prefix && size <= theirs, "{name}: {size}, in C {theirs}");
        for (field, offset) in fields {
            assert_eq!(offset, number(&format!("{name}.{field}")), "{name}.{field}");
        }
    }
}
