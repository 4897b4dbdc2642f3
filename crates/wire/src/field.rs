//! The kinds of fields in fixed sections, and the encoding of each kind.
//!
//! Invariant: the size and alignment of a field are constants of its kind, so that the layout of a
//! section can be computed (natural alignment, draft 6.1.1.1) and its size checked at compile time.

use dafs_types::limits::{
    LINK_TEXT_BYTES_MAX, NAME_BYTES_MAX, NAME_WIRE_BYTES_MAX, OWNER_BYTES_MAX,
};
use dafs_types::names;
use dafs_types::{
    AccessMask, AuthType, CacheHint, CachePattern, ChangeInfo, ClientId, CookieVerifier,
    CredHandle, DeleteDisposition, FileHandle, ObjectType, ReaddirCookie, RemoveMode, RequestId,
    SequenceNumber, SessionId, ShareAccess, ShareDeny, ShareKey, Stability, StateId, StreamId,
    Verifier,
};

use crate::checksum::Checksum;
use crate::error::{DecodeError, EncodeError};
use crate::header::status_from;
use crate::limits::{PRINCIPAL_BYTES_MAX, TOKEN_BYTES_MAX};
use crate::order::Order;
use crate::scope::{Scope, Writer};

/// The size, alignment and name of a kind of field.
pub(crate) trait Field {
    const SIZE: usize;
    const ALIGN: usize;
    const KIND: &'static str;
}

/// Decodes and encodes a value of type `V` as a field of this kind.
pub(crate) trait Codec<'a, V>: Field {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<V, DecodeError>;
    fn write<O: Order>(value: &V, writer: &mut Writer<'_, O>, at: usize)
    -> Result<(), EncodeError>;
}

/// Declares kinds of fields that hold one scalar.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $size:literal, $align:literal, $name:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) enum $kind {}
        impl Field for $kind {
            const SIZE: usize = $size;
            const ALIGN: usize = $align;
            const KIND: &'static str = $name;
        }
    )*};
}
pub(crate) use kinds;

kinds! {
    /// An integer of two bytes.
    Short: 2, 2, "u16";
    /// An integer of four bytes.
    Word: 4, 4, "u32";
    /// An integer of eight bytes.
    Long: 8, 8, "u64";
    /// Eight bytes that are never byte-swapped.
    Opaque64: 8, 8, "opaque64";
    /// Four bytes that are never byte-swapped.
    Opaque32: 4, 4, "opaque32";
    /// A boolean in one byte.
    Flag8: 1, 1, "boolean";
    /// A boolean in a u32.
    Flag32: 4, 4, "u32 boolean";
    /// The number of a variant of an enumeration.
    Enum: 4, 4, "enum";
    /// A stability level that must be DATA_SYNC or FILE_SYNC.
    AppendStability: 4, 4, "enum";
    /// A file handle of 64 bytes.
    Handle: 64, 8, "file handle";
    /// A checksum: two u16, so it is aligned to two bytes.
    Sum: 4, 2, "checksum";
    /// The change information of a directory.
    Change: 24, 8, "change_info";
    /// A key type, padding and a share key.
    Key: 16, 8, "key type, pad, key";
    /// The offset of a name in the heap (the variable part of the message).
    Name: 4, 4, "offset of name";
    /// The offset of an owner or client string in the heap (the variable part of the message).
    Owner: 4, 4, "offset of opaque8<>";
    /// The offset of a symbolic link's target in the heap (the variable part of the message).
    LinkText: 4, 4, "offset of text";
    /// The offset of a fence identity in the heap (the variable part of the message).
    FenceText: 4, 4, "offset of fence id";
    /// The offset of a principal's name in the heap (the variable part of the message).
    Principal: 4, 4, "offset of string";
    /// The offset of an authentication token in the heap (the variable part of the message).
    Token: 4, 4, "offset of opaque8<>";
    /// A status number.
    Outcome: 4, 4, "status";
}

/// Implements a codec for newtypes that contain one integer.
macro_rules! numbers {
    ($($kind:ident $get:ident $put:ident { $($ty:ty = $make:expr, $take:expr;)* })*) => {$($(
        impl<'a> Codec<'a, $ty> for $kind {
            #[inline(always)]
            fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<$ty, DecodeError> {
                Ok($make(scope.$get(at)?))
            }
            #[inline(always)]
            fn write<O: Order>(
                value: &$ty,
                writer: &mut Writer<'_, O>,
                at: usize,
            ) -> Result<(), EncodeError> {
                writer.$put(at, $take(value))
            }
        }
    )*)*};
}

