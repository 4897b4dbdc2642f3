//! The form of every message of NFSv4 is that of the specifications. `nfs4_forms.txt` has the forms
//! in a short notation. They were compared with the XDR descriptions in RFC 5662, RFC 7863, RFC
//! 8276 and RFC 9754: a difference is only that this crate lists or refuses numbers that a
//! description covers by a default arm.
//!
//! The notation: `w` 4 bytes, `h` 8 bytes, `f12` 12 bytes, `o` a length and bytes, `[..]` a count
//! and items, `c(..)` a chain of items, `<1=..,2=..;*=..>` a discriminant with its arms, of which
//! `*` is that for all other numbers and `!` an error.

use std::fmt::Write;

use dafs_nfs_wire::nfs4::attributes::ATTRIBUTES;
use dafs_nfs_wire::nfs4::callbacks::RenamedEntry;
use dafs_nfs_wire::nfs4::layout_bodies::{
    FileDevice, FileLayout, FlexibleDevice, FlexibleLayout, FlexibleReturn,
};
use dafs_nfs_wire::nfs4::{
    Answer, Callback, CallbackAnswer, CallbackKind, Operation, OperationKind,
};
use dafs_nfs_wire::xdr::{Shape, Xdr};

const FORMS: &str = include_str!("nfs4_forms.txt");

/// Returns the form of a type.
fn form(shape: &Shape) -> String {
    match shape {
        Shape::Void => String::new(),
        Shape::U32 | Shape::I32 | Shape::Enum { .. } | Shape::Bool => "w".to_owned(),
        Shape::U64 | Shape::I64 => "h".to_owned(),
        Shape::Fixed(length) => format!("f{length}"),
        Shape::Opaque { .. } | Shape::Payload => "o".to_owned(),
        Shape::Option(item) | Shape::List { item, .. } => format!("[{}]", form(item)),
        Shape::Chain { item, .. } => format!("c({})", form(item)),
        Shape::Struct { fields, .. } => fields.iter().map(|(_, field)| form(field)).collect(),
        Shape::Flags { number, .. } => form(number),
        Shape::Union { arms, other, .. } => {
            let arms = arms.iter().map(|(number, _, arm)| format!("{number}={}", form(arm)));
            let other = other.map_or_else(|| "!".to_owned(), |(_, arm)| form(arm));
            format!("<{};*={other}>", arms.collect::<Vec<_>>().join(","))
        }
    }
}

/// Returns the form of an arm.
fn arm(shape: &Shape, number: u32) -> String {
    let Shape::Union { arms, .. } = shape else { panic!("not a union") };
    let arm = arms.iter().find(|arm| arm.0 == number);
    form(arm.unwrap_or_else(|| panic!("no arm {number}")).2)
}

#[test]
fn every_message_has_the_form_of_the_specifications() {
    let mut forms = String::new();
    let mut add = |name: &str, form: String| {
        writeln!(forms, "{}", format!("{name} {form}").trim_end()).expect("a string takes all");
    };
    for kind in OperationKind::ALL {
        let (name, number) = (kind.name(), kind.number());
        add(&format!("{name} call"), arm(<Operation<'_> as Xdr<'_>>::SHAPE, number));
        add(&format!("{name} answer"), arm(<Answer<'_> as Xdr<'_>>::SHAPE, number));
    }
    for kind in CallbackKind::ALL {
        let (name, number) = (kind.name(), kind.number());
        add(&format!("{name} call"), arm(<Callback<'_> as Xdr<'_>>::SHAPE, number));
        add(&format!("{name} answer"), arm(<CallbackAnswer<'_> as Xdr<'_>>::SHAPE, number));
    }
    for row in ATTRIBUTES {
        add(&format!("attribute {} {}", row.number, row.name), form(row.codec.shape));
    }
    add("rename notification", form(<RenamedEntry<'_> as Xdr<'_>>::SHAPE));
    add("file device", form(<FileDevice<'_> as Xdr<'_>>::SHAPE));
    add("file layout", form(<FileLayout<'_> as Xdr<'_>>::SHAPE));
    add("flexible device", form(<FlexibleDevice<'_> as Xdr<'_>>::SHAPE));
    add("flexible layout", form(<FlexibleLayout<'_> as Xdr<'_>>::SHAPE));
    add("flexible return", form(<FlexibleReturn<'_> as Xdr<'_>>::SHAPE));
    if std::env::var_os("DAFS_WRITE_FORMS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nfs4_forms.txt");
        std::fs::write(path, &forms).expect("the file can be written");
        return;
    }
    for (found, expected) in forms.lines().zip(FORMS.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(forms.lines().count(), FORMS.lines().count());
}
