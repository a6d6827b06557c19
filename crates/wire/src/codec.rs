//! The binary encoding of values: integers are little-endian, byte strings a `u32` length and the bytes, lists a `u32`
//! count and the items, options a byte 0 or 1 and the value. Paths and names are bytes and need not be UTF-8.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// The reason why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireError {
    /// A frame of this many bytes is not allowed.
    Length(usize),
    /// A block that decompresses to this many bytes is not allowed.
    Block(u32),
    /// A compressed block does not decompress to the size that it states.
    Compressed,
    /// The frame ends in the middle of a field.
    Truncated,
    /// Bytes follow the last field.
    Trailing,
    /// A tag that the named type does not have.
    Tag(&'static str, u8),
    /// A text that is not UTF-8.
    Utf8,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "a frame of {length} bytes is not allowed"),
            Self::Block(size) => write!(f, "a block of {size} bytes is not allowed"),
            Self::Compressed => f.write_str("a compressed block is damaged"),
            Self::Truncated => f.write_str("a frame ends in the middle of a field"),
            Self::Trailing => f.write_str("bytes follow the last field of a frame"),
            Self::Tag(what, tag) => write!(f, "{tag} is not a valid tag of {what}"),
            Self::Utf8 => f.write_str("a text is not valid UTF-8"),
        }
    }
}

impl std::error::Error for WireError {}

/// A value with a binary encoding.
pub trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(input: &mut &[u8]) -> Result<Self, WireError>;
}

/// The content of a file that holds one value.
pub fn encode(value: &impl Field) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// Reads what [`encode`] wrote; `what` names it in the error.
///
/// # Errors
/// It is not a whole value, or more than one.
pub fn decode<T: Field>(mut input: &[u8], what: &str) -> std::io::Result<T> {
    let damaged = |error: WireError| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{what} is damaged: {error}"))
    };
    let value = T::get(&mut input).map_err(damaged)?;
    if input.is_empty() { Ok(value) } else { Err(damaged(WireError::Trailing)) }
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

/// `u8` itself has no encoding, so that this is not a list of items and is copied in one go.
impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self, out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let length = u32::get(input)?;
        Ok(take(input, length as usize)?.to_vec())
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u32).put(out);
    out.extend_from_slice(bytes);
}

impl Field for OsString {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        Ok(Self::from_vec(Vec::get(input)?))
    }
}

impl Field for PathBuf {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_os_str().as_bytes(), out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        Ok(OsString::get(input)?.into())
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        Self::from_utf8(Vec::get(input)?).map_err(|_| WireError::Utf8)
    }
}

/// In microseconds.
impl Field for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX).put(out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        u64::get(input).map(Self::from_micros)
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        // The count is not trusted with an allocation: the list grows with the items that are really there.
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

/// A struct that is encoded as its fields in order.
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

/// An enum that is encoded as a tag and the variant's fields.
macro_rules! tagged {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$variant_meta:meta])* $tag:literal = $variant:ident
            $({ $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? })?
            $(($inner:ident: $inner_type:ty))?
        ),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $(
            $(#[$variant_meta])* $variant
            $({ $($(#[$field_meta])* $field: $type),* })?
            $(($inner_type))?
        ),* }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($inner))? => {
                        out.push($tag);
                        $($($field.put(out);)*)?
                        $($inner.put(out);)?
                    })*
                }
            }
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                Ok(match take(input, 1)?[0] {
                    $($tag => Self::$variant
                        $({ $($field: Field::get(input)?),* })?
                        $((<$inner_type as Field>::get(input)?))?,)*
                    other => return Err(WireError::Tag(stringify!($name), other)),
                })
            }
        }
    };
}

pub(crate) use {record, tagged};
