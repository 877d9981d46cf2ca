//! Batches of updates, and their rollback.

use super::target::{Fault, Query, Source, Write};
use super::{Switch, fault};
use crate::codec::{self, Completeness};
use crate::entry::{Entry, EntryTarget, Pipes};
use crate::proto::{self, entity, table_entry, update, write_request::Atomicity};
use crate::schema::{SYNC, Table, TableKind};
use tonic::Code;

/// Decoded update.
struct DecodedUpdate<'a> {
    table: &'a Table,
    pipes: Pipes,
    change: Change,
}

enum Change {
    Write(Write),
    /// Inserts the entry, or modifies it if it exists.
    Put(Write, Write),
    Operate(String),
}

/// Executes a batch and returns the outcome of every update.
pub(super) fn run(switch: &Switch, request: &proto::WriteRequest) -> Vec<Result<(), Fault>> {
    let updates = &request.updates;
    let all = |fault: &Fault| vec![Err(fault.clone()); updates.len().max(1)];
    let atomicity = match Atomicity::try_from(request.atomicity) {
        Ok(atomicity) => atomicity,
        Err(_) => {
            return all(&Fault::invalid(format!("there is no atomicity {}", request.atomicity)));
        }
    };
    let default = request.target.unwrap_or_default();
    if atomicity == Atomicity::ContinueOnError {
        let one =
            |update| understand(switch, &default, update).and_then(|step| carry_out(switch, &step));
        return updates.iter().map(one).collect();
    }
    if atomicity == Atomicity::DataplaneAtomic
        && let Err(fault) = switch.target.pause()
    {
        return all(&fault);
    }
    let outcomes = all_or_none(switch, &default, updates);
    if atomicity == Atomicity::DataplaneAtomic {
        switch.target.resume();
    }
    outcomes
}

fn all_or_none(
    switch: &Switch,
    default: &proto::TargetDevice,
    updates: &[proto::Update],
) -> Vec<Result<(), Fault>> {
    let mut undo: Vec<(&Table, Pipes, Write)> = Vec::new();
    for (index, update) in updates.iter().enumerate() {
        let done = understand(switch, default, update).and_then(|step| {
            let back = inverse(switch, &step)?;
            carry_out(switch, &step)?;
            undo.extend(back.into_iter().map(|(pipes, write)| (step.table, pipes, write)));
            Ok(())
        });
        let Err(fault) = done else { continue };
        let mut aborted = Fault::new(Code::Aborted, format!("taken back: update {index} failed"));
        for (table, pipes, write) in undo.into_iter().rev() {
            if let Err(fault) = switch.write(table, pipes, &write) {
                aborted = Fault::new(
                    Code::Internal,
                    format!(
                        "update {index} failed, and {} could not be taken back: {fault}",
                        table.name
                    ),
                );
            }
        }
        let mut outcomes = vec![Err(aborted); updates.len()];
        outcomes[index] = Err(fault);
        return outcomes;
    }
    vec![Ok(()); updates.len()]
}

