//! How checked types are written in JSON: `#[serde(with = "wire::text")]` and its sisters.
//!
//! A name is checked while it is decoded, so the message about it carries the path of the field.
//! Implementing serde on the types themselves would put a dependency into the rules and, worse,
//! make a session's secret serialisable by accident.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// A `T` written as an object. Left alone, serde also takes an array of the fields in their order,
/// which nobody means and which would make `[]` a whole request.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// Such an object, or null.
pub(crate) fn object_option<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::<Object<T>>::deserialize(from)?.map(|object| object.0))
}

/// A list of such objects.
pub(crate) fn object_list<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let objects = Vec::<Object<T>>::deserialize(from)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

/// Types written as text by `Display` and read by `FromStr`.
pub(crate) mod text {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The same, or null.
pub(crate) mod text_option {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Lists of such types.
pub(crate) mod text_list {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        values: &[T],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(ToString::to_string))
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

/// A session's secret. The only place that writes one.
pub(crate) mod secret {
    use super::*;
    use regent_election::SessionId;

    pub(crate) fn serialize<S: Serializer>(value: &SessionId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.reveal())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SessionId, D::Error> {
        text::deserialize(from)
    }
}

/// A session's secret, or null.
pub(crate) mod secret_option {
    use super::*;
    use regent_election::SessionId;

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<SessionId>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(SessionId::reveal).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SessionId>, D::Error> {
        text_option::deserialize(from)
    }
}

/// A whole number from 0 to 2^53 - 1, described in words when something else came.
struct Whole(&'static str);

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        if number <= regent_election::limits::TERM_MAX {
            Ok(number)
        } else {
            Err(E::custom(format_args!(
                "{number} is more than {}, where JSON numbers stop being exact",
                regent_election::limits::TERM_MAX
            )))
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(number), &self)),
        }
    }
}

/// The same, or null.
struct WholeOption(&'static str);

impl<'de> Visitor<'de> for WholeOption {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_u64(Whole(self.0)).map(Some)
    }
}

/// A duration in milliseconds.
pub(crate) mod millis {
    use super::*;

    pub(super) const EXPECTED: &str = "a whole number of milliseconds, 0 or more";

    pub(crate) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(*value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        from.deserialize_u64(Whole(EXPECTED))
    }
}

/// A duration in milliseconds, or null.
pub(crate) mod millis_option {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(value: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        from.deserialize_option(WholeOption(millis::EXPECTED))
    }
}

/// A term.
pub(crate) mod term {
    use super::*;
    use regent_election::Term;

    pub(super) const EXPECTED: &str = "a term: a whole number, 0 or more";

    pub(crate) fn serialize<S: Serializer>(value: &Term, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.get())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Term, D::Error> {
        let number = from.deserialize_u64(Whole(EXPECTED))?;
        Term::new(number).ok_or_else(|| D::Error::custom("no term is that high"))
    }
}

/// A term, or null.
pub(crate) mod term_option {
    use super::*;
    use regent_election::Term;

    pub(crate) fn serialize<S: Serializer>(value: &Option<Term>, to: S) -> Result<S::Ok, S::Error> {
        value.map(Term::get).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Term>, D::Error> {
        let number = from.deserialize_option(WholeOption(term::EXPECTED))?;
        number
            .map(|number| Term::new(number).ok_or_else(|| D::Error::custom("no term is that high")))
            .transpose()
    }
}

/// A revision.
pub(crate) mod revision {
    use super::*;
    use regent_election::Revision;

    pub(crate) fn serialize<S: Serializer>(value: &Revision, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Revision, D::Error> {
        u64::deserialize(from).map(Revision)
    }
}

/// A revision, or null.
pub(crate) mod revision_option {
    use super::*;
    use regent_election::Revision;

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Revision>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(|revision| revision.0).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Revision>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Revision))
    }
}

/// Metadata as an object of strings.
pub(crate) mod metadata {
    use super::*;
    use regent_election::Metadata;
    use std::collections::BTreeMap;

    pub(crate) fn serialize<S: Serializer>(value: &Metadata, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(value.iter())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Metadata, D::Error> {
        let entries = Option::<BTreeMap<String, String>>::deserialize(from)?.unwrap_or_default();
        Metadata::new(entries).map_err(D::Error::custom)
    }
}

/// A reason as text.
pub(crate) mod reason {
    use super::*;
    use regent_election::Reason;

    pub(crate) fn serialize<S: Serializer>(value: &Reason, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.as_str())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Reason, D::Error> {
        Reason::new(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Why a leader changed, as its word.
pub(crate) mod cause {
    use super::*;
    use regent_election::Cause;

    pub(super) fn parse<E: Error>(word: &str) -> Result<Cause, E> {
        Cause::ALL
            .into_iter()
            .find(|cause| cause.word() == word)
            .ok_or_else(|| E::custom(format_args!("{word:?} is no cause of a change")))
    }

    pub(crate) fn serialize<S: Serializer>(value: &Cause, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.word())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Cause, D::Error> {
        parse(&String::deserialize(from)?)
    }
}

/// The same, or null.
pub(crate) mod cause_option {
    use super::*;
    use regent_election::Cause;

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Cause>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Cause::word).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Cause>, D::Error> {
        Option::<String>::deserialize(from)?.map(|word| cause::parse(&word)).transpose()
    }

    /// The same; a cause of a later version is none.
    pub(crate) fn if_known<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cause>, D::Error> {
        let word = Option::<String>::deserialize(from)?;
        Ok(word.and_then(|word| Cause::ALL.into_iter().find(|cause| cause.word() == word)))
    }
}

/// How an office stands, as its word.
pub(crate) mod state {
    use super::*;
    use regent_election::store::OfficeState;

    /// All of them, in the order of an office's life.
    pub(crate) const ALL: [OfficeState; 5] = [
        OfficeState::Vacant,
        OfficeState::Delayed,
        OfficeState::Elected,
        OfficeState::Leading,
        OfficeState::Ending,
    ];

    pub(crate) fn serialize<S: Serializer>(value: &OfficeState, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.word())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<OfficeState, D::Error> {
        let word = String::deserialize(from)?;
        ALL.into_iter()
            .find(|state| state.word() == word)
            .ok_or_else(|| D::Error::custom(format_args!("{word:?} is no state of an office")))
    }
}
