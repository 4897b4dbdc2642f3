//! The bodies of the fuzz targets for NFS version 4.
//!
//! Invariants: no input causes a panic. A message that was decoded is encoded as the same bytes
//! again, except for padding. A message that is cut off never has more operations than the whole
//! message.

use super::generate;
use crate::nfs4::attributes::{ATTRIBUTES, AttributeRow, parse_fattr};
use crate::nfs4::compound::Call;
use crate::nfs4::directory::CreateArgs;
use crate::nfs4::open::{CreateHow, ExclusiveCreate, OpenArgs, OpenHow};
use crate::nfs4::{
    Answer, AttributeError, Bitmap, CallReader, CallWriter, Callback, CallbackAnswer, CallbackKind,
    Fattr, Operation, OperationKind, Reply, ReplyReader, ReplyWriter, Status,
};
use crate::xdr::{Reader, Shape, Writer, Xdr};

/// An initial input of a fuzz target: the name of the target, the name of the input, and its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// Returns one valid message for each operation, result, callback and attribute.
#[must_use]
pub fn seeds(seed: u64) -> Vec<Seed> {
    let mut all = Vec::new();
    for kind in OperationKind::ALL {
        let (number, name) = (kind.number(), kind.name());
        let mut call = vec![0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1];
        arm(<Operation<'_> as Xdr<'_>>::SHAPE, number, seed, &mut call);
        all.push(("nfs_wire_compound", name.to_owned(), call));
        let mut reply = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        arm(<Answer<'_> as Xdr<'_>>::SHAPE, number, seed, &mut reply);
        all.push(("nfs_wire_compound", format!("{name}-answer"), reply));
    }
    for kind in CallbackKind::ALL {
        let (number, name) = (kind.number(), kind.name());
        let mut call = vec![0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 1];
        arm(<Callback<'_> as Xdr<'_>>::SHAPE, number, seed, &mut call);
        all.push(("nfs_wire_callback", name.to_owned(), call));
        let mut reply = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        arm(<CallbackAnswer<'_> as Xdr<'_>>::SHAPE, number, seed, &mut reply);
        all.push(("nfs_wire_callback", format!("{name}-answer"), reply));
    }
    for row in ATTRIBUTES {
        all.push(("nfs_wire_fattr", row.name.to_owned(), encoded_attribute(row, seed)));
    }
    all
}

/// Returns a valid encoding of attributes that contains a generated value of one attribute.
#[must_use]
pub fn encoded_attribute(row: &AttributeRow, seed: u64) -> Vec<u8> {
    let mut value = Vec::new();
    generate(row.codec.shape, seed, &mut value);
    let mut writer = Writer::new();
    Bitmap::of(&[row.number]).encode(&mut writer);
    writer.count(value.len(), value.len());
    writer.raw(&value);
    writer.into_buffer()
}

/// Appends the number and generated content of an arm of a union.
pub fn arm(shape: &Shape, number: u32, seed: u64, out: &mut Vec<u8>) {
    let Shape::Union { arms, .. } = shape else { return };
    let Some((_, _, content)) = arms.iter().find(|arm| arm.0 == number) else { return };
    out.extend(number.to_be_bytes());
    generate(content, seed, out);
}

/// The maximum number of positions at which a message is cut off.
const CUTS_MAX: usize = 64;

/// Decodes arbitrary bytes as the arguments of COMPOUND and as its results.
pub fn compound(data: &[u8]) {
    let look = |operation: &Operation<'_>| fattr_of(operation).as_ref().map_or((), attributes);
    if let Some(once) = calls(data, look) {
        assert_eq!(calls(&once, look).as_ref(), Some(&once), "a compound changed");
    }
    if let Some(once) = replies::<Operation<'_>>(data, answer) {
        assert_eq!(replies::<Operation<'_>>(&once, answer), Some(once.clone()), "a reply changed");
    }
}

/// Decodes arbitrary bytes as the arguments of CB_COMPOUND and as its results.
pub fn callback(data: &[u8]) {
    let look = |_: &Callback<'_>| ();
    if let Some(once) = calls(data, look) {
        assert_eq!(calls(&once, look).as_ref(), Some(&once), "a compound changed");
    }
    let status = CallbackAnswer::status;
    if let Some(once) = replies::<Callback<'_>>(data, status) {
        assert_eq!(replies::<Callback<'_>>(&once, status), Some(once.clone()), "a reply changed");
    }
}

/// Decodes arbitrary bytes as the attributes of a file.
pub fn fattr(data: &[u8]) {
    if let Ok(fattr) = parse_fattr(data) {
        attributes(&fattr);
    }
}

