//! Typed access to a TOML document that remembers where everything stands.
//!
//! A [`Table`] is taken apart key by key. Each accessor says what it expects, so that a value of the
//! wrong kind or out of range is an error at its own line, and [`Table::only`] refuses every key that
//! the format does not have.

use super::error::{Fault, Problem, nearest};
use std::fmt::Display;
use std::ops::RangeInclusive;
use stealtime_scheduler::time::Nanos;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and the byte at which it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// A text with its place, and whether its characters stand in the file as they are (no escapes), so
/// that places within it can be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Text {
    pub(super) value: String,
    pub(super) at: usize,
    verbatim: bool,
}

impl Text {
    /// The byte of the file that the byte `within` of the text is.
    pub(super) fn place(&self, within: usize) -> usize {
        if self.verbatim {
            self.at + 1 + within
        } else {
            self.at
        }
    }
}

/// A table of the document.
#[derive(Debug)]
pub(super) struct Table<'a> {
    /// Its name in messages.
    place: &'static str,
    /// Where it stands.
    pub(super) at: usize,
    source: &'a str,
    entries: Vec<(Located<String>, Spanned<DeValue<'a>>)>,
}

impl<'a> Table<'a> {
    /// The document's outermost table.
    pub(super) fn root(source: &'a str, place: &'static str) -> Result<Self, Fault> {
        let root = DeTable::parse(source).map_err(|error| Fault {
            at: error.span().map(|span| span.start),
            problem: Problem::Syntax {
                message: error.message().replace('\n', ", "),
            },
        })?;
        Ok(Self::new(place, 0, source, root.into_inner()))
    }

    fn new(place: &'static str, at: usize, source: &'a str, table: DeTable<'a>) -> Self {
        let mut entries: Vec<_> = table
            .into_iter()
            .map(|(key, value)| {
                let at = key.span().start;
                let value_of_key = key.into_inner().into_owned();
                let key = Located {
                    value: value_of_key,
                    at,
                };
                (key, value)
            })
            .collect();
        entries.sort_by_key(|(key, _)| key.at);
        Self {
            place,
            at,
            source,
            entries,
        }
    }

    /// Refuses all keys but these.
    pub(super) fn only(&self, known: &[&'static str]) -> Result<(), Fault> {
        let unknown = self
            .entries
            .iter()
            .find(|(key, _)| !known.contains(&&*key.value));
        unknown.map_or(Ok(()), |(key, _)| {
            let problem = Problem::UnknownKey {
                key: key.value.clone(),
                place: self.place,
                known: known.join(", "),
                meant: nearest(&key.value, known.iter().copied()),
            };
            Err(Fault::at(key.at, problem))
        })
    }

    fn take(&mut self, key: &str) -> Option<Spanned<DeValue<'a>>> {
        let place = self
            .entries
            .iter()
            .position(|(known, _)| known.value == key)?;
        Some(self.entries.remove(place).1)
    }

    /// Where a key stands; the table's own place if it does not.
    pub(super) fn key_at(&self, key: &str) -> usize {
        let found = self.entries.iter().find(|(known, _)| known.value == key);
        found.map_or(self.at, |(known, _)| known.at)
    }

    /// Demands a key that may be absent from the table.
    pub(super) fn need<T>(
        &self,
        key: &'static str,
        expected: &str,
        found: Option<T>,
    ) -> Result<T, Fault> {
        found.ok_or_else(|| {
            let problem = Problem::Missing {
                key,
                place: self.place,
                expected: expected.to_owned(),
            };
            Fault::at(self.at, problem)
        })
    }

