//! Contents of the switch's match tables: installs and verifies them.

use super::session::Client;
use super::table::{Content, DesiredState};
use super::{entries, filter};
use crate::error::Failure;
use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::{Entry, EntryTarget};

impl Client<'_> {
    /// Removes all entries of a table, or resets all elements of a register or counter, of both
    /// banks, to their initial values.
    pub(super) async fn empty(&mut self, table: &str) -> Result<(), Failure> {
        let table = self.program.table(table)?;
        let update = proto::Update {
            r#type: proto::update::Type::Delete.into(),
            entity: Some(entries::entity(entries::all(table))),
        };
        self.session.write(&format!("emptying {}", table.name), vec![update], 1).await
    }

    /// Replaces the content of a table.
    pub(super) async fn fill(&mut self, content: Content, batch: usize) -> Result<(), Failure> {
        let table = self.program.table(&content.table)?;
        // A table without a key has only a default action.
        if !table.keys.is_empty() {
            self.empty(&content.table).await?;
        }
        let mut updates = Vec::with_capacity(content.entries.len() + 1);
        if let Some(data) = content.default {
            updates.push(entries::update(
                table,
                proto::update::Type::Modify,
                &Entry { place: EntryTarget::Default, data },
            )?);
        }
        for entry in &content.entries {
            updates.push(entries::update(table, proto::update::Type::Insert, entry)?);
        }
        self.session.write(&format!("filling {}", table.name), updates, batch).await
    }

    /// Makes the entries of a bank in the tables of expressions those of its filter. The other
    /// bank's entries stay.
    pub(super) async fn set_filter(
        &mut self,
        desired: &DesiredState,
        bank: usize,
        batch: usize,
    ) -> Result<(), Failure> {
        for content in self.program.contents(desired, |table| filter::is_table(&table.name))? {
            let table = self.program.table(&content.table)?;
            let answer = self.session.read_all(table).await?;
            let present = answer
                .iter()
                .map(|message| entries::decode(table, message))
                .collect::<Result<Vec<Entry>, _>>()?;
            let is_of_bank = |entry: &&Entry| filter::is_of_bank(entry, bank);
            let superfluous =
                present.iter().filter(is_of_bank).filter(|entry| !content.entries.contains(entry));
            let new =
                content.entries.iter().filter(is_of_bank).filter(|entry| !present.contains(entry));
            let mut updates = superfluous
                .map(|entry| entries::removal(table, entry))
                .collect::<Result<Vec<_>, _>>()?;
            for entry in new {
                updates.push(entries::update(table, proto::update::Type::Insert, entry)?);
            }
            self.session.write(&format!("changing {}", table.name), updates, batch).await?;
        }
        Ok(())
    }

    /// Returns whether the switch's tables are as desired, that is, whether it was not restarted.
    /// The filter of an ignored bank may be any.
    pub(super) async fn holds(
        &mut self,
        desired: &DesiredState,
        ignored: Option<usize>,
    ) -> Result<bool, Failure> {
        for content in self.program.contents(desired, |_| true)? {
            if !self.holds_content(&content, ignored).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether a table has exactly these entries; for a table without a key, this default
    /// entry. Entries of an ignored bank's filter are not compared.
    pub(super) async fn holds_content(
        &mut self,
        content: &Content,
        ignored: Option<usize>,
    ) -> Result<bool, Failure> {
        let ignored = ignored.filter(|_| filter::is_table(&content.table));
        let is_compared =
            |entry: &Entry| ignored.is_none_or(|bank| !filter::is_of_bank(entry, bank));
        let table = self.program.table(&content.table)?;
        let has_key = !table.keys.is_empty();
        let default = content
            .default
            .iter()
            .filter(|_| !has_key)
            .map(|data| Entry { place: EntryTarget::Default, data: data.clone() });
        let default: Vec<Entry> = default.collect();
        let mut expected: Vec<&Entry> = content.entries.iter().chain(&default).collect();
        expected.retain(|entry| is_compared(entry));
        expected.sort_by_key(|entry| entry.place.key().cloned());
        // A truncated answer looks like a table that has lost entries. A "no" leads to a reset of
        // the counters, so it is confirmed once.
        for _ in 0..2 {
            let answer = if has_key {
                self.session.read_all(table).await?
            } else {
                self.session.read_default(table).await?
            };
            let mut desired = answer
                .iter()
                .map(|message| entries::decode(table, message))
                .collect::<Result<Vec<Entry>, _>>()?;
            desired.retain(is_compared);
            desired.sort_by_key(|entry| entry.place.key().cloned());
            let is_same = |(desired, expected): (&Entry, &&Entry)| {
                if content.changes { desired.place == expected.place } else { desired == *expected }
            };
            if desired.len() == expected.len() && desired.iter().zip(&expected).all(is_same) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the entries of tables that change while the switch counts: those that differ from
    /// `before`, or all.
    pub(super) async fn set_changing(
        &mut self,
        before: Option<&DesiredState>,
        desired: &DesiredState,
        batch: usize,
    ) -> Result<(), Failure> {
        let program = self.program;
        let changing = |desired: &DesiredState| program.contents(desired, |table| table.changes);
        let before = before.map(changing).transpose()?.unwrap_or_default();
        for content in changing(desired)? {
            let same = before.iter().find(|before| before.table == content.table);
            let table = self.program.table(&content.table)?;
            let is_new = |entry: &&Entry| same.is_none_or(|same| !same.entries.contains(entry));
            let default = content
                .default
                .iter()
                .filter(|default| same.is_none_or(|same| same.default.as_ref() != Some(*default)));
            let default: Vec<Entry> = default
                .map(|data| Entry { place: EntryTarget::Default, data: data.clone() })
                .collect();
            let new = content.entries.iter().filter(is_new).chain(&default);
            let updates =
                new.map(|entry| entries::update(table, proto::update::Type::Modify, entry));
            self.session
                .write(
                    &format!("changing {}", table.name),
                    updates.collect::<Result<_, _>>()?,
                    batch,
                )
                .await?;
        }
        Ok(())
    }
}
