//! Encodes values as bytes. The macros turn one declaration into a type, its codec and its
//! description for the documents.
//!
//! Invariant: `take` decodes exactly the bytes that `put` can produce, and returns `None` for all
//! others. It allocates memory only in proportion to the number of bytes that it has read.

use std::borrow::Cow;

use dafs_types::{
    AccessMask, Ace, AceFlags, AceKind, AceRights, CacheHint, CachePattern, ChangeInfo, ClientId,
    CookieVerifier, DeleteDisposition, DeviceNumber, FenceAccess, FenceObject, FenceUpdate,
    FileAttributes, FileHandle, FileSystemAttributes, FsHandle, ObjectType, ReaddirCookie,
    RemoveMode, SetTime, ShareAccess, ShareDeny, ShareKey, SpaceLimit, Stability, StateId,
    Timestamp, Verifier,
};

use crate::done::{Done, Outcome, Refusal};
use crate::origin::FrontId;

/// The maximum length in bytes of an encoded operation or outcome. A listing is by far the longest.
pub const ENCODED_BYTES_MAX: usize = 4 << 20;
/// The maximum number of elements in a list: entries of a page, fence identities, or entries of an
/// access control list. Code that builds a list must not exceed it.
pub const LIST_COUNT_MAX: usize = 4096;

/// A value that can be encoded as bytes.
pub(crate) trait Code<'m>: Sized {
    /// Returns a description of the encoding, for the generated documents.
    fn kind() -> String;
    /// Appends the encoded value.
    fn put(&self, to: &mut Vec<u8>);
    /// Decodes a value from the start of `from`, and removes its bytes. `None` if the bytes are
    /// invalid.
    fn take(from: &mut &'m [u8]) -> Option<Self>;
}

/// Decodes a value whose encoding must take all of the bytes. `None` if it does not.
pub(crate) fn take_whole<'m, T: Code<'m>>(bytes: &'m [u8]) -> Option<T> {
    let mut rest = bytes.get(..bytes.len().min(ENCODED_BYTES_MAX + 1))?;
    let value = T::take(&mut rest)?;
    (bytes.len() <= ENCODED_BYTES_MAX && rest.is_empty()).then_some(value)
}

/// Appends an encoded outcome to `to`: the byte 0 and the result, or the byte 1 and the refusal.
pub fn encode_outcome(outcome: &Outcome<'_>, to: &mut Vec<u8>) {
    match outcome {
        Ok(done) => {
            to.push(0);
            done.encode(to);
        }
        Err(refusal) => {
            to.push(1);
            refusal.encode(to);
        }
    }
}

/// Decodes an outcome. `None` if the bytes are invalid.
#[must_use]
pub fn decode_outcome(bytes: &[u8]) -> Option<Outcome<'_>> {
    let (which, bytes) = bytes.split_first()?;
    match which {
        0 => Done::decode(bytes).map(Ok),
        1 => Refusal::decode(bytes).map(Err),
        _ => None,
    }
}

/// A field of a record: its name, and a function that returns a description of its encoding.
pub(crate) type Field = (&'static str, fn() -> String);

/// A value that consists of fields, encoded one after the other.
pub(crate) trait Record<'m>: Code<'m> {
    /// Returns the fields in order.
    fn fields() -> Vec<Field>;
}

/// Declares a struct that is encoded as its fields, one after the other.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$about:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$about])* pub $field: $type,)*
        }

        impl<'m> $crate::codec::Record<'m> for $name $(<$life>)? {
            fn fields() -> Vec<$crate::codec::Field> {
                vec![$((stringify!($field), <$type as $crate::codec::Code<'m>>::kind),)*]
            }
        }

        impl<'m> $crate::codec::Code<'m> for $name $(<$life>)? {
            fn kind() -> String {
                $crate::codec::list(&<Self as $crate::codec::Record<'m>>::fields())
            }

            #[allow(unused_variables, reason = "a record may have no fields")]
            fn put(&self, to: &mut Vec<u8>) {
                $($crate::codec::Code::put(&self.$field, to);)*
            }

            #[allow(unused_variables, reason = "a record may have no fields")]
            fn take(from: &mut &'m [u8]) -> Option<Self> {
                Some(Self { $($field: $crate::codec::Code::take(from)?,)* })
            }
        }
    };
}
pub(crate) use record;

/// Declares an enum that is encoded as the number of its variant and that variant's fields.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$about:meta])* $variant:ident = $number:literal $({
            $($(#[$detail:meta])* $field:ident: $type:ty,)*
        })?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name $(<$life>)? {
            $($(#[$about])* $variant $({ $($(#[$detail])* $field: $type,)* })?,)*
        }

        impl<'m> $crate::codec::Code<'m> for $name $(<$life>)? {
            fn kind() -> String {
                let arms = [$({
                    let fields: &[$crate::codec::Field] = &[$($(
                        (stringify!($field), <$type as $crate::codec::Code<'m>>::kind),
                    )*)?];
                    $crate::codec::arm($number, stringify!($variant), fields)
                },)*];
                format!("one of {}", arms.join(" | "))
            }

            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field,)* })? => {
                        to.push($number);
                        $($($crate::codec::Code::put($field, to);)*)?
                    })*
                }
            }

            fn take(from: &mut &'m [u8]) -> Option<Self> {
                Some(match u8::take(from)? {
                    $($number => Self::$variant $({
                        $($field: $crate::codec::Code::take(from)?,)*
                    })?,)*
                    _ => return None,
                })
            }
        }
    };
}
pub(crate) use choice;

