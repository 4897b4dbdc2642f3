//! The bodies of the fuzz targets, so that plain tests can run them too, and the generator of valid
//! messages. Not part of the public interface.
//!
//! Invariant: no input causes a panic, and a message that decodes can be encoded, and decoded again
//! to the same value.

mod generate;
pub mod nfs4;

use std::sync::OnceLock;

pub use generate::generate;

use crate::nfs4::attributes::ATTRIBUTES;
use crate::nfs4::{callbacks, compound, layout_bodies};
use crate::rpc::{self, decode_call, encode_call};
use crate::table::{Codec, Program, codec};
use crate::xdr::{Payload, Reader, Writer, XdrError};
use crate::{PROGRAMS, nfs3};

/// Returns the codecs of all types that are sent as a whole, with their names.
#[must_use]
pub fn codecs() -> Vec<(String, Codec)> {
    let mut all = vec![
        ("AUTH_SYS".to_owned(), codec!(rpc::AuthSys<'b>)),
        ("credential".to_owned(), codec!(rpc::Auth<'b>)),
        ("reply".to_owned(), codec!(rpc::Reply<'b>)),
        ("RPCSEC_GSS credential".to_owned(), codec!(rpc::gss::GssCredential<'b>)),
        ("RPCSEC_GSS init arguments".to_owned(), codec!(rpc::gss::GssInitArguments<'b>)),
        ("RPCSEC_GSS init results".to_owned(), codec!(rpc::gss::GssInitResults<'b>)),
        ("RPCSEC_GSS integrity".to_owned(), codec!(rpc::gss::GssIntegrity<'b>)),
        ("RPCSEC_GSS privacy".to_owned(), codec!(rpc::gss::GssPrivacy<'b>)),
    ];
    for program in PROGRAMS {
        for row in program.rows {
            let name = |what| format!("{} {} {what}", program.name, row.name);
            all.push((name("arguments"), row.arguments));
            all.push((name("results"), row.results));
        }
    }
    all.push(("CB_COMPOUND arguments".to_owned(), codec!(compound::CallbackCompound<'b>)));
    all.push(("CB_COMPOUND results".to_owned(), codec!(compound::CallbackReply<'b>)));
    all.push(("CB_NOTIFY rename".to_owned(), codec!(callbacks::RenamedEntry<'b>)));
    all.extend([
        ("file device".to_owned(), codec!(layout_bodies::FileDevice<'b>)),
        ("file layout".to_owned(), codec!(layout_bodies::FileLayout<'b>)),
        ("flexible device".to_owned(), codec!(layout_bodies::FlexibleDevice<'b>)),
        ("flexible layout".to_owned(), codec!(layout_bodies::FlexibleLayout<'b>)),
        ("flexible return".to_owned(), codec!(layout_bodies::FlexibleReturn<'b>)),
    ]);
    for row in ATTRIBUTES {
        all.push((format!("attribute {}", row.name), row.codec));
    }
    all
}

/// Decodes bytes with one codec. Checks that the value, when it is encoded and decoded again, stays
/// the same.
pub fn same_again(codec: Codec, bytes: &[u8]) {
    let Ok(once) = (codec.recode)(bytes) else { return };
    assert!(once.len() <= bytes.len(), "an encoded value is longer than the message it came from");
    assert_eq!((codec.recode)(&once).as_deref(), Ok(&once[..]), "a value changed");
}

/// Decodes arbitrary bytes as a value of one of the types. The first two bytes select the type.
pub fn value(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first_chunk::<2>() else { return };
    static ALL: OnceLock<Vec<(String, Codec)>> = OnceLock::new();
    let all = ALL.get_or_init(codecs);
    let index = usize::from(u16::from_be_bytes(*choice)) % all.len();
    same_again(all[index].1, bytes);
}

/// Decodes arbitrary bytes as a call of any program.
pub fn call(data: &[u8]) {
    let mut reader = Reader::new(data);
    let Ok(call) = decode_call(&mut reader) else { return };
    let _ = call.credential.credential();
    let mut writer = Writer::new();
    encode_call(&call, &mut writer);
    let mut again = Reader::new(writer.bytes());
    let decoded = decode_call(&mut again).expect("what was encoded decodes");
    assert_eq!(rpc::Call { header: call.header, ..decoded }, call, "a call changed");
    let named = |program: &&Program| program.number == call.program;
    for program in PROGRAMS.iter().filter(named) {
        if let Some(row) = program.rows.iter().find(|row| row.number == call.procedure) {
            same_again(row.arguments, reader.rest());
        }
    }
    write(data);
}

/// Decodes arbitrary bytes as a WRITE of NFS version 3 that arrives in several parts.
fn write(data: &[u8]) {
    let mut reader = Reader::new(data);
    let whole = decode_call(&mut reader)
        .map(|_| nfs3::Arguments::decode(nfs3::Procedure::Write, &mut reader));
    for arrived in 0..data.len().min(512) {
        let first = &data[..arrived];
        let Ok(Some(found)) = nfs3::write_under_way(first, data.len()) else { continue };
        let Ok(Ok(nfs3::Arguments::Write(arguments))) = &whole else {
            panic!("a WRITE was announced and is none");
        };
        let Payload::Here(bytes) = arguments.data else { panic!("the data is here") };
        let at = found.place;
        assert_eq!(&data[at.start..at.end()], bytes, "the data is elsewhere");
        assert_eq!(arguments.offset, found.arguments.offset, "the arguments differ");
        assert_eq!(found.arguments.data, Payload::Elsewhere(bytes.len()));
        let missing = at.end().saturating_sub(arrived);
        let mut around = Reader::around(first, missing, &data[arrived + missing..]);
        decode_call(&mut around).expect("the same call");
        let again = nfs3::Arguments::decode(nfs3::Procedure::Write, &mut around);
        assert_eq!(again, Ok(nfs3::Arguments::Write(found.arguments)));
        assert_eq!(around.left(), reader.left(), "the same bytes follow");
    }
}

/// Returns a call of a program's procedure with generated arguments, for the corpus.
#[must_use]
pub fn generated_call(program: &Program, row: usize, seed: u64) -> Vec<u8> {
    let procedure = program.rows[row].number;
    let call = rpc::Call {
        xid: seed as u32,
        program: program.number,
        version: program.version,
        procedure,
        credential: rpc::Auth::NONE,
        verifier: rpc::Auth::NONE,
        header: &[],
    };
    let mut writer = Writer::new();
    encode_call(&call, &mut writer);
    let mut bytes = writer.into_buffer();
    generate(program.rows[row].arguments.shape, seed, &mut bytes);
    bytes
}

/// Returns the error of decoding these bytes; `None` if they are a valid value of the type.
#[must_use]
pub fn refusal(codec: Codec, bytes: &[u8]) -> Option<XdrError> {
    (codec.recode)(bytes).err()
}
