//! Checks that `docs/spec/operations.md` matches the code, by generating it from the tables. Set
//! `DAFS_WRITE_DOCUMENTS=1` to write it again.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use dafs_ops::{Done, Fault, Layout, Operation};

const PREAMBLE: &str = "\
# Operations as bytes

Made from the tables in `crates/ops/src` by `crates/ops/tests/documents.rs`; do not edit.

An operation says what is to be done to files, and an outcome what it came to. The journal keeps
both ([journal.md](journal.md) has the log around them), and a request that waits is kept as one.
They are no messages of DAFS: a server turns its clients' requests into them.

There is no version. A number never gets another meaning, and the fields behind it never change:
what needs others gets a new number. So bytes that an earlier server wrote stay readable.

All numbers are little-endian, and nothing is padded. What is decoded must end where its bytes end,
and at most 4 MiB are looked at.

| form | bytes |
|---|---|
| u8, u16, u32, u64, i64 | that many |
| n bytes | that many, as they are |
| truth | 0 or 1 |
| bytes | length u32, then the bytes |
| text | the same, and the bytes are UTF-8 |
| names | count u32, then each: length u32, bytes |
| list of X | count u32, at most 4096; then so many X |
| [X] | 0 alone, or 1 and then X |
| one of A \\| B | the number of one of them, one byte, then its fields |
| (a X, b Y) | X, then Y |
| u8 of a named kind | the number that the kind has in DAFS 1.0 |

Names are the bytes that the file system has. A path is its names in order. A handle is 64 bytes.

An outcome is one byte, and then: behind 0 a result, behind 1 a refusal. A refusal is a fault, and
then what is known besides: one of 0 nothing | 1 how far a walk got (file 64 bytes,
component_count u32) | 2 attributes that were set (u64) | 3 a lock in the way (client u64,
owner u32 length and bytes, offset u64, length u64, mode 1 read or 2 write).

An origin names the request that an operation was asked for in: front u8 (1 is DAFS), session
u64, slot u32, sequence u32, index u16. DAFS has the stream as slot, the number of the request on
its stream as sequence, and the number of the procedure as index.
";

fn document() -> String {
    let mut text = PREAMBLE.to_owned();
    text.push_str("\n## Forms of several values\n\n");
    for (name, form) in Layout::forms() {
        writeln!(text, "- {name}: {form}").expect("a string takes everything");
    }
    text.push_str("\n## Operations\n");
    Operation::layouts().iter().for_each(|layout| row(&mut text, layout));
    text.push_str("\n## Results\n");
    Done::layouts().iter().for_each(|layout| row(&mut text, layout));
    text.push_str("\n## Faults\n\n| number | fault |\n|---|---|\n");
    for fault in Fault::ALL {
        writeln!(text, "| {} | {} |", fault.number(), fault.text()).expect("text");
    }
    for fault in [Fault::Unavailable(0), Fault::Front(0)] {
        let more = if matches!(fault, Fault::Front(_)) { "u32 number" } else { "u16 node" };
        writeln!(text, "| {} | {}; then {more} |", fault.number(), fault.text()).expect("text");
    }
    text
}

fn row(text: &mut String, layout: &Layout) {
    writeln!(text, "\n### {} {}\n", layout.number, layout.name).expect("text");
    if layout.fields.is_empty() {
        text.push_str("No fields.\n");
        return;
    }
    for (name, kind) in &layout.fields {
        writeln!(text, "- `{name}`: {kind}").expect("text");
    }
}

#[test]
fn the_document_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec/operations.md");
    let expected = document();
    if std::env::var_os("DAFS_WRITE_DOCUMENTS").is_some() {
        fs::write(&path, &expected).expect("a writable document");
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(present == expected, "run this test with DAFS_WRITE_DOCUMENTS=1");
}