/// Declares a table of numbered rows as an enum that has one variant, with one record, for each
/// row. A value is encoded as the row's number and the record's fields.
macro_rules! table {
    ($(#[$head:meta])* $of:ident $kind:literal;
        $($(#[$about:meta])* $variant:ident = $number:literal $name:literal
            $record:ident $(<$life:lifetime>)?;)*) => {
        $(#[$head])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "one is alive for each request, on the stack")]
        pub enum $of<'m> {
            $($(#[$about])* $variant($record $(<$life>)?),)*
        }

        impl $of<'_> {
            /// Returns the number of the value's row.
            #[must_use]
            pub const fn number(&self) -> u8 {
                match self {
                    $(Self::$variant(_) => $number,)*
                }
            }

            /// Appends the encoded value to `to`.
            pub fn encode(&self, to: &mut Vec<u8>) {
                to.push(self.number());
                match self {
                    $(Self::$variant(record) => record.put(to),)*
                }
            }

            /// Returns the layouts of all rows, in the order of their numbers.
            #[must_use]
            pub fn layouts() -> Vec<Layout> {
                vec![$(Layout::of::<$record>($number, $name),)*]
            }
        }

        impl<'m> Code<'m> for $of<'m> {
            fn kind() -> String {
                $kind.to_owned()
            }

            fn put(&self, to: &mut Vec<u8>) {
                self.encode(to);
            }

            fn take(from: &mut &'m [u8]) -> Option<Self> {
                Some(match u8::take(from)? {
                    $($number => Self::$variant(Code::take(from)?),)*
                    _ => return None,
                })
            }
        }
    };
}
pub(crate) use table;

/// Returns a description of consecutive fields, for the generated documents.
pub(crate) fn list(fields: &[Field]) -> String {
    let parts: Vec<String> =
        fields.iter().map(|(name, kind)| format!("{name} {}", kind())).collect();
    format!("({})", parts.join(", "))
}

/// Returns a description of one variant of an enum, for the generated documents.
pub(crate) fn arm(number: u8, name: &str, fields: &[Field]) -> String {
    let fields = if fields.is_empty() { String::new() } else { format!(" {}", list(fields)) };
    format!("{number} {name}{fields}")
}

/// Returns the names and descriptions of the encodings that have a name, for the generated
/// documents.
pub(crate) fn forms() -> Vec<(String, String)> {
    fn of<'m, T: Record<'m>>() -> (String, String) {
        (T::kind(), list(&T::fields()))
    }
    vec![
        of::<Timestamp>(),
        of::<DeviceNumber>(),
        of::<ChangeInfo>(),
        of::<Ace>(),
        of::<Settings>(),
        (SetTime::kind(), format!("one of 0 Server | 1 Client ({})", Timestamp::kind())),
        (
            SpaceLimit::kind(),
            "one of 1 Size (u64) | 2 Blocks (count u32, block_bytes u32)".to_owned(),
        ),
    ]
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl<'m> Code<'m> for $type {
            fn kind() -> String {
                stringify!($type).to_owned()
            }
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut &'m [u8]) -> Option<Self> {
                take_array(from).map(Self::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i64);

/// Implements the codec for newtypes, which are encoded like the value that they contain.
macro_rules! wrappers {
    ($($type:ident: $inner:ty, $kind:literal;)*) => {$(
        impl<'m> Code<'m> for $type {
            fn kind() -> String {
                $kind.to_owned()
            }
            fn put(&self, to: &mut Vec<u8>) {
                self.0.put(to);
            }
            fn take(from: &mut &'m [u8]) -> Option<Self> {
                <$inner>::take(from).map(Self)
            }
        }
    )*};
}

wrappers! {
    AccessMask: u32, "u32 rights";
    AceFlags: u32, "u32 flags";
    AceRights: u32, "u32 rights";
    CacheHint: u32, "u32 hint";
    ClientId: u64, "u64 client";
    CookieVerifier: [u8; 8], "8 bytes";
    FileHandle: [u8; 64], "64 bytes";
    FrontId: u8, "u8 front";
    FsHandle: [u8; 16], "16 bytes";
    ReaddirCookie: u64, "u64 cookie";
    ShareKey: u64, "u64 key";
    StateId: u64, "u64 state";
    Verifier: [u8; 8], "8 bytes";
}

/// Implements the codec for enumerations whose numbers fit in one byte.
macro_rules! numbered {
    ($($type:ident, $kind:literal;)*) => {$(
        impl<'m> Code<'m> for $type {
            fn kind() -> String {
                concat!("u8 ", $kind).to_owned()
            }
            fn put(&self, to: &mut Vec<u8>) {
                to.push(self.number() as u8);
            }
            fn take(from: &mut &'m [u8]) -> Option<Self> {
                Self::from_number(u32::from(u8::take(from)?))
            }
        }
    )*};
}

numbered! {
    AceKind, "kind of entry";
    CachePattern, "access pattern";
    DeleteDisposition, "delete disposition";
    FenceAccess, "fence access";
    FenceObject, "fence object";
    FenceUpdate, "fence update";
    ObjectType, "object type";
    RemoveMode, "remove mode";
    ShareAccess, "share access";
    ShareDeny, "share deny";
    Stability, "stability";
}

/// Implements the codec for structs of the crate `types`. If a field is missing from the list, the
/// code does not compile.
macro_rules! foreign {
    ($($type:ident $name:literal { $($field:ident: $kind:ty,)* })*) => {$(
        impl<'m> Record<'m> for $type {
            fn fields() -> Vec<Field> {
                vec![$((stringify!($field), <$kind as Code<'m>>::kind),)*]
            }
        }

        impl<'m> Code<'m> for $type {
            fn kind() -> String {
                $name.to_owned()
            }
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$field.put(to);)*
            }
            fn take(from: &mut &'m [u8]) -> Option<Self> {
                Some(Self { $($field: <$kind as Code<'m>>::take(from)?,)* })
            }
        }
    )*};
}

foreign! {
    Timestamp "time" { seconds: i64, nanoseconds: u32, }
    DeviceNumber "device" { major: u64, minor: u64, }
    ChangeInfo "change" { before: u64, after: u64, atomic: bool, }
    Ace "access control entry" { kind: AceKind, flags: AceFlags, rights: AceRights, who: String, }
    FileAttributes "attributes" {
        named_attributes: Option<bool>,
        object_type: Option<ObjectType>,
        mode: Option<u32>,
        link_count: Option<u32>,
        change: Option<u64>,
        size: Option<u64>,
        file_id: Option<u64>,
        space_used: Option<u64>,
        time_access: Option<Timestamp>,
        time_create: Option<Timestamp>,
        time_delta: Option<Timestamp>,
        time_metadata: Option<Timestamp>,
        time_modify: Option<Timestamp>,
        raw_device: Option<DeviceNumber>,
        file_handle: Option<FileHandle>,
        acl: Option<Vec<Ace>>,
        mime_type: Option<String>,
        owner: Option<String>,
        owner_group: Option<String>,
    }
    FileSystemAttributes "file-system attributes" {
        link_support: Option<bool>,
        symlink_support: Option<bool>,
        can_set_time: Option<bool>,
        case_insensitive: Option<bool>,
        case_preserving: Option<bool>,
        chown_restricted: Option<bool>,
        homogeneous: Option<bool>,
        no_trunc: Option<bool>,
        unique_handle: Option<bool>,
        lease_time: Option<u32>,
        rd_attr_error: Option<u32>,
        acl_support: Option<u32>,
        max_link: Option<u32>,
        max_name: Option<u32>,
        supported_file_attributes: Option<u64>,
        supported_fs_attributes: Option<u64>,
        files_available: Option<u64>,
        files_free: Option<u64>,
        files_total: Option<u64>,
        max_file_size: Option<u64>,
        max_read: Option<u64>,
        max_write: Option<u64>,
        quota_hard: Option<u64>,
        quota_soft: Option<u64>,
        quota_used: Option<u64>,
        space_available: Option<u64>,
        space_free: Option<u64>,
        space_total: Option<u64>,
        fs_handle: Option<FsHandle>,
        max_append: Option<u64>,
        preferred_io_size: Option<u32>,
        handle_expire_type: Option<u32>,
    }
}

/// The attributes to set, as defined in the crate `types`.
pub(crate) type Settings = dafs_types::SetAttributes;

foreign! {
    Settings "settings" {
        mode: Option<u32>,
        size: Option<u64>,
        time_access: Option<SetTime>,
        time_modify: Option<SetTime>,
        acl: Option<Vec<Ace>>,
        mime_type: Option<String>,
        owner: Option<String>,
        owner_group: Option<String>,
    }
}

impl<'m> Code<'m> for SetTime {
    fn kind() -> String {
        "time to set".to_owned()
    }

    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Server => to.push(0),
            Self::Client(time) => {
                to.push(1);
                time.put(to);
            }
        }
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(Self::Server),
            1 => Some(Self::Client(Timestamp::take(from)?)),
            _ => None,
        }
    }
}

impl<'m> Code<'m> for SpaceLimit {
    fn kind() -> String {
        "space limit".to_owned()
    }

    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Size(size) => {
                to.push(1);
                size.put(to);
            }
            Self::Blocks { count, block_bytes } => {
                to.push(2);
                count.put(to);
                block_bytes.put(to);
            }
        }
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        match u8::take(from)? {
            1 => Some(Self::Size(u64::take(from)?)),
            2 => Some(Self::Blocks { count: u32::take(from)?, block_bytes: u32::take(from)? }),
            _ => None,
        }
    }
}

impl<'m> Code<'m> for bool {
    fn kind() -> String {
        "boolean".to_owned()
    }

    fn put(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<'m, const N: usize> Code<'m> for [u8; N] {
    fn kind() -> String {
        format!("{N} bytes")
    }

    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        take_array(from)
    }
}

impl<'m, T: Code<'m>> Code<'m> for Option<T> {
    fn kind() -> String {
        format!("[{}]", T::kind())
    }

    fn put(&self, to: &mut Vec<u8>) {
        match self {
            None => to.push(0),
            Some(value) => {
                to.push(1);
                value.put(to);
            }
        }
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        match bool::take(from)? {
            false => Some(None),
            true => T::take(from).map(Some),
        }
    }
}

impl<'m, T: Code<'m>> Code<'m> for Vec<T> {
    fn kind() -> String {
        format!("list of {}", T::kind())
    }

    fn put(&self, to: &mut Vec<u8>) {
        put_count(self.len(), to);
        self.iter().for_each(|value| value.put(to));
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        let count = u32::take(from)? as usize;
        if count > LIST_COUNT_MAX {
            return None;
        }
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl<'m> Code<'m> for &'m [u8] {
    fn kind() -> String {
        "bytes".to_owned()
    }

    fn put(&self, to: &mut Vec<u8>) {
        put_count(self.len(), to);
        to.extend_from_slice(self);
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        let length = u32::take(from)? as usize;
        let (bytes, rest) = from.split_at_checked(length)?;
        *from = rest;
        Some(bytes)
    }
}

impl<'m> Code<'m> for Cow<'m, [u8]> {
    fn kind() -> String {
        <&[u8]>::kind()
    }

    fn put(&self, to: &mut Vec<u8>) {
        put_count(self.len(), to);
        to.extend_from_slice(self);
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        <&[u8]>::take(from).map(Cow::Borrowed)
    }
}

impl<'m> Code<'m> for String {
    fn kind() -> String {
        "text".to_owned()
    }

    fn put(&self, to: &mut Vec<u8>) {
        self.as_bytes().put(to);
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        std::str::from_utf8(<&[u8]>::take(from)?).ok().map(str::to_owned)
    }
}

/// Encodes a count or length. A value above `u32::MAX` is encoded as `u32::MAX` and cannot be
/// decoded, but this does not happen, because [`ENCODED_BYTES_MAX`] keeps all counts far below
/// that.
pub(crate) fn put_count(count: usize, to: &mut Vec<u8>) {
    u32::try_from(count).unwrap_or(u32::MAX).put(to);
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (front, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*front)
}
