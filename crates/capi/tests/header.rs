//! Checks that `include/dafs.h` matches the crate.

use std::path::{Path, PathBuf};

/// The source files of the header, in order.
const SOURCES: &[&str] = &[
    "types",
    "failure",
    "client",
    "connect",
    "file",
    "close",
    "sync_io",
    "memory",
    "wait",
    "async_io",
    "batch",
    "names",
    "setattr",
    "directory",
    "lock",
    "fence",
];

fn generated() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(here.join("src").join(name).with_extension("rs"));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/dafs.h")
}

#[test]
fn the_header_is_what_the_crate_says() {
    let text = generated();
    if std::env::var_os("DAFS_WRITE_HEADER").is_some() {
        std::fs::write(committed(), &text).unwrap();
    }
    let there = std::fs::read_to_string(committed()).unwrap_or_default();
    let difference = text.lines().zip(there.lines()).find(|(new, old)| new != old);
    assert!(
        text == there,
        "include/dafs.h is not what the crate says, first {difference:?}; \
         DAFS_WRITE_HEADER=1 cargo test -p dafs-capi --test main header writes it"
    );
}

/// Every source file of the crate with a C function is listed in `SOURCES`.
#[test]
fn no_function_is_left_out() {
    let text = generated();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut count = 0;
    for file in std::fs::read_dir(sources).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for function in source.split("extern \"C\" fn ").skip(1) {
            let name = function.split('(').next().unwrap();
            if name.starts_with("dap_") {
                assert!(text.contains(&format!("{name}(")), "{name} is not in the header");
                count += 1;
            }
        }
    }
    assert!(count > 40, "{count} functions were found");
}