numbers! {
    Short u16 put_u16 {
        StreamId = StreamId, |v: &StreamId| v.0;
        SequenceNumber = SequenceNumber, |v: &SequenceNumber| v.0;
    }
    Word u32 put_u32 {
        u32 = |v| v, |v: &u32| *v;
        AccessMask = AccessMask, |v: &AccessMask| v.0;
        CacheHint = CacheHint, |v: &CacheHint| v.0;
    }
    Long u64 put_u64 {
        u64 = |v| v, |v: &u64| *v;
        RequestId = RequestId, |v: &RequestId| v.0;
        ReaddirCookie = ReaddirCookie, |v: &ReaddirCookie| v.0;
    }
    Outcome u32 put_u32 {
        dafs_types::Status = status_from, |v: &dafs_types::Status| v.number();
    }
    Opaque64 array put {
        SessionId = |v| SessionId(u64::from_le_bytes(v)), |v: &SessionId| v.0.to_le_bytes();
        ClientId = |v| ClientId(u64::from_le_bytes(v)), |v: &ClientId| v.0.to_le_bytes();
        StateId = |v| StateId(u64::from_le_bytes(v)), |v: &StateId| v.0.to_le_bytes();
        Verifier = Verifier, |v: &Verifier| v.0;
        CookieVerifier = CookieVerifier, |v: &CookieVerifier| v.0;
    }
    Opaque32 array put {
        CredHandle = |v| CredHandle(u32::from_le_bytes(v)), |v: &CredHandle| v.0.to_le_bytes();
    }
    Handle array put {
        FileHandle = FileHandle, |v: &FileHandle| v.0;
    }
    Sum array put {
        Checksum = Checksum, |v: &Checksum| v.0;
    }
}

/// An enumeration whose variants have numbers in messages. No other numbers are valid.
pub(crate) trait Numbered: Copy {
    const WHAT: &'static str;
    fn of(number: u32) -> Option<Self>;
    fn to(self) -> u32;
}

macro_rules! numbered {
    ($($ty:ty = $what:literal;)*) => {$(
        impl $crate::field::Numbered for $ty {
            const WHAT: &'static str = $what;
            #[inline(always)]
            fn of(number: u32) -> Option<Self> {
                <$ty>::from_number(number)
            }
            #[inline(always)]
            fn to(self) -> u32 {
                self.number()
            }
        }
    )*};
}
pub(crate) use numbered;

numbered! {
    ObjectType = "object type";
    ShareAccess = "share access";
    ShareDeny = "share deny";
    Stability = "stability";
    CachePattern = "access pattern";
    RemoveMode = "remove mode";
    DeleteDisposition = "delete disposition";
    dafs_types::OpenClaim = "open claim";
}

impl Numbered for AuthType {
    const WHAT: &'static str = "authentication type";
    fn of(number: u32) -> Option<Self> {
        Self::from_number(number)
    }
    fn to(self) -> u32 {
        self as u32
    }
}

/// Declares an enumeration whose variants have numbers in messages. No other numbers are valid.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident, $what:literal {
        $($(#[$vdoc:meta])* $variant:ident = $number:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$vdoc])* $variant = $number,)*
        }

        impl $name {
            /// All variants in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the variant that has this number in messages. `None` if there is none.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the number of this variant in messages.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }
        }

        $crate::field::numbered! { $name = $what; }
    };
}
pub(crate) use wire_enum;

#[inline(always)]
pub(crate) fn read_enum<O: Order, T: Numbered>(
    scope: Scope<'_, O>,
    at: usize,
) -> Result<T, DecodeError> {
    let value = scope.u32(at)?;
    T::of(value).ok_or(DecodeError::Value { what: T::WHAT, value })
}

impl<'a, T: Numbered> Codec<'a, T> for Enum {
    #[inline(always)]
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<T, DecodeError> {
        read_enum(scope, at)
    }
    #[inline(always)]
    fn write<O: Order>(value: &T, w: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        w.put_u32(at, value.to())
    }
}

impl<'a> Codec<'a, Stability> for AppendStability {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<Stability, DecodeError> {
        match read_enum(scope, at)? {
            Stability::Unstable => Err(DecodeError::Value { what: "append stability", value: 0 }),
            stable => Ok(stable),
        }
    }
    fn write<O: Order>(
        value: &Stability,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        match value {
            Stability::Unstable => Err(EncodeError::Value { what: "an unstable append" }),
            Stability::DataSync | Stability::FileSync => writer.put_u32(at, value.number()),
        }
    }
}

impl<'a> Codec<'a, bool> for Flag8 {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<bool, DecodeError> {
        let [value] = scope.array(at)?;
        truth(u32::from(value))
    }
    fn write<O: Order>(value: &bool, w: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        w.put(at, [u8::from(*value)])
    }
}