/// Decodes attributes and encodes them again.
fn attributes(fattr: &Fattr<'_>) {
    match fattr.decode() {
        Ok(values) => {
            assert!(values.mask().is_same(&fattr.mask), "an attribute got lost");
            let bytes = values.to_bytes().expect("decoded attributes have an encoding");
            let again = parse_fattr(&bytes).expect("what was encoded decodes");
            assert_eq!(again.decode().as_ref(), Ok(&values), "attributes changed");
            assert!(again.values.len() <= fattr.values.len(), "attributes became longer");
        }
        Err(AttributeError::Unknown(number)) => assert!(fattr.mask.contains(number)),
        Err(AttributeError::Encoding(_) | AttributeError::Time) => {}
    }
}

/// Returns the attributes in the arguments of an operation.
fn fattr_of<'b>(operation: &Operation<'b>) -> Option<Fattr<'b>> {
    match operation {
        Operation::Verify(fattr) | Operation::NVerify(fattr) => Some(*fattr),
        Operation::SetAttr(arguments) => Some(arguments.attributes),
        Operation::Create(CreateArgs { attributes, .. }) => Some(*attributes),
        Operation::Open(OpenArgs { how: OpenHow::Create(how), .. }) => match how {
            CreateHow::Unchecked(fattr)
            | CreateHow::Guarded(fattr)
            | CreateHow::ExclusiveWithAttributes(ExclusiveCreate { attributes: fattr, .. }) => {
                Some(*fattr)
            }
            CreateHow::Exclusive(_) => None,
        },
        _ => None,
    }
}

/// Returns the status of an answer. Also checks the answer that [`Answer::failed`] makes for the
/// same operation.
fn answer(answer: &Answer<'_>) -> Status {
    let failed = Answer::failed(answer.kind(), Status::Io);
    assert_eq!((failed.kind(), failed.status()), (answer.kind(), Status::Io));
    if let Answer::GetAttr(Reply::Ok(fattr)) = answer {
        attributes(fattr);
    }
    answer.status()
}

/// Decodes the calls of a compound one by one, up to the first that is not valid, and encodes them
/// again. Returns `None` if the header is not valid.
fn calls<'b, C: Call<'b>>(data: &'b [u8], look: impl Fn(&C)) -> Option<Vec<u8>> {
    let mut reader = CallReader::<C>::new(Reader::new(data)).ok()?;
    let count = reader.count();
    assert!(count as usize * 4 <= data.len(), "a count is larger than the message allows");
    let mut writer = Writer::new();
    let header = (reader.tag(), reader.minor_version(), reader.ident());
    let mut copy = CallWriter::<C>::new(&mut writer, header.0, header.1, header.2);
    let mut found = 0;
    while let Some(Ok(call)) = reader.next_call() {
        if call.is_illegal() {
            break;
        }
        look(&call);
        copy.push(&mut writer, &call);
        found += 1;
    }
    assert!(found <= count, "a compound has more operations than it says");
    for cut in (0..data.len()).step_by(data.len() / CUTS_MAX + 1) {
        let part = Reader::partial(&data[..cut], data.len());
        let Ok(mut part) = CallReader::<C>::new(part) else { continue };
        let calls = std::iter::from_fn(|| part.next_call()).flatten();
        let seen = calls.filter(|call| !call.is_illegal()).count();
        assert!(seen <= found as usize, "a part of a message has more calls than the whole");
    }
    assert!(writer.length() <= data.len() + 3, "a compound became longer");
    Some(writer.contiguous().expect("decoded calls have an encoding").to_vec())
}

/// Decodes the answers of a compound one by one, up to the first that is not valid, and encodes
/// them again. Returns `None` if the header is not valid.
fn replies<'b, C: Call<'b>>(
    data: &'b [u8],
    status: impl Fn(&C::Answer) -> Status,
) -> Option<Vec<u8>> {
    let mut reader = ReplyReader::<C>::new(Reader::new(data)).ok()?;
    let count = reader.left();
    let mut writer = Writer::new();
    let mut copy = ReplyWriter::new(&mut writer, reader.tag());
    while let Some(Ok(answer)) = reader.next_answer() {
        let _ = status(&answer);
        copy.push(&mut writer, &answer);
    }
    assert!(copy.count() <= count, "a reply has more answers than it says");
    copy.finish(&mut writer, reader.status());
    assert!(writer.length() <= data.len() + 3, "a reply became longer");
    Some(writer.contiguous().expect("decoded answers have an encoding").to_vec())
}
