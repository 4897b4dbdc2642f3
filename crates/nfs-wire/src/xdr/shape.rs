//! Descriptions of encodings, for the documents and for the generator of test messages.

use std::fmt;

/// The encoding of a type.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// An encoding without any bytes.
    Void,
    /// An unsigned number of 32 bits.
    U32,
    /// A signed number of 32 bits.
    I32,
    /// An unsigned number of 64 bits.
    U64,
    /// A signed number of 64 bits.
    I64,
    /// A 32-bit number that is 0 (false) or 1 (true).
    Bool,
    /// This number of bytes, and their padding.
    Fixed(usize),
    /// A length, that number of bytes, and their padding.
    Opaque {
        /// The maximum length in bytes.
        bytes_max: usize,
    },
    /// A length, the data of a READ or WRITE, and its padding.
    Payload,
    /// A bool, and the value if the bool is true.
    Option(&'static Shape),
    /// A count, and that number of items.
    List {
        /// The encoding of each item.
        item: &'static Shape,
        /// The maximum number of items.
        count_max: usize,
    },
    /// A linked list: each item is preceded by a true, and a false follows the last item.
    Chain {
        /// The encoding of each item.
        item: &'static Shape,
        /// The maximum number of items.
        count_max: usize,
    },
    /// Fields, one after the other.
    Struct {
        /// The name of the type.
        name: &'static str,
        /// The names and encodings of the fields.
        fields: &'static [(&'static str, &'static Shape)],
    },
    /// A 32-bit number, which must be one of the listed numbers.
    Enum {
        /// The name of the type.
        name: &'static str,
        /// The names and numbers of the values.
        values: &'static [(&'static str, u32)],
    },
    /// A number whose bits have names.
    Flags {
        /// The name of the type.
        name: &'static str,
        /// The encoding of the number.
        number: &'static Shape,
        /// The names and values of the bits.
        bits: &'static [(&'static str, u64)],
    },
    /// A 32-bit discriminant and the content of one arm.
    Union {
        /// The name of the type.
        name: &'static str,
        /// The encoding of the discriminant.
        on: &'static Shape,
        /// The discriminant, name and content of each arm.
        arms: &'static [(u32, &'static str, &'static Shape)],
        /// The name and content of the arm for all other discriminants, if there is one.
        other: Option<(&'static str, &'static Shape)>,
    },
}

/// A named type and its encoding, as one line of the documents.
#[derive(Clone, Copy, Debug)]
pub struct Layout(pub &'static Shape);

impl Shape {
    /// Returns the name of a declared type; `None` for a type that was not declared with a name.
    #[must_use]
    pub const fn name(&self) -> Option<&'static str> {
        match self {
            Self::Struct { name, .. }
            | Self::Enum { name, .. }
            | Self::Flags { name, .. }
            | Self::Union { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Returns true if a union has a listed arm for this discriminant.
    #[must_use]
    pub fn has_arm(&self, discriminant: u32) -> bool {
        match self {
            Self::Union { arms, .. } => arms.iter().any(|(number, ..)| *number == discriminant),
            _ => false,
        }
    }

    /// Returns the encodings of the parts of this one: its fields, arms or items.
    #[must_use]
    pub fn parts(&self) -> Vec<&'static Self> {
        match self {
            Self::Option(item) | Self::List { item, .. } | Self::Chain { item, .. } => vec![item],
            Self::Struct { fields, .. } => fields.iter().map(|(_, shape)| *shape).collect(),
            Self::Union { on, arms, other, .. } => {
                let arms = arms.iter().map(|(_, _, shape)| *shape);
                let other = other.iter().map(|(_, shape)| *shape);
                std::iter::once(*on).chain(arms).chain(other).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Formats a reference to an encoding: the name of its type if it has one, otherwise its parts.
impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Void => out.write_str("void"),
            Self::U32 => out.write_str("u32"),
            Self::I32 => out.write_str("i32"),
            Self::U64 => out.write_str("u64"),
            Self::I64 => out.write_str("i64"),
            Self::Bool => out.write_str("bool"),
            Self::Fixed(length) => write!(out, "{length} bytes"),
            Self::Opaque { bytes_max } => write!(out, "up to {bytes_max} bytes"),
            Self::Payload => out.write_str("data"),
            Self::Option(item) => write!(out, "optional {item}"),
            Self::List { item, count_max } => write!(out, "up to {count_max} of {item}"),
            Self::Chain { item, count_max } => write!(out, "chain of up to {count_max} {item}"),
            Self::Struct { name, .. }
            | Self::Enum { name, .. }
            | Self::Flags { name, .. }
            | Self::Union { name, .. } => out.write_str(name),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Shape::Struct { name, fields } => {
                write!(out, "{name}:")?;
                list(out, fields.iter(), |out, (field, shape)| write!(out, "{field} {shape}"))
            }
            Shape::Enum { name, values } => {
                write!(out, "{name}: one of")?;
                list(out, values.iter(), |out, (value, number)| write!(out, "{number} {value}"))
            }
            Shape::Flags { name, number, bits } => {
                write!(out, "{name}: {number}, bits")?;
                list(out, bits.iter(), |out, (bit, value)| write!(out, "{value:#x} {bit}"))
            }
            Shape::Union { name, on, arms, other } => {
                write!(out, "{name}: {on}, then")?;
                list(out, arms.iter(), |out, (number, arm, shape)| {
                    write!(out, "{number} {arm} {shape}")
                })?;
                match other {
                    Some((arm, shape)) => write!(out, ", else {arm} {shape}"),
                    None => Ok(()),
                }
            }
            shape => shape.fmt(out),
        }
    }
}

/// Writes items with commas between them.
fn list<T>(
    out: &mut fmt::Formatter<'_>,
    items: impl Iterator<Item = T>,
    write: impl Fn(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.enumerate() {
        out.write_str(if index == 0 { " " } else { ", " })?;
        write(out, item)?;
    }
    Ok(())
}
