//! Where protobuf's JSON differs from serde's: bytes, 64-bit numbers, names of enumerations, times.

/// Bytes are base64, with either alphabet and with or without padding.
pub mod base64_bytes {
    use base64::Engine;
    use base64::alphabet::{STANDARD, URL_SAFE};
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
        GeneralPurpose::new(alphabet, LENIENT).decode(text).map_err(D::Error::custom)
    }
}

/// 64-bit numbers are strings.
pub mod int64 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Number(i64),
        Text(String),
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde's `with` calls")]
    pub fn serialize<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Number(number) => Ok(number),
            Number::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// A module for the JSON of an enumeration field: its values' names, or their numbers.
macro_rules! enumeration {
    ($module:ident: $($value:path = $name:literal),+) => {
        pub mod $module {
            use serde::{Deserialize, Deserializer, Serializer, de::Error};

            #[derive(Deserialize)]
            #[serde(untagged)]
            enum Value {
                Number(i32),
                Name(String),
            }

            const NAMES: &[(i32, &str)] = &[$(($value as i32, $name)),+];

            #[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde's `with` calls")]
            pub fn serialize<S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
                match NAMES.iter().find(|(number, _)| number == value) {
                    Some((_, name)) => serializer.serialize_str(name),
                    None => serializer.serialize_i32(*value),
                }
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
                match Value::deserialize(deserializer)? {
                    Value::Number(number) => Ok(number),
                    Value::Name(name) => NAMES
                        .iter()
                        .find(|(_, known)| *known == name)
                        .map(|(number, _)| *number)
                        .ok_or_else(|| D::Error::custom(format!("unknown value {name:?}"))),
                }
            }
        }
    };
}

enumeration!(signal:
    super::super::process::Signal::Unspecified = "SIGNAL_UNSPECIFIED",
    super::super::process::Signal::Sigkill = "SIGNAL_SIGKILL",
    super::super::process::Signal::Sigterm = "SIGNAL_SIGTERM"
);

enumeration!(file_type:
    super::super::filesystem::FileType::Unspecified = "FILE_TYPE_UNSPECIFIED",
    super::super::filesystem::FileType::File = "FILE_TYPE_FILE",
    super::super::filesystem::FileType::Directory = "FILE_TYPE_DIRECTORY",
    super::super::filesystem::FileType::Symlink = "FILE_TYPE_SYMLINK"
);

enumeration!(event_type:
    super::super::filesystem::EventType::Unspecified = "EVENT_TYPE_UNSPECIFIED",
    super::super::filesystem::EventType::Create = "EVENT_TYPE_CREATE",
    super::super::filesystem::EventType::Write = "EVENT_TYPE_WRITE",
    super::super::filesystem::EventType::Remove = "EVENT_TYPE_REMOVE",
    super::super::filesystem::EventType::Rename = "EVENT_TYPE_RENAME",
    super::super::filesystem::EventType::Chmod = "EVENT_TYPE_CHMOD"
);

/// Times are RFC 3339.
pub mod timestamp {
    use super::super::filesystem::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        let time = time.as_ref().and_then(|time| jiff::Timestamp::new(time.seconds, time.nanos).ok());
        match time {
            Some(time) => serializer.collect_str(&time),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let time: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        // Before 1970 as well, the nanoseconds count forward. Seconds of a time fit 64 bits.
        let nanoseconds = time.as_nanosecond();
        let (seconds, nanos) = (nanoseconds.div_euclid(1_000_000_000), nanoseconds.rem_euclid(1_000_000_000));
        Ok(Some(Timestamp { seconds: seconds as i64, nanos: nanos as i32 }))
    }
}