    /// A text.
    pub(super) fn text(&mut self, key: &str, expected: &str) -> Result<Option<Text>, Fault> {
        let source = self.source;
        self.take(key)
            .map(|value| text(source, key, expected, value))
            .transpose()
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, key: &str, expected: &str) -> Result<Option<Vec<Text>>, Fault> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Array(_) => {}
            _ => return Err(wrong(self.source, key, expected, &value)),
        }
        let DeValue::Array(items) = value.into_inner() else {
            return Ok(None);
        };
        let list = items
            .into_iter()
            .map(|item| text(self.source, key, expected, item));
        list.collect::<Result<_, _>>().map(Some)
    }

    /// A length of time within bounds.
    pub(super) fn time(
        &mut self,
        key: &str,
        bounds: RangeInclusive<Nanos>,
    ) -> Result<Option<Located<Nanos>>, Fault> {
        let (low, high) = (
            super::step::exact(*bounds.start()),
            super::step::exact(*bounds.end()),
        );
        let expected = format!("a time from {low} to {high}, as \"10ms\"");
        let source = self.source;
        self.take(key)
            .map(|value| {
                let parsed = value.get_ref().as_str().and_then(|text| text.parse().ok());
                let parsed = parsed.filter(|time| bounds.contains(time));
                let time = parsed.ok_or_else(|| wrong(source, key, &expected, &value))?;
                let at = value.span().start;
                Ok(Located { value: time, at })
            })
            .transpose()
    }

    /// A whole number within bounds.
    pub(super) fn int<T>(
        &mut self,
        key: &str,
        bounds: RangeInclusive<T>,
    ) -> Result<Option<Located<T>>, Fault>
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        let source = self.source;
        self.take(key)
            .map(|value| {
                let parsed = whole(value.get_ref()).and_then(|int| T::try_from(int).ok());
                let parsed = parsed.filter(|int| bounds.contains(int));
                let int = parsed.ok_or_else(|| wrong(source, key, &expected, &value))?;
                let at = value.span().start;
                Ok(Located { value: int, at })
            })
            .transpose()
    }

    /// A number, or a word where a number may stand.
    pub(super) fn int_or_word(&mut self, key: &str) -> Option<(Result<i64, String>, Fault)> {
        let value = self.take(key)?;
        let fault = wrong(self.source, key, "", &value);
        let written = match value.get_ref() {
            DeValue::String(word) => Err(word.to_string()),
            other => whole(other).ok_or_else(String::new),
        };
        Some((written, fault))
    }

    /// True or false.
    pub(super) fn switch(&mut self, key: &str) -> Result<Option<bool>, Fault> {
        let source = self.source;
        self.take(key)
            .map(|value| {
                let switch = value.get_ref().as_bool();
                switch.ok_or_else(|| wrong(source, key, "true or false", &value))
            })
            .transpose()
    }

    /// Whether a key has this word as its value; only then it is taken.
    pub(super) fn word(&mut self, key: &str, word: &str) -> bool {
        let found = self.entries.iter().position(|(known, value)| {
            known.value == key && value.get_ref().as_str() == Some(word)
        });
        found.map(|place| self.entries.remove(place)).is_some()
    }

    /// The tables of a list of tables.
    pub(super) fn tables(&mut self, key: &str, place: &'static str) -> Result<Vec<Self>, Fault> {
        let Some(value) = self.take(key) else {
            return Ok(Vec::new());
        };
        let expected = format!("tables, each under a line {place}");
        let fault = wrong(self.source, key, &expected, &value);
        let DeValue::Array(items) = value.into_inner() else {
            return Err(fault);
        };
        let table = |item: Spanned<DeValue<'a>>| {
            let at = item.span().start;
            match item.into_inner() {
                DeValue::Table(table) => Ok(Self::new(place, at, self.source, table)),
                _ => Err(fault.clone()),
            }
        };
        items.into_iter().map(table).collect()
    }

    /// The entries of a table of whole numbers and texts, in the order written.
    pub(super) fn values(
        &mut self,
        key: &str,
        expected: &str,
    ) -> Result<Vec<(Located<String>, Value)>, Fault> {
        let Some(value) = self.take(key) else {
            return Ok(Vec::new());
        };
        let fault = wrong(self.source, key, expected, &value);
        let at = value.span().start;
        let DeValue::Table(table) = value.into_inner() else {
            return Err(fault);
        };
        let inner = Self::new(self.place, at, self.source, table);
        let entry = |(name, value): (Located<String>, Spanned<DeValue<'_>>)| {
            let found = match (whole(value.get_ref()), value.get_ref().as_str()) {
                (Some(number), _) => Value::Number(number),
                (None, Some(text)) => Value::Text(text.to_owned()),
                (None, None) => return Err(wrong(self.source, &name.value, expected, &value)),
            };
            Ok((name, found))
        };
        inner.entries.into_iter().map(entry).collect()
    }

    /// The entries of a table of texts, in the order written.
    pub(super) fn pairs(
        &mut self,
        key: &str,
        expected: &str,
    ) -> Result<Vec<(Located<String>, Text)>, Fault> {
        let Some(value) = self.take(key) else {
            return Ok(Vec::new());
        };
        let fault = wrong(self.source, key, expected, &value);
        let at = value.span().start;
        let DeValue::Table(table) = value.into_inner() else {
            return Err(fault);
        };
        let inner = Self::new(self.place, at, self.source, table);
        let pair = |(name, value): (Located<String>, _)| {
            let value = text(self.source, &name.value, expected, value)?;
            Ok((name, value))
        };
        inner.entries.into_iter().map(pair).collect()
    }
}

/// A whole number or a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Number(i64),
    Text(String),
}

fn whole(value: &DeValue<'_>) -> Option<i64> {
    let int = value.as_integer()?;
    i64::from_str_radix(int.as_str(), int.radix()).ok()
}

fn text(
    source: &str,
    key: &str,
    expected: &str,
    value: Spanned<DeValue<'_>>,
) -> Result<Text, Fault> {
    let span = value.span();
    let fault = wrong(source, key, expected, &value);
    let DeValue::String(content) = value.into_inner() else {
        return Err(fault);
    };
    let raw = source.get(span.clone()).unwrap_or("");
    Ok(Text {
        verbatim: raw
            .get(1..)
            .is_some_and(|inner| inner.starts_with(&*content)),
        value: content.into_owned(),
        at: span.start,
    })
}

/// The fault that a value is not what was expected.
fn wrong(source: &str, key: &str, expected: &str, value: &Spanned<DeValue<'_>>) -> Fault {
    let raw = source.get(value.span()).unwrap_or("");
    let written = match value.get_ref() {
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
        _ => raw.lines().next().unwrap_or("").to_owned(),
    };
    let problem = Problem::Value {
        key: key.to_owned(),
        written,
        expected: expected.to_owned(),
    };
    Fault::at(value.span().start, problem)
}
