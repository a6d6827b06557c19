//! How values become bytes and bytes values.

use std::fmt;

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireError {
    /// A frame of this many bytes is not allowed.
    Length(usize),
    /// The frame ends in the middle of a field.
    Truncated,
    /// The frame goes on after its last field.
    Trailing,
    /// A tag that the named type does not have.
    Tag(&'static str, u8),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "a frame of {length} bytes is not allowed"),
            Self::Truncated => f.write_str("a frame ends in the middle of a field"),
            Self::Trailing => f.write_str("a frame goes on after its last field"),
            Self::Tag(what, tag) => write!(f, "{tag} is no kind of {what}"),
        }
    }
}

impl std::error::Error for WireError {}

/// A value that goes over the wire.
pub trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(input: &mut &[u8]) -> Result<Self, WireError>;
}

pub fn take<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8], WireError> {
    let (head, rest) = input.split_at_checked(length).ok_or(WireError::Truncated)?;
    *input = rest;
    Ok(head)
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                let mut bytes = [0; size_of::<$type>()];
                bytes.copy_from_slice(take(input, size_of::<$type>())?);
                Ok(<$type>::from_le_bytes(bytes))
            }
        }
    )*};
}

integers!(u16, u32, u64, i32, i64);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        match take(input, 1)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::Tag("bool", other)),
        }
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(take(input, N)?);
        Ok(bytes)
    }
}

/// A byte string. `Vec<u8>` is not a list of items, so that it is copied in one go.
#[derive(Clone, PartialEq, Eq, Default, Hash)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl<T: Into<Vec<u8>>> From<T> for Bytes {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl Field for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
        out.extend_from_slice(&self.0);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let length = u32::get(input)?;
        Ok(Self(take(input, length as usize)?.to_vec()))
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        // No space is set aside for a count that is only claimed: the list grows as its items are there.
        let count = u32::get(input)?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(T::get(input)?);
        }
        Ok(items)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        bool::get(input)?.then(|| T::get(input)).transpose()
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        Ok((A::get(input)?, B::get(input)?))
    }
}

/// A struct whose fields go over the wire in order. Encoder and decoder come from one list and cannot drift apart.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type),* }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                Ok(Self { $($field: Field::get(input)?),* })
            }
        }
    };
}

/// An enum that goes over the wire as a tag and the variant's fields.
macro_rules! tagged {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$variant_meta:meta])* $tag:literal = $variant:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)?
        }),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant { $($(#[$field_meta])* $field: $type),* }),* }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        out.push($tag);
                        $($field.put(out);)*
                    })*
                }
            }
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                Ok(match take(input, 1)?[0] {
                    $($tag => Self::$variant { $($field: Field::get(input)?),* },)*
                    other => return Err(WireError::Tag(stringify!($name), other)),
                })
            }
        }
    };
}

pub(super) use {record, tagged};
