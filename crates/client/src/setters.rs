//! Methods that set the fields of option structs.
//!
//! An option struct is `non_exhaustive`, so that a later version can add a field. Other crates
//! create one with a constructor and set the fields that they need.

/// Defines one method for each named field of a struct. The method sets the field and returns the
/// struct.
macro_rules! setters {
    ($owner:ident: $($field:ident: $kind:ty),* $(,)?) => {
        impl $owner {
            $(
                #[doc = concat!("Sets the field [`", stringify!($field), "`](Self#structfield.",
                    stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;