/// Returns the writes that undo a step, in order of execution.
fn inverse(switch: &Switch, step: &DecodedUpdate<'_>) -> Result<Vec<(Pipes, Write)>, Fault> {
    let read = |pipes, query: &Query| match switch.read(step.table, pipes, query, Source::Hardware)
    {
        Ok(entries) => Ok(entries),
        Err(fault) if fault.code == Code::NotFound => Ok(Vec::new()),
        Err(fault) => Err(fault),
    };
    // Pipes may hold different values in a register.
    let pipes: Vec<Pipes> = match step.table.kind {
        TableKind::Register => step.pipes.of(switch.target.pipes()).map(Pipes::One).collect(),
        _ => vec![step.pipes],
    };
    let indexed = step.table.kind.is_indexed();
    let restore = |Entry { place, data }: Entry| match place {
        EntryTarget::Default => Write::SetDefault(data),
        EntryTarget::Key(key) if indexed => Write::Modify(key, data),
        EntryTarget::Key(key) => Write::Insert(key, data),
    };
    let write = match &step.change {
        Change::Operate(_) => return Ok(Vec::new()),
        Change::Put(insert, _) => insert,
        Change::Write(write) => write,
    };
    let mut undo = Vec::new();
    for pipes in pipes {
        let was = match write {
            Write::Insert(key, _) | Write::Modify(key, _) | Write::Delete(key) => {
                let was = read(pipes, &Query::Entry(key.clone()))?;
                match (was.is_empty(), write) {
                    (true, Write::Delete(_)) => {}
                    (true, _) => undo.push((pipes, Write::Delete(key.clone()))),
                    (false, Write::Delete(_)) => {}
                    (false, _) if indexed => {}
                    // A modified entry is deleted and inserted with its previous data. Writes are
                    // pushed in this order and executed in this order.
                    (false, _) => undo.push((pipes, Write::Delete(key.clone()))),
                }
                was
            }
            Write::Clear => read(pipes, &Query::All)?,
            Write::SetDefault(_) | Write::ResetDefault => {
                let was = read(pipes, &Query::Default)?;
                if was.is_empty() {
                    undo.push((pipes, Write::ResetDefault));
                }
                was
            }
        };
        undo.extend(was.into_iter().map(|entry| (pipes, restore(entry))));
    }
    // Undo the whole list in reverse order.
    undo.reverse();
    Ok(undo)
}

fn carry_out(switch: &Switch, step: &DecodedUpdate<'_>) -> Result<(), Fault> {
    match &step.change {
        Change::Write(write) => switch.write(step.table, step.pipes, write),
        Change::Put(insert, modify) => match switch.write(step.table, step.pipes, insert) {
            Err(fault) if fault.code == Code::AlreadyExists => {
                switch.write(step.table, step.pipes, modify)
            }
            done => done,
        },
        Change::Operate(operation) => {
            switch.target.operate(&step.table.name, step.pipes, operation)
        }
    }
}

fn understand<'a>(
    switch: &'a Switch,
    default: &proto::TargetDevice,
    update: &proto::Update,
) -> Result<DecodedUpdate<'a>, Fault> {
    let kind = update::Type::try_from(update.r#type).unwrap_or(update::Type::Unspecified);
    match update.entity.as_ref().and_then(|entity| entity.entity.as_ref()) {
        Some(entity::Entity::TableEntry(entry)) => write_entry(switch, default, kind, entry),
        Some(entity::Entity::TableOperation(operation)) => {
            let table =
                switch.schema.table_by_id(operation.table_id).map_err(fault(Code::NotFound))?;
            let name = operation_name(table, &operation.table_operations_type)?;
            Ok(DecodedUpdate {
                table,
                pipes: switch.pipes(default)?,
                change: Change::Operate(name),
            })
        }
        Some(_) => {
            Err(Fault::new(Code::Unimplemented, "only table entries and operations can be written"))
        }
        None => Err(Fault::invalid("an update of nothing")),
    }
}

/// Returns the name of an operation in the schema. Before SDE 9 introduced `Sync`, each kind of
/// table had its own name, which scripts still send.
fn operation_name(table: &Table, name: &str) -> Result<String, Fault> {
    let name = match (&table.kind, name) {
        (TableKind::Register, "SyncRegisters") | (TableKind::Counter, "SyncCounters") => SYNC,
        (_, name) => name,
    };
    if !table.offers(name) {
        let offered = if table.operations.is_empty() {
            "none".to_owned()
        } else {
            table.operations.join(", ")
        };
        return Err(Fault::invalid(format!(
            "{} has no operation {name}; it has: {offered}",
            table.name
        )));
    }
    Ok(name.to_owned())
}

