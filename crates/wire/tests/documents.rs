//! Checks that `docs/spec/messages.md` matches the code, by generating it from the procedure table.
//! Set `DAFS_WRITE_DOCUMENTS=1` to write it again.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use dafs_wire::attributes::{AttributeLayout, file, file_system};
use dafs_wire::{FieldLayout, HEADER_BYTES, Procedure, ReplyBound};

const PREAMBLE: &str = "\
# Messages

`crates/wire/tests/documents.rs` generates this page from the procedure table; do not edit it.

This page lists the layout of each message of DAFS. A message is a request or a response. It
consists of a header of 40 bytes, a fixed section, and a heap. The fixed section has the fields of
the message's procedure, and its size depends only on the procedure. The heap has the data of
variable size.

All offsets and sizes are in bytes. In the layout of a procedure, each line is a field: first the
offset of the field in its section, then the size of the field. \"offset of\" marks a field that is
a u32 and leads to data in the heap. Its value counts from the start of the section that contains
the field, and the data starts at a multiple of eight. Bytes that belong to no field are zero.
[gaps.md](gaps.md) explains the decisions about layouts that the draft of DAFS 1.0 leaves open.

## Request header

```text
   0        2        4        6        8       10       12       14
   +--------+--------+--------+--------+--------+--------+--------+--------+
   | magic \"DAFS\"    | version         | desired| chain  | stream | seq    |
   |                 |                 | _nreq  | _flags | _id    | _number|
   +--------+--------+--------+--------+--------+--------+--------+--------+
16 | analyzer (opaque64)               | checksum S2, S1 | cred_handle     |
   +--------+--------+--------+--------+--------+--------+--------+--------+
32 | procedure       | request_len     |
   +--------+--------+--------+--------+
```

## Response header

```text
   0        2        4        6        8       10       12       14
   +--------+--------+--------+--------+--------+--------+--------+--------+
   | magic \"DAFR\"    | version         | target | spec   | stream | seq    |
   |                 |                 | _nreq  | _cond  | _id    | _number|
   +--------+--------+--------+--------+--------+--------+--------+--------+
16 | analyzer (opaque64)               | checksum S2, S1 | status          |
   +--------+--------+--------+--------+--------+--------+--------+--------+
32 | response_len    | reserved (0)    |
   +--------+--------+--------+--------+
```

## Counted arrays, path names, attributes

```text
array of u8 or 4-aligned elements   0 count | 4 elements ...
array of elements aligned on 8      0 count | 4 zero | 8 elements ...
path name                           0 count | 4 zero | 8 string, each on a multiple of 8 ...
string                              0 byte count | 4 bytes ...
direct buffer (16)                  0 target address | 8 bytes | 12 region handle
file chunk (16)                     0 offset | 8 bytes | 12 cache hint
batch request (96)                  0 file handle | 64 request id | 72 state id | 80 direction
                                    84 offset of chunks | 88 offset of buffers | 92 checksum
completion (24)                     0 request id | 8 status | 12 bytes | 16 checksum | 20 zero
directory entry (16)                0 cookie | 8 offset of attributes | 12 offset of name
authentication method (16)          0 type | 4 offset of oid | 8 qop | 12 service
fence identities                    0 count | 4 offsets of strings ...
access control entry (16)           0 kind | 4 flags | 8 rights | 12 offset of who
attribute block                     0 included | 8 valid | 16 included attributes in order
time (16)                           0 seconds | 8 nanoseconds | 12 zero
settable time (24)                  0 time | 16 how (1 server's, 2 this) | 20 zero
change_info (24)                    0 before | 8 after | 16 atomic | 20 zero
```

## Unions

The layout of a union depends on the type that its field contains. Below, the fields for each type
follow the name and number of that type. Offsets count from the start of the field that contains the
union.

