//! Removal of unreachable objects, as in the chip's compiler: a table, hash or digest that no
//! statement reaches is in no schema. Registers and counters stay.

use crate::program::{Program, Step};
use hashbrown::{HashMap, HashSet};

/// Tables, hashes and digests that statements reach.
#[derive(Default)]
struct Used {
    tables: HashSet<usize>,
    actions: HashSet<usize>,
    hashes: HashSet<usize>,
    digests: HashSet<usize>,
}

impl Used {
    fn statements(&mut self, program: &Program, steps: &[Step]) {
        for step in steps {
            match step {
                Step::If(_, then, otherwise) => {
                    self.statements(program, then);
                    self.statements(program, otherwise);
                }
                Step::Apply { table, .. } if self.tables.insert(*table) => {
                    let table = &program.tables[*table];
                    for action in table.actions.iter().chain([&table.default.0]) {
                        self.action(program, *action);
                    }
                }
                Step::Run(action) => self.action(program, *action),
                Step::Hash { hash, .. } => {
                    self.hashes.insert(*hash);
                }
                Step::Digest { digest, .. } => {
                    self.digests.insert(*digest);
                }
                _ => {}
            }
        }
    }

    fn action(&mut self, program: &Program, action: usize) {
        if self.actions.insert(action) {
            self.statements(program, &program.actions[action].steps);
        }
    }
}

/// Removes unused tables of a compiled ingress, and the inputs of unused hashes.
pub(super) fn remove_from_ingress(program: &mut Program) {
    let mut used = Used::default();
    used.statements(program, &program.ingress);
    for (index, hash) in program.hashes.iter_mut().enumerate() {
        if !used.hashes.contains(&index) {
            hash.input.clear();
        }
    }
    let numbers = retain(&mut program.tables, &used.tables);
    renumber(&mut program.ingress, &|step| {
        if let Step::Apply { table, .. } = step
            && let Some(number) = numbers.get(table)
        {
            *table = *number;
        }
    });
}

/// Removes unused digests of a compiled deparser.
pub(super) fn remove_from_deparser(program: &mut Program) {
    let mut used = Used::default();
    used.statements(program, &program.deparser);
    let numbers = retain(&mut program.digests, &used.digests);
    renumber(&mut program.deparser, &|step| {
        if let Step::Digest { digest, .. } = step
            && let Some(number) = numbers.get(digest)
        {
            *digest = *number;
        }
    });
}

/// Removes unused items, and returns the new indices of the others by their old ones.
fn retain<T>(items: &mut Vec<T>, used: &HashSet<usize>) -> HashMap<usize, usize> {
    let numbers = (0..items.len()).filter(|index| used.contains(index)).zip(0..).collect();
    let mut indices = 0..;
    items.retain(|_| indices.next().is_some_and(|index| used.contains(&index)));
    numbers
}

fn renumber(steps: &mut [Step], change: &impl Fn(&mut Step)) {
    for step in steps {
        change(step);
        if let Step::If(_, then, otherwise) = step {
            renumber(then, change);
            renumber(otherwise, change);
        }
    }
}