fn write_entry<'a>(
    switch: &'a Switch,
    default: &proto::TargetDevice,
    kind: update::Type,
    entry: &proto::TableEntry,
) -> Result<DecodedUpdate<'a>, Fault> {
    let table = switch.schema.table_by_id(entry.table_id).map_err(fault(Code::NotFound))?;
    let pipes = switch.pipes(entry.entry_tgt.as_ref().unwrap_or(default))?;
    if table.read_only {
        return Err(Fault::new(
            Code::PermissionDenied,
            format!("{} cannot be written", table.name),
        ));
    }
    let nothing = proto::TableData::default();
    let message = entry.data.as_ref().unwrap_or(&nothing);
    let data = |completeness| {
        let data = codec::decode_data(table, message, completeness)
            .map_err(fault(Code::InvalidArgument))?;
        check_scope(table, &data.action, entry.is_default_entry)?;
        check_writable(table, message)?;
        Ok(data)
    };
    let whole = || data(Completeness::Whole);
    let part = || data(Completeness::Part);
    let write = match (&entry.value, entry.is_default_entry, kind) {
        (_, _, update::Type::Unspecified) => {
            return Err(Fault::invalid("an update without a type"));
        }
        (_, _, update::Type::ModifyInc) => {
            return Err(Fault::new(Code::Unimplemented, "entries cannot be changed incrementally"));
        }
        (Some(table_entry::Value::HandleId(_)), ..) => {
            return Err(Fault::new(
                Code::Unimplemented,
                "entries have no handles here; give the key",
            ));
        }
        (_, true, update::Type::Delete | update::Type::Reset) => {
            check_default(table)?;
            Write::ResetDefault
        }
        (_, true, _) => {
            check_default(table)?;
            Write::SetDefault(whole()?)
        }
        (None, false, update::Type::Delete) => Write::Clear,
        (_, false, update::Type::Reset) => {
            return Err(Fault::invalid("only default entries can be reset"));
        }
        // A table without a key has one entry: the default entry, or the value of a register's
        // parameter.
        (None, false, _) if table.keys.is_empty() && table.actions.is_empty() => {
            Write::SetDefault(whole()?)
        }
        (None, false, _) => {
            return Err(Fault::invalid(format!("{}: an entry without a key", table.name)));
        }
        (Some(table_entry::Value::Key(key)), false, kind) => {
            let key = codec::decode_key(table, key).map_err(fault(Code::InvalidArgument))?;
            switch.check_index(table, &key)?;
            match kind {
                update::Type::Insert if table.kind.is_indexed() => Write::Modify(key, part()?),
                update::Type::Insert => Write::Insert(key, whole()?),
                update::Type::Modify => Write::Modify(key, part()?),
                update::Type::InsertOrModify if table.kind.is_indexed() => {
                    Write::Modify(key, part()?)
                }
                update::Type::InsertOrModify => {
                    let change = Change::Put(
                        Write::Insert(key.clone(), whole()?),
                        Write::Modify(key, whole()?),
                    );
                    return Ok(DecodedUpdate { table, pipes, change });
                }
                _ if table.kind.is_indexed() => {
                    return Err(Fault::invalid(format!(
                        "{}: its entries cannot be deleted, only written",
                        table.name
                    )));
                }
                _ => Write::Delete(key),
            }
        }
    };
    Ok(DecodedUpdate { table, pipes, change: Change::Write(write) })
}

fn check_default(table: &Table) -> Result<(), Fault> {
    if table.constant_default {
        return Err(Fault::new(
            Code::PermissionDenied,
            format!("{}: the program fixes its default action", table.name),
        ));
    }
    Ok(())
}

fn check_scope(table: &Table, action: &Option<String>, default: bool) -> Result<(), Fault> {
    let Some(action) = action.as_deref().and_then(|name| table.action(name).ok()) else {
        return Ok(());
    };
    match default {
        true if !action.as_default => {
            Err(Fault::invalid(format!("{} cannot be a default action", action.name)))
        }
        false if !action.in_entries => {
            Err(Fault::invalid(format!("{} can only be a default action", action.name)))
        }
        _ => Ok(()),
    }
}

fn check_writable(table: &Table, message: &proto::TableData) -> Result<(), Fault> {
    let action = table.action_by_id(message.action_id).ok();
    let mut fields =
        message.fields.iter().filter_map(|field| table.field_by_id(action, field.field_id).ok());
    match fields.find(|field| field.read_only) {
        Some(field) => Err(Fault::new(
            Code::PermissionDenied,
            format!("{}: {} cannot be written", table.name, field.name),
        )),
        None => Ok(()),
    }
}
