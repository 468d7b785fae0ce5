//! Tables that consist of named rows with timestamps.

use super::{InvalidTable, TableFormat, oldest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A row of [`Rows`].
pub(crate) trait Row: Default + Serialize + DeserializeOwned {
    /// The table's name in the first line of the file.
    const KIND: &'static str;
    /// Maximum number of rows in a file.
    const MAX_ROWS: usize = usize::MAX;

    /// When it was made.
    fn stamp(&self) -> u64;

    /// All rows as text.
    fn print(rows: &BTreeMap<String, Self>) -> Result<String, InvalidTable> {
        toml::to_string(rows).map_err(InvalidTable::whole)
    }
}

/// Rows by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rows<R>(pub(crate) BTreeMap<String, R>);

impl<R: Row> TableFormat for Rows<R> {
    const KIND: &'static str = R::KIND;
    const MAX_ROWS: usize = R::MAX_ROWS;

    fn parse(text: &str) -> Result<Rows<R>, InvalidTable> {
        let rows: toml::Table = text.parse().map_err(InvalidTable::whole)?;
        let row = |(name, value): (String, toml::Value)| match value.try_into() {
            Ok(row) => Ok((name, row)),
            Err(error) => Err(InvalidTable { entry: Some(name), reason: toml::de::Error::to_string(&error) }),
        };
        rows.into_iter().map(row).collect::<Result<_, _>>().map(Rows)
    }

    fn print(&self) -> Result<String, InvalidTable> {
        R::print(&self.0)
    }

    fn rows(&self) -> usize {
        self.0.len()
    }

    fn drop_oldest(&mut self, count: usize) {
        for name in oldest(self.0.iter().map(|(name, row)| (name.clone(), row.stamp())), count) {
            self.0.remove(&name);
        }
    }
}