impl<'a> Codec<'a, bool> for Flag32 {
    #[inline(always)]
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<bool, DecodeError> {
        truth(scope.u32(at)?)
    }
    #[inline(always)]
    fn write<O: Order>(value: &bool, w: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        w.put_u32(at, u32::from(*value))
    }
}

/// Decodes a boolean: 1 is true and 0 is false (draft 6.1.1.4). All other values are invalid.
#[inline(always)]
pub(crate) fn truth(value: u32) -> Result<bool, DecodeError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(DecodeError::Value { what: "boolean", value }),
    }
}

impl<'a> Codec<'a, ChangeInfo> for Change {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<ChangeInfo, DecodeError> {
        let atomic = truth(scope.u32(at + 16)?)?;
        scope.zeros(at + 20, at + 24)?;
        Ok(ChangeInfo { before: scope.u64(at)?, after: scope.u64(at + 8)?, atomic })
    }
    fn write<O: Order>(
        value: &ChangeInfo,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        writer.put_u64(at, value.before)?;
        writer.put_u64(at + 8, value.after)?;
        writer.put_u32(at + 16, u32::from(value.atomic))
    }
}

/// The number of `DAFS_OPEN_SHARE_KEY_BOTH` in the protocol.
const KEY_BOTH: u32 = 3;

impl<'a> Codec<'a, Option<ShareKey>> for Key {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<Option<ShareKey>, DecodeError> {
        scope.zeros(at + 4, at + 8)?;
        match scope.u32(at)? {
            // The draft defines no key type for "no reservation"; the key is ignored.
            0 => Ok(None),
            KEY_BOTH => Ok(Some(ShareKey(scope.u64(at + 8)?))),
            value => Err(DecodeError::Value { what: "share key type", value }),
        }
    }
    fn write<O: Order>(
        value: &Option<ShareKey>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        match value {
            None => Ok(()),
            Some(key) => {
                writer.put_u32(at, KEY_BOTH)?;
                writer.put_u64(at + 8, key.0)
            }
        }
    }
}

/// Checks a file name in a message: it must be UTF-8, not empty, and within the limit (draft 6.5.9,
/// 6.5.21). The name is encoded by [`names::to_wire`], but the limit applies to the decoded name.
pub(crate) fn check_name(bytes: &[u8]) -> Result<&str, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)?;
    if is_too_long(text) { Err(DecodeError::NameTooLong) } else { Ok(text) }
}

/// Returns true if the name that `text` encodes exceeds the limit for names.
pub(crate) fn is_too_long(text: &str) -> bool {
    text.len() > NAME_BYTES_MAX && names::length_of_wire(text) > NAME_BYTES_MAX
}

impl<'a> Codec<'a, &'a str> for Name {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<&'a str, DecodeError> {
        match scope.bytes_at(at, NAME_WIRE_BYTES_MAX, "name") {
            Ok(bytes) => check_name(bytes),
            Err(DecodeError::TooMany { .. }) => Err(DecodeError::NameTooLong),
            Err(error) => Err(error),
        }
    }
    fn write<O: Order>(v: &&'a str, w: &mut Writer<'_, O>, at: usize) -> Result<(), EncodeError> {
        if v.is_empty() {
            return Err(EncodeError::Value { what: "an empty name" });
        }
        if is_too_long(v) {
            return Err(EncodeError::TooMany { what: "name" });
        }
        w.bytes_at(at, v.as_bytes(), NAME_WIRE_BYTES_MAX, "name")
    }
}

/// Implements a codec for a field that contains the offset of counted bytes or text in the heap.
macro_rules! heap {
    ($($kind:ident $ty:ty, $max:expr, $what:literal, $read:expr, $write:expr;)*) => {$(
        impl<'a> Codec<'a, $ty> for $kind {
            fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<$ty, DecodeError> {
                $read(scope.bytes_at(at, $max, $what)?)
            }
            fn write<O: Order>(
                value: &$ty,
                writer: &mut Writer<'_, O>,
                at: usize,
            ) -> Result<(), EncodeError> {
                writer.bytes_at(at, $write(value), $max, $what)
            }
        }
    )*};
}

fn bytes(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    Ok(bytes)
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
}

heap! {
    Owner &'a [u8], OWNER_BYTES_MAX, "owner", bytes, |v: &&'a [u8]| *v;
    LinkText &'a [u8], LINK_TEXT_BYTES_MAX, "link text", bytes, |v: &&'a [u8]| *v;
    Token &'a [u8], TOKEN_BYTES_MAX, "token", bytes, |v: &&'a [u8]| *v;
    Principal &'a str, PRINCIPAL_BYTES_MAX, "principal", text, |v: &&'a str| v.as_bytes();
    FenceText &'a str, dafs_types::limits::FENCE_ID_BYTES_MAX, "fence id", text,
        |v: &&'a str| v.as_bytes();
}
