//! Fixed sections, which are structures whose fields are placed at their natural alignment.
//!
//! Invariant: a section's size is a multiple of eight (`docs/spec/gaps.md`, "end of a fixed
//! section"). If the size differs from the number in the section's declaration, the code does not
//! compile. The bytes between fields are written as zero, and decoding checks that they are zero.

use crate::error::{DecodeError, EncodeError};
use crate::limits::ALIGNMENT;
use crate::order::Order;
use crate::scope::{Scope, Writer};

/// The position of one field in a fixed section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLayout {
    /// The name of the field in its section.
    pub name: &'static str,
    /// The kind of the field, which determines its encoding.
    pub kind: &'static str,
    /// The offset in bytes from the start of the section.
    pub offset: usize,
    /// The size of the field in bytes.
    pub size: usize,
}

/// The arguments or results of a procedure, as a fixed section.
pub(crate) trait Section<'a>: Sized {
    /// The size of the fixed section in bytes.
    const SIZE: usize;
    /// The fields of the section, in order.
    const FIELDS: &'static [FieldLayout];

    /// Decodes the section at the start of a scope.
    fn read<O: Order>(scope: Scope<'a, O>) -> Result<Self, DecodeError>;

    /// Encodes the section into a scope whose first `SIZE` bytes are zero.
    fn write<O: Order>(&self, writer: &mut Writer<'_, O>) -> Result<(), EncodeError>;

    /// Returns the number of bytes that the caller sends after the encoded part, in the same
    /// message.
    #[inline(always)]
    fn following(&self) -> usize {
        0
    }
}

/// The name, kind, size and alignment of a field whose offset is not known yet.
pub(crate) type Unplaced = (&'static str, &'static str, usize, usize);

/// Assigns offsets to fields, one after the other, according to their alignments.
pub(crate) const fn place<const N: usize>(fields: [Unplaced; N]) -> [FieldLayout; N] {
    let mut placed = [FieldLayout { name: "", kind: "", offset: 0, size: 0 }; N];
    let mut at = 0;
    let mut index = 0;
    while index < N {
        let (name, kind, size, align) = fields[index];
        at = align_up(at, align);
        placed[index] = FieldLayout { name, kind, offset: at, size };
        at += size;
        index += 1;
    }
    placed
}

/// Returns the size in bytes of a section with these fields.
pub(crate) const fn size_of(fields: &[FieldLayout]) -> usize {
    if fields.is_empty() {
        return 0;
    }
    let last = fields[fields.len() - 1];
    align_up(last.offset + last.size, ALIGNMENT)
}

/// Rounds a value up to the next multiple of `align`, a power of two.
pub(crate) const fn align_up(value: usize, align: usize) -> usize {
    (value + align - 1) & !(align - 1)
}

/// Declares a message body: a public structure and its fixed section, field for field.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)?: $size:literal {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty => $kind:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl<'a> $crate::section::Section<'a> for $name $(<$life>)? {
            const SIZE: usize = $size;
            const FIELDS: &'static [$crate::section::FieldLayout] =
                &$crate::section::place([$((
                    stringify!($field),
                    <$kind as $crate::field::Field>::KIND,
                    <$kind as $crate::field::Field>::SIZE,
                    <$kind as $crate::field::Field>::ALIGN,
                ),)*]);

            #[inline(always)]
            fn read<O: $crate::order::Order>(
                scope: $crate::scope::Scope<'a, O>,
            ) -> Result<Self, $crate::error::DecodeError> {
                scope.require(Self::SIZE, stringify!($name))?;
                let end = 0;
                $(
                    let at = $crate::section::align_up(
                        end,
                        <$kind as $crate::field::Field>::ALIGN,
                    );
                    scope.zeros(end, at)?;
                    let $field: $ty = <$kind as $crate::field::Codec<'a, $ty>>::read(scope, at)?;
                    let end = at + <$kind as $crate::field::Field>::SIZE;
                )*
                scope.zeros(end, Self::SIZE)?;
                Ok(Self { $($field,)* })
            }

            #[inline(always)]
            fn write<O: $crate::order::Order>(
                &self,
                writer: &mut $crate::scope::Writer<'_, O>,
            ) -> Result<(), $crate::error::EncodeError> {
                let end = 0;
                $(
                    let at = $crate::section::align_up(
                        end,
                        <$kind as $crate::field::Field>::ALIGN,
                    );
                    <$kind as $crate::field::Codec<'a, $ty>>::write(&self.$field, writer, at)?;
                    let end = at + <$kind as $crate::field::Field>::SIZE;
                )*
                let _ = end;
                Ok(())
            }
        }

        const _: () = assert!(
            <$name as $crate::section::Section<'_>>::SIZE
                == $crate::section::size_of(<$name as $crate::section::Section<'_>>::FIELDS)
        );
    };
}
pub(crate) use section;

/// The arguments or results of a procedure that has no arguments or no results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Empty;

impl<'a> Section<'a> for Empty {
    const SIZE: usize = 0;
    const FIELDS: &'static [FieldLayout] = &[];

    #[inline(always)]
    fn read<O: Order>(_: Scope<'a, O>) -> Result<Self, DecodeError> {
        Ok(Self)
    }

    #[inline(always)]
    fn write<O: Order>(&self, _: &mut Writer<'_, O>) -> Result<(), EncodeError> {
        Ok(())
    }
}
