//! The macro `xdr`, which generates a type, its codec and its description from one declaration.

/// Declares types and implements their codecs. The documentation of the module `xdr` has the
/// syntax.
macro_rules! xdr {
    () => {};

    ($(#[$meta:meta])* struct $name:ident $(<$life:lifetime>)? {
        $($(#[$about:meta])* $field:ident: $type:ty),* $(,)?
    } $($rest:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$about])* pub $field: $type,)*
        }

        impl<'b> $crate::xdr::Xdr<'b> for $name $(<$life>)? {
            const LEAST: usize = 0 $(+ <$type as $crate::xdr::Xdr<'b>>::LEAST)*;
            const SHAPE: &'static $crate::xdr::Shape = &$crate::xdr::Shape::Struct {
                name: stringify!($name),
                fields: &[$((stringify!($field), <$type as $crate::xdr::Xdr<'b>>::SHAPE),)*],
            };
            #[inline]
            #[allow(unused_variables, reason = "a structure may have no fields")]
            fn decode(
                reader: &mut $crate::xdr::Reader<'b>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                Ok(Self { $($field: $crate::xdr::Xdr::decode(reader)?,)* })
            }
            #[inline]
            #[allow(unused_variables, reason = "a structure may have no fields")]
            fn encode(&self, writer: &mut $crate::xdr::Writer) {
                $($crate::xdr::Xdr::encode(&self.$field, writer);)*
            }
        }

        $crate::xdr::xdr! { $($rest)* }
    };

    ($(#[$meta:meta])* enum $name:ident {
        $($(#[$about:meta])* $value:ident = $number:literal),* $(,)?
    } $($rest:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$about])* $value = $number,)*
        }

        impl $name {
            /// All values of the type, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$value,)*];

            /// Returns the number that stands for the value in messages.
            #[must_use]
            #[inline]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Returns the value for a number in a message; `None` if no value has this number.
            #[must_use]
            #[inline]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$value),)*
                    _ => None,
                }
            }
        }

        impl<'b> $crate::xdr::Xdr<'b> for $name {
            const LEAST: usize = 4;
            const SHAPE: &'static $crate::xdr::Shape = &$crate::xdr::Shape::Enum {
                name: stringify!($name),
                values: &[$((stringify!($value), $number),)*],
            };
            #[inline]
            fn decode(
                reader: &mut $crate::xdr::Reader<'b>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                let value = reader.u32()?;
                Self::from_number(value)
                    .ok_or($crate::xdr::XdrError::Value { kind: stringify!($name), value })
            }
            #[inline]
            fn encode(&self, writer: &mut $crate::xdr::Writer) {
                writer.u32(self.number());
            }
        }

        $crate::xdr::xdr! { $($rest)* }
    };

    ($(#[$meta:meta])* flags $name:ident: $number:ident {
        $($(#[$about:meta])* $bit:ident = $value:literal),* $(,)?
    } $($rest:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $number);

        impl $name {
            $($(#[$about])* pub const $bit: Self = Self($value);)*

            /// Returns true if all bits of `other` are set in this value.
            #[must_use]
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the bits that are set in at least one of the two values.
            #[must_use]
            #[inline]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl<'b> $crate::xdr::Xdr<'b> for $name {
            const LEAST: usize = <$number as $crate::xdr::Xdr<'b>>::LEAST;
            const SHAPE: &'static $crate::xdr::Shape = &$crate::xdr::Shape::Flags {
                name: stringify!($name),
                number: <$number as $crate::xdr::Xdr<'b>>::SHAPE,
                bits: &[$((stringify!($bit), $value),)*],
            };
            #[inline]
            fn decode(
                reader: &mut $crate::xdr::Reader<'b>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                $crate::xdr::Xdr::decode(reader).map(Self)
            }
            #[inline]
            fn encode(&self, writer: &mut $crate::xdr::Writer) {
                $crate::xdr::Xdr::encode(&self.0, writer);
            }
        }

        $crate::xdr::xdr! { $($rest)* }
    };

    ($(#[$meta:meta])* union $name:ident $(<$life:lifetime>)? on $on:ident {
        $($arms:tt)*
    } $($rest:tt)*) => {
        $crate::xdr::union_arms! {
            { [$(#[$meta])*] $name [$(<$life>)?] $on } [] [] $($arms)*
        }
        $crate::xdr::xdr! { $($rest)* }
    };
}
pub(crate) use xdr;

/// Sorts the arms of a union: first those with a discriminant, then the arm for all other numbers.
macro_rules! union_arms {
    ({ $($head:tt)* } $arms:tt $other:tt) => {
        $crate::xdr::declare_union! { $($head)* $arms $other }
    };
    ($head:tt $arms:tt []
        $(#[$about:meta])* _ => $variant:ident $(($type:ty))? $(,)?) => {
        $crate::xdr::union_arms! { $head $arms [[$(#[$about])*] $variant ($($type)?)] }
    };
    ($head:tt [$($arms:tt)*] []
        $(#[$about:meta])* $case:literal => $variant:ident $(($type:ty))? $(, $($rest:tt)*)?) => {
        $crate::xdr::union_arms! {
            $head [$($arms)* [$(#[$about])*] ($case) $variant ($($type)?);] [] $($($rest)*)?
        }
    };
    ({ [$($meta:tt)*] $name:ident $life:tt $on:ident } [$($arms:tt)*] []
        $(#[$about:meta])* $case:ident => $variant:ident $(($type:ty))? $(, $($rest:tt)*)?) => {
        $crate::xdr::union_arms! {
            { [$($meta)*] $name $life $on }
            [$($arms)* [$(#[$about])*] ($on::$case) $variant ($($type)?);] [] $($($rest)*)?
        }
    };
}
pub(crate) use union_arms;

/// Declares a union whose discriminant has the type `$on`. Each arm is passed as `[attributes]
/// (discriminant) Variant (content or nothing);`.
macro_rules! declare_union {
    ([$(#[$meta:meta])*] $name:ident [$(<$life:lifetime>)?] $on:ident
        [$([$(#[$about:meta])*] ($($case:tt)*) $variant:ident ($($type:ty)?);)*]
        [$([$(#[$otherwise:meta])*] $other:ident ($($rest_type:ty)?))?]) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "one is alive for each call, on the stack")]
        pub enum $name $(<$life>)? {
            $($(#[$about])* $variant $(($type))?,)*
            $($(#[$otherwise])* $other($on $(, $rest_type)?),)?
        }

        impl<'b> $crate::xdr::Xdr<'b> for $name $(<$life>)? {
            const LEAST: usize = 4;
            const SHAPE: &'static $crate::xdr::Shape = &$crate::xdr::Shape::Union {
                name: stringify!($name),
                on: <$on as $crate::xdr::Xdr<'b>>::SHAPE,
                arms: &[$((
                    $($case)* as u32,
                    stringify!($variant),
                    $crate::xdr::content!($($type)?),
                ),)*],
                other: $crate::xdr::otherwise!(
                    $((stringify!($other), $crate::xdr::content!($($rest_type)?)))?
                ),
            };
            #[inline]
            #[allow(unreachable_patterns, reason = "the arms may cover the enumeration")]
            fn decode(
                reader: &mut $crate::xdr::Reader<'b>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                let on = <$on as $crate::xdr::Xdr<'b>>::decode(reader)?;
                Ok(match on {
                    $($($case)* => Self::$variant
                        $((<$type as $crate::xdr::Xdr<'b>>::decode(reader)?))?,)*
                    $(_ => Self::$other(
                        on $(, <$rest_type as $crate::xdr::Xdr<'b>>::decode(reader)?)?
                    ),)?
                    _ => {
                        let (kind, value) = (stringify!($name), on as u32);
                        return Err($crate::xdr::XdrError::Value { kind, value });
                    }
                })
            }
            #[inline]
            #[allow(clippy::unnecessary_cast, reason = "the discriminant may be a number")]
            fn encode(&self, writer: &mut $crate::xdr::Writer) {
                match self {
                    $(Self::$variant $(($crate::xdr::bind!(content $type)))? => {
                        writer.u32($($case)* as u32);
                        $(<$type as $crate::xdr::Xdr<'b>>::encode(content, writer);)?
                    })*
                    $(Self::$other(on $(, $crate::xdr::bind!(content $rest_type))?) => {
                        let value = *on as u32;
                        if <Self as $crate::xdr::Xdr<'b>>::SHAPE.has_arm(value) {
                            let kind = stringify!($name);
                            writer.fail($crate::xdr::XdrError::Value { kind, value });
                        }
                        writer.u32(value);
                        $(<$rest_type as $crate::xdr::Xdr<'b>>::encode(content, writer);)?
                    })?
                }
            }
        }
    };
}
pub(crate) use declare_union;

/// Returns the description of the content of an arm; `Shape::Void` for an arm without content.
macro_rules! content {
    () => {
        &$crate::xdr::Shape::Void
    };
    ($type:ty) => {
        <$type as $crate::xdr::Xdr<'b>>::SHAPE
    };
}
pub(crate) use content;

/// Returns the arm for all other discriminants as an `Option`.
macro_rules! otherwise {
    () => {
        None
    };
    ($arm:expr) => {
        Some($arm)
    };
}
pub(crate) use otherwise;

/// Returns the identifier `$name` as the pattern that binds the content of a union's arm. The macro
/// is called once for each arm with content; the type only controls the repetition.
macro_rules! bind {
    ($name:ident $type:ty) => {
        $name
    };
}
pub(crate) use bind;
