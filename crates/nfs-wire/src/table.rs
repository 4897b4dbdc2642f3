//! The macro for the table of a program's procedures, and the form of such a table.
//!
//! Invariant: number, name, arguments, results and effect of a procedure are in one row of its
//! table. Code that dispatches, counts, documents, tests or fuzzes procedures iterates over the
//! table.

use crate::xdr::{Reader, Shape, Writer, Xdr, XdrError};

/// The effect of executing a procedure a second time, because the first reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The procedure changes nothing, so it can be executed again.
    Reads,
    /// The procedure changes something, and a second execution changes nothing more.
    Repeats,
    /// A second execution would fail or do harm, so the server must keep the first reply and repeat
    /// it.
    Once,
}

/// The codec of a type, for code that works with all types of a program.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    /// The description of the encoding.
    pub shape: &'static Shape,
    /// Decodes a value from the start of the bytes, and encodes it again.
    pub recode: fn(&[u8]) -> Result<Vec<u8>, XdrError>,
}

/// A procedure of a program.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The number of the procedure.
    pub number: u32,
    /// The name of the procedure in the protocol's specification.
    pub name: &'static str,
    /// The effect of executing the procedure a second time.
    pub effect: Effect,
    /// The codec of the arguments.
    pub arguments: Codec,
    /// The codec of the results.
    pub results: Codec,
}

/// One version of a program, with all of its procedures.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of the protocol.
    pub name: &'static str,
    /// The number of the program.
    pub number: u32,
    /// The version of the program.
    pub version: u32,
    /// The procedures in the order of their numbers.
    pub rows: &'static [Row],
}

/// Decodes a value and encodes it again. This copies the data, so it is meant for tests.
pub(crate) fn recode<'b, T: Xdr<'b>>(bytes: &'b [u8]) -> Result<Vec<u8>, XdrError> {
    let value = T::decode(&mut Reader::new(bytes))?;
    let mut writer = Writer::new();
    value.encode(&mut writer);
    writer.contiguous()?;
    Ok(writer.into_buffer())
}

/// Returns the codec of a type. The type may contain the lifetime `'b`.
macro_rules! codec {
    ($type:ty) => {{
        #[allow(clippy::extra_unused_lifetimes, reason = "not every type borrows")]
        const fn shape<'b>() -> &'static $crate::xdr::Shape {
            <$type as $crate::xdr::Xdr<'b>>::SHAPE
        }
        #[allow(clippy::needless_lifetimes, reason = "not every type borrows")]
        fn recode<'b>(bytes: &'b [u8]) -> Result<Vec<u8>, $crate::xdr::XdrError> {
            $crate::table::recode::<$type>(bytes)
        }
        $crate::table::Codec { shape: shape(), recode }
    }};
}
pub(crate) use codec;

/// Declares the table of one version of a program: enumerations of its procedures, arguments and
/// results, and a [`Program`] that describes them.
macro_rules! program {
    ($(#[$meta:meta])* $table:ident = $title:literal, $program:literal version $version:literal;
        $procedure:ident, $args:ident $(<$args_life:lifetime>)?,
        $results:ident $(<$results_life:lifetime>)?;
        $($row:ident = $number:literal $name:literal ($arg:ty) -> ($result:ty) $effect:ident;)*
    ) => {
        $(#[$meta])*
        pub const $table: $crate::table::Program = $crate::table::Program {
            name: $title,
            number: $program,
            version: $version,
            rows: &[$($crate::table::Row {
                number: $number,
                name: $name,
                effect: $crate::table::Effect::$effect,
                arguments: $crate::table::codec!($arg),
                results: $crate::table::codec!($result),
            },)*],
        };

        #[doc = concat!("A procedure of ", $title, ".")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $procedure {
            $(#[doc = concat!("The procedure ", $name, ".")] $row = $number,)*
        }

        impl $procedure {
            /// All procedures in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$row,)*];

            /// Returns the number of the procedure.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Returns the procedure with this number; `None` if there is none.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$row),)*
                    _ => None,
                }
            }

            /// Returns the name of the procedure in the protocol's specification.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$row => $name,)*
                }
            }

            /// Returns the effect of executing the procedure a second time.
            #[must_use]
            pub const fn effect(self) -> $crate::table::Effect {
                match self {
                    $(Self::$row => $crate::table::Effect::$effect,)*
                }
            }
        }

        #[doc = concat!("The arguments of a procedure of ", $title, ".")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "one is alive for each call, on the stack")]
        pub enum $args $(<$args_life>)? {
            $(#[doc = concat!("The arguments of ", $name, ".")] $row($arg),)*
        }

        #[doc = concat!("The results of a procedure of ", $title, ".")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "one is alive for each call, on the stack")]
        pub enum $results $(<$results_life>)? {
            $(#[doc = concat!("The results of ", $name, ".")] $row($result),)*
        }

        $crate::table::of_procedures! { $procedure, $args [$(<$args_life>)?] $($row ($arg);)* }
        $crate::table::of_procedures! {
            $procedure, $results [$(<$results_life>)?] $($row ($result);)*
        }
    };
}
pub(crate) use program;

/// Implements the codec for arguments or results. The procedure selects their type.
macro_rules! of_procedures {
    ($procedure:ident, $of:ident [$(<$life:lifetime>)?] $($row:ident ($type:ty);)*) => {
        #[allow(clippy::extra_unused_lifetimes, reason = "not every program has data")]
        impl<'b> $of $(<$life>)? {
            /// Returns the procedure that these arguments or results belong to.
            #[must_use]
            pub const fn procedure(&self) -> $procedure {
                match self {
                    $(Self::$row(_) => $procedure::$row,)*
                }
            }

            /// Decodes the arguments or results of a procedure. Bytes after the value stay unread.
            ///
            /// # Errors
            /// If the bytes are not such a value; see [`XdrError`](crate::xdr::XdrError).
            pub fn decode(
                procedure: $procedure,
                reader: &mut $crate::xdr::Reader<'b>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                match procedure {
                    $($procedure::$row => {
                        <$type as $crate::xdr::Xdr<'b>>::decode(reader).map(Self::$row)
                    })*
                }
            }

            /// Appends the encoded value.
            pub fn encode(&self, writer: &mut $crate::xdr::Writer) {
                match self {
                    $(Self::$row(value) => {
                        <$type as $crate::xdr::Xdr<'b>>::encode(value, writer);
                    })*
                }
            }
        }
    };
}
pub(crate) use of_procedures;