```text
auth request (16)     0 type | text: 4 offset of identity, 8 offset of password
                               gss: 4 procedure, 8 service, 12 offset of token
auth result (16)      0 type | gss: 4 major, 8 minor, 12 offset of token
server proof (12)     0 type | text: 4 offset of identity, 8 offset of password
credentials (16)      0 type | name 0 or gss 2: 4 offset of name
                               id 1: 4 uid, 8 gid, 12 offset of groups
new object (20)       0 type | link: 4 offset of text; device: 4 major, 12 minor
open target (88)      0 claim | 4 zero | 8 handle
                               null 0, delegate_prev 3: 72 offset of path
                               previous 1: 72 delegation type
                               delegate_cur 2: 72 offset of path, 76 zero, 80 state id
                               create_unlinked 4: nothing more
open creation (24)    0 open type | 4 zero | 8 create mode | 12 zero
                               unchecked 0, guarded 1: 16 offset of attributes
                               exclusive 2: 16 verifier
delegation (48)       0 type | 4 zero | 8 state id | 16 recall
                               read 1: 20 ace type, 24 flag, 28 mask, 32 offset of who
                               write 2: 20 limit by (1 size, 2 blocks)
                                        24 size, or 24 blocks and 28 bytes of each
                                        32 ace type, 36 flag, 40 mask, 44 offset of who
conflict (40)         0 client id | 8 offset of owner | 12 zero | 16 offset | 24 length
                                        32 lock type | 36 zero
share key (16)        0 type (0 none, 3 both) | 4 zero | 8 key
session options (36)  checksums | response cache | credentials | request size | response size
                      | requests | inline write header | back-control channel | rdma-read channel
```
";

const PROCEDURES: &str = "\
The table has a row for each procedure:

- *chain*: the positions in a chain that a request of this procedure may have. A chain is a sequence
  of requests of which each runs only if those before it succeeded.
- *replay*: whether the server stores the reply, so that a client that has lost its connection can
  ask for it.
- *rights*: the clients that may send the request.
- *reply*: the length of a reply after success.

The words in the first three of these columns are the variants of `ChainClass`, `ReplayClass` and
`RightsClass` in `crates/wire/src/procedure.rs`, where comments explain them.

";

fn document() -> String {
    let mut text = PREAMBLE.to_owned();
    text.push_str("\n## File attributes\n\n");
    attributes(&mut text, file::FILE_ATTRIBUTES);
    text.push_str("\n## File-system attributes\n\n");
    attributes(&mut text, file_system::FS_ATTRIBUTES);
    text.push_str("\n## Procedures\n\n");
    text.push_str(PROCEDURES);
    text.push_str("| number | name | chain | replay | rights | reply, bytes |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for procedure in Procedure::ALL {
        let bound = match procedure.reply_bound() {
            ReplyBound::Fixed => format!("{}", procedure.reply_bytes_max()),
            ReplyBound::Heap(_) => format!("at most {}", procedure.reply_bytes_max()),
            ReplyBound::Session => "the session's response size".to_owned(),
        };
        let (chain, replay) = (procedure.chain_class(), procedure.replay_class());
        writeln!(
            text,
            "| {} | {} | {chain:?} | {replay:?} | {:?} | {bound} |",
            procedure.number(),
            procedure.name(),
            procedure.rights_class(),
        )
        .expect("a string takes everything");
    }
    for procedure in Procedure::ALL {
        writeln!(text, "\n### {} {}", procedure.number(), procedure.name()).expect("text");
        section(&mut text, "Request", procedure.request_fields(), procedure.request_fixed_bytes());
        let size = procedure.response_fixed_bytes();
        section(&mut text, "Response", procedure.response_fields(), size);
    }
    text
}

fn attributes(text: &mut String, table: &[AttributeLayout]) {
    text.push_str("| number | name | kind | size | alignment |\n|---|---|---|---|---|\n");
    for layout in table {
        let (size, alignment) = layout.kind.layout();
        let (number, name, kind) = (layout.number, layout.name, layout.kind);
        writeln!(text, "| {number} | {name} | {kind:?} | {size} | {alignment} |").expect("text");
    }
}

fn section(text: &mut String, what: &str, fields: &[FieldLayout], size: usize) {
    if fields.is_empty() {
        writeln!(text, "\n{what}: the header of {HEADER_BYTES} bytes, and nothing else.")
            .expect("text");
        return;
    }
    let head = format!("{what}: the header of {HEADER_BYTES} bytes, the fixed section of {size}");
    writeln!(text, "\n{head} bytes, and the heap.\n\n```text").expect("text");
    let mut end = 0;
    for field in fields {
        if field.offset > end {
            writeln!(text, "{end:>4} {:>3}  (zero)", field.offset - end).expect("text");
        }
        let FieldLayout { name, kind, offset, size } = field;
        writeln!(text, "{offset:>4} {size:>3}  {name}: {kind}").expect("text");
        end = offset + size;
    }
    if end < size {
        writeln!(text, "{end:>4} {:>3}  (zero)", size - end).expect("text");
    }
    text.push_str("```\n");
}

#[test]
fn the_document_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec/messages.md");
    let expected = document();
    if std::env::var_os("DAFS_WRITE_DOCUMENTS").is_some() {
        fs::write(&path, &expected).expect("a writable document");
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(present == expected, "run this test with DAFS_WRITE_DOCUMENTS=1");
}
