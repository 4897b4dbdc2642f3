//! Checks that `docs/spec/operations.md` matches the code, by generating it from the tables. Set
//! `DAFS_WRITE_DOCUMENTS=1` to write it again.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use dafs_ops::{Done, Fault, Layout, Operation};

const PREAMBLE: &str = "\
# Operations as bytes

`crates/ops/tests/documents.rs` generates this page from the tables in `crates/ops/src`; do not edit
it.

This page specifies how the server encodes operations and outcomes as bytes. An operation describes
a change or a query of files, and an outcome describes its result. The server writes both to its
journal; [journal.md](journal.md) specifies the files of the journal. The server also stores a
waiting request as an operation. Operations are not DAFS messages: a server converts the requests of
its clients, in whichever protocol, into operations.

The format has no version. Each kind of operation, result and fault has a number, given in the
headings and tables below. A number never gets another meaning, and the fields of its kind never
change. If an operation needs other fields, it becomes a new kind with a new number. So a server can
read the bytes that an earlier server has written.

All integers are little-endian. There is no padding between or after fields. The decoder refuses
input with bytes left after the last field, and input of more than 4 MiB. The table lists the forms
of fields, in the notation of the layouts below, and the bytes that encode them:

| form | bytes |
|---|---|
| u8, u16, u32, u64, i64 | 1, 2, 4, 8 or 8 bytes |
| n bytes | n bytes, unchanged |
| boolean | 0 or 1 |
| bytes | length u32, then the bytes |
| text | the same form; the bytes are UTF-8 |
| names | count u32, then each: length u32, bytes |
| list of X | count u32, at most 4096; then each X |
| [X] | the byte 0 for no value, or the byte 1 and then X |
| one of A \\| B | the number of one of them, one byte, then its fields |
| (a X, b Y) | X, then Y |
| u8 of a named kind | the number of the kind in DAFS 1.0 |

Names are the bytes of the file system, in any encoding. A path is the list of its names, from the
first directory to the last component. A file handle has 64 bytes.

An outcome begins with one byte: 0 if the operation succeeded, and 1 if it was refused. After the
byte 0 comes one of the results below. After the byte 1 comes one of the faults below, and then
additional information in one of four forms. The first byte of the information is the form's number:

- 0: no information.
- 1: how far a lookup got: the last object found (handle, 64 bytes) and component_count (u32).
- 2: the attributes that were set before the failure (u64, one bit for each).
- 3: the conflicting lock: client u64, owner (length u32, then the bytes), offset u64, length u64,
  mode (1 read, 2 write).

An origin identifies the request that caused an operation. Its fields are front u8 (the protocol of
the request), session u64, slot u32, sequence u32 and index u16. Their meaning depends on the front:

- 1, DAFS: the slot is the stream, the sequence is the number of the request on its stream, and the
  index is the number of the procedure.
- 2, NFS version 3, which has no sessions. The upper half of the session is the CRC-32C of the bytes of
  the client's address, and the lower half is that of the machine name, user, group and other groups in
  the credential (big-endian; 0 without a credential). The slot is the CRC-32C of the first 256 bytes of
  the arguments. The sequence is the number of the call (xid), and the index is the procedure.
- 3, NFS versions 4.1 and 4.2: the session is the first half of the session's id (big-endian), slot and
  sequence are those of the SEQUENCE, and the index is the position of the operation in its compound.
";

fn document() -> String {
    let mut text = PREAMBLE.to_owned();
    text.push_str("\n## Forms of several values\n\n```text\n");
    for (name, form) in Layout::forms() {
        writeln!(text, "{name}: {form}").expect("a string takes everything");
    }
    text.push_str("```\n\n## Operations\n");
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
    text.push_str("```text\n");
    for (name, kind) in &layout.fields {
        writeln!(text, "{name}: {kind}").expect("text");
    }
    text.push_str("```\n");
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
