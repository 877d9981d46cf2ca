//! Round-trip delays: the counts of a bank. Requests that wait for answers are persistent and stay
//! on the switch.

mod samples;

pub(in crate::tofino) use samples::Samples;

use super::{
    Array, BankCells, Capabilities, DesiredState, Failure, Layout, MatchTable, ReadArrays,
    StatedSettings, SwitchMeasurement, TableContents, hash, names,
};
use flowgauge_bfruntime::{Match, codec};
use flowgauge_core::delay::histogram::{BUCKETS, Bucket, least};
use flowgauge_core::delay::prefixes::{self, Owner, PrefixOwner};
use flowgauge_core::delay::weights::{CLASS_BITS, Weight, weights};
use flowgauge_core::delay::{
    self, Admission, Algorithm, Counts, DelayKind, Directions, EXPIRING_BITS, FRIDGES, Kinds,
    MAX_ADMIT_BITS,
};
use flowgauge_core::{BANKS, MeasurementKind, Settings, WindowTotals};

const KIND: MeasurementKind = MeasurementKind::Delay;
/// Kinds that a program can measure, with their definitions.
const KINDS: [(DelayKind, &str); 7] = [
    (DelayKind::TcpHandshake, "FLOWGAUGE_DELAY_TCP_HANDSHAKE"),
    (DelayKind::TcpData, "FLOWGAUGE_DELAY_TCP_DATA"),
    (DelayKind::TcpDuration, "FLOWGAUGE_DELAY_TCP_DURATION"),
    (DelayKind::TcpTimestamps, "FLOWGAUGE_DELAY_TCP_TIMESTAMPS"),
    (DelayKind::Dns, "FLOWGAUGE_DELAY_DNS"),
    (DelayKind::Icmp, "FLOWGAUGE_DELAY_ICMP"),
    (DelayKind::QuicSpin, "FLOWGAUGE_DELAY_QUIC_SPIN"),
];
/// Kinds whose slots retain the answered value. With expiry, such a slot would need three
/// comparisons, and a switch makes two.
const STAYING: [DelayKind; 2] = [DelayKind::TcpTimestamps, DelayKind::QuicSpin];
/// Kinds that a program can only measure alone.
const ALONE: [DelayKind; 3] =
    [DelayKind::TcpDuration, DelayKind::TcpTimestamps, DelayKind::QuicSpin];
const ALGORITHM: &str = "FLOWGAUGE_DELAY_ALGORITHM";
const SLOT_BITS: &str = "FLOWGAUGE_DELAY_SLOT_BITS";
/// Maximum total slots of the kinds in a table, as a power of two.
const MAX_SLOT_BITS: u8 = 16;

/// Age in ticks at which requests expire, negated: one parameter for each stage and table.
const AGES: [&str; 4] =
    ["delay.first_age0", "delay.second_age0", "delay.first_age1", "delay.second_age1"];
/// Prefixes of the hash and the admission of the request in a packet, and of the one it answers.
const REQUESTS: [&str; 2] = ["delay.asked", "delay.answered"];
/// Ternary table from the lower bits of a hash to whether the request is admitted.
const ADMISSION: &str = "admission";
const BANK: &str = "bank";
const BANK_BITS: u32 = 1;
const KIND_KEY: &str = "kind";
const KIND_BITS: u32 = 2;
const HASH: &str = "hash";
const HASH_BITS: u32 = 16;
const ADMIT: &str = "admit";
/// Whether requests are stored in a table, and whether their answers count.
const ADMITTED: [&str; 2] = ["kept", "counts"];
const FRIDGE: &str = "fridge";
const FRIDGE_BITS: u32 = FRIDGES.trailing_zeros();
/// Longest-prefix table from a delay to its bucket.
const TICKS: &str = "ticks";
const BUCKET_TABLE: &str = "delay.buckets";
const SET_BUCKET: &str = "set_bucket";
const NUMBER: &str = "number";
const BUCKET_BITS: u32 = BUCKETS.next_power_of_two().trailing_zeros();
/// Longest-prefix table from the number of requests stored since a request to the weight of its
/// delay.
const WEIGHTS: &str = "delay.weights";
const INSERTIONS: &str = "insertions";
const SET_WEIGHT: &str = "set_weight";
const WEIGHT: [&str; 5] = ["value", "inverted", "squared", "squared_inverted", "is_beyond"];

/// Longest-prefix tables from an address to its owner: their names, their actions, and whether they
/// are for IPv4.
const OWNERS: [(&str, &str, bool); 4] = [
    ("delay.ipv4_src_owners", SET_SRC_OWNER, true),
    ("delay.ipv4_dst_owners", SET_DST_OWNER, true),
    ("delay.ipv6_src_owners", SET_SRC_OWNER, false),
    ("delay.ipv6_dst_owners", SET_DST_OWNER, false),
];
const SET_SRC_OWNER: &str = "set_src_owner";
const SET_DST_OWNER: &str = "set_dst_owner";
const ADDRESS: &str = "address";
const GROUP: &str = "group";
const IS_LOCAL: &str = "is_local";
const GROUP_BITS: &str = "FLOWGAUGE_DELAY_GROUP_BITS";
const LOCAL: &str = "FLOWGAUGE_DELAY_LOCAL";
/// Maximum number of separately counted kinds, groups, directions and fridges, as a power of two.
const MAX_ROW_BITS: u32 = 5;

const COUNTS: [&str; 3] = ["delay.requests", "delay.admitted", "delay.backward"];
/// Insertions and miscounted requests, of kinds that remember requests.
const INSERTED: &str = "delay.inserted";
const INSERTIONS_AND_MISCOUNTED: [&str; 2] = ["insertions", "miscounted"];
const REFUSED: &str = "delay.refused";
const DELAYS: &str = "delay.delays";
const SAMPLES: [&str; 2] = ["samples", "beyond"];
const SUMS: [&str; 2] = ["delay.weights_sum", "delay.squares_sum"];
/// Halves of 64-bit numbers.
const HALVES: [&str; 2] = ["low", "high"];

pub(super) struct Delay;

impl SwitchMeasurement for Delay {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_DELAY")
    }

    fn check(&self, Settings { delay, .. }: &Settings) -> Result<(), Failure> {
        if !delay.kinds.any() {
            return Ok(());
        }
        if let Some(kind) =
            ALONE.into_iter().find(|kind| delay.kinds.has(*kind) && delay.kinds.number() > 1)
        {
            return Err(Failure::program(format!(
                "it measures {} alone, and no other delays beside it",
                kind.name()
            )));
        }
        if delay.algorithm == Algorithm::Expiry
            && let Some(kind) = STAYING.into_iter().find(|kind| delay.kinds.has(*kind))
        {
            return Err(Failure::program(format!(
                "it measures {} by fridge, multi-fridge or overwrite: {} takes three comparisons of a slot, and a switch has two",
                kind.name(),
                delay.algorithm.name()
            )));
        }
        if delay.directions == Directions::Apart {
            return Err(Failure::program(
                "a port does not say which direction is which; name our own addresses (--delay-local)",
            ));
        }
        if delay.asks_addresses() && delay.kinds.has(DelayKind::TcpDuration) {
            let name = DelayKind::TcpDuration.name();
            return Err(Failure::program(format!(
                "it measures {name} of all groups and directions together: either end closes a connection"
            )));
        }
        if kind_bits(delay.kinds) + (delay.labels() * delay.fridges()).trailing_zeros()
            > MAX_ROW_BITS
        {
            let problem = "kinds of delays, times groups (the next power of two), times two with --delay-local, times four for multi-fridge, are \
                           at most 32 on a switch; measure fewer kinds, or fewer groups";
            return Err(Failure::program(problem));
        }
        let most = MAX_SLOT_BITS.saturating_sub(kind_bits(delay.kinds) as u8);
        if delay.slots_log2 > most {
            let kinds = delay.kinds.number();
            return Err(Failure::program(format!(
                "with {kinds} kinds of delays a table has at most {} slots",
                1_u32 << most
            )));
        }
        Ok(())
    }

    fn read(
        &self,
        program: &StatedSettings,
        Settings { delay, .. }: &mut Settings,
    ) -> Result<(), Failure> {
        for (kind, definition) in KINDS {
            if program.is_on(definition)? {
                delay.kinds = delay.kinds.with(kind);
            }
        }
        delay.algorithm =
            program.one_of(ALGORITHM, Algorithm::ALL, |algorithm| algorithm as u32)?;
        delay.slots_log2 = program.bits(SLOT_BITS)?;
        delay.groups_log2 = program.bits(GROUP_BITS)?;
        delay.directions =
            if program.is_on(LOCAL)? { Directions::Local } else { Directions::Together };
        delay.samples = program.is_on(samples::DEFINITION)?;
        match delay.problem() {
            Some(_) => Err(program.out_of_range(SLOT_BITS)),
            None => Ok(()),
        }
    }

    fn layout(&self, Settings { delay, .. }: &Settings) -> Layout {
        let delay = *delay;
        let has = |(kind, definition): &(DelayKind, &'static str)| {
            (*definition, u32::from(delay.kinds.has(*kind)))
        };
        let mut definitions: Vec<_> = KINDS.iter().map(has).collect();
        definitions
            .extend([(ALGORITHM, delay.algorithm as u32), (SLOT_BITS, delay.slots_log2.into())]);
        definitions.extend([
            (GROUP_BITS, delay.groups_log2.into()),
            (LOCAL, u32::from(delay.directions == Directions::Local)),
        ]);
        definitions.extend(delay.samples.then_some((samples::DEFINITION, 1)));
        let kinds: Vec<&str> = delay.kinds.each().map(DelayKind::name).collect();
        let per_count = delay.labels() << kind_bits(delay.kinds);
        let per_bank = (per_count * delay.fridges()) << BUCKET_BITS;
        let mut arrays: Vec<Array> = COUNTS
            .iter()
            .map(|count| Array::new((*count).to_owned(), per_count, &HALVES))
            .collect();
        arrays.push(Array::new(DELAYS.to_owned(), per_bank, &SAMPLES));
        let mut tables: Vec<MatchTable> = Vec::new();
        // An edge of the spin bit is both request and answer.
        let requests = if delay.kinds.has(DelayKind::QuicSpin) { 1 } else { REQUESTS.len() };
        for request in REQUESTS.into_iter().take(requests) {
            tables.extend(hash::tabulation(format!("{request}.tabulation")));
            tables.push(admission(request, delay));
        }
        if delay.asks_addresses() {
            tables.extend(OWNERS.map(|(name, action, is_v4)| owners(name, action, is_v4, delay)));
        }
        let bucket = vec![(NUMBER, BUCKET_BITS)];
        let bits = tick_bits(&delay);
        let buckets = move |_: &DesiredState| buckets(bits);
        tables.push(MatchTable::new(
            BUCKET_TABLE.to_owned(),
            vec![(TICKS, bits)],
            SET_BUCKET,
            bucket,
            buckets,
        ));
        if delay.algorithm == Algorithm::Expiry {
            arrays.push(Array::new(REFUSED.to_owned(), per_count, &HALVES));
            let tick = delay.kinds.each().next().map_or(0, DelayKind::tick_bits);
            let age = (delay.expiry_ns >> tick).cast_signed();
            // Either end may close a connection, so there is one table.
            let number =
                if delay.kinds.has(DelayKind::TcpDuration) { AGES.len() / 2 } else { AGES.len() };
            tables.extend(
                AGES.into_iter()
                    .take(number)
                    .map(|name| MatchTable::of_register(name.to_owned(), move |_| -age)),
            );
        }
        if delay.weighs() {
            arrays.extend(SUMS.map(|sum| Array::new(sum.to_owned(), per_bank, &HALVES)));
            // Kinds that do not remember requests have a program of their own.
            if delay.kinds.each().any(|kind| delay.remembers(kind)) {
                let fields = &INSERTIONS_AND_MISCOUNTED;
                arrays.push(Array::new(INSERTED.to_owned(), per_count, fields));
            }
            let (keys, parameters) =
                (vec![(INSERTIONS, 32)], WEIGHT.map(|name| (name, 32)).to_vec());
            let filling = move |_: &DesiredState| classes(delay.fridge_slots_log2());
            tables.push(MatchTable::new(WEIGHTS.to_owned(), keys, SET_WEIGHT, parameters, filling));
        }
        let (algorithm, slots) = (delay.algorithm.name(), 1_u32 << delay.slots_log2);
        let groups = if delay.groups_log2 > 0 {
            format!(", {} groups", delay.groups())
        } else {
            String::new()
        };
        let sides = if delay.directions == Directions::Local { ", directions apart" } else { "" };
        let one_by_one = if delay.samples { ", one by one" } else { "" };
        let description = format!(
            "of {}, {algorithm}, {slots} slots{groups}{sides}{one_by_one}",
            kinds.join(", ")
        );
        Layout { description, definitions, arrays, rows: None, tables }
    }

    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        let ReadArrays { settings: Settings { delay, .. }, arrays, .. } = read;
        let Some(([requests, admitted, backward], [delays, sums @ ..])) =
            arrays.split_first_chunk()
        else {
            return 0;
        };
        for (count, cells) in
            bank.delay.counts.iter_mut().enumerate().take(delay.kinds.number() * delay.labels())
        {
            let total = |array: &BankCells| {
                array
                    .iter()
                    .filter_map(|pipe| pipe.get(count))
                    .fold(0, |sum: u64, half| sum.wrapping_add(whole(*half)))
            };
            let refused =
                sums.first().filter(|_| delay.algorithm == Algorithm::Expiry).map_or(0, total);
            let inserted = sums.get(SUMS.len()).filter(|_| delay.weighs()).into_iter().flatten();
            let [inserted, miscounted] =
                inserted.filter_map(|pipe| pipe.get(count)).fold([0_u64; 2], |sums, cell| {
                    [sums[0] + u64::from(cell[0]), sums[1] + u64::from(cell[1])]
                });
            *cells = Counts {
                requests: total(requests),
                admitted: total(admitted),
                refused,
                backward: total(backward),
                inserted,
                miscounted,
                ..*cells
            };
        }
        for (pipe, delays) in delays.iter().enumerate() {
            let sums = |index: usize| {
                let sum = |nth: usize| {
                    sums.get(nth)
                        .and_then(|array| array.get(pipe)?.get(index))
                        .copied()
                        .map_or(0, whole)
                };
                (sum(0), sum(1))
            };
            let rows = delays
                .chunks(1 << BUCKET_BITS)
                .zip(&mut bank.delay.histograms)
                .take(delay.histograms());
            for (row, (cells, histogram)) in rows.enumerate() {
                for (number, [samples, beyond]) in cells.iter().enumerate() {
                    let (weight, squares) = if delay.weighs() {
                        sums((row << BUCKET_BITS) + number)
                    } else {
                        let times = |one: u32| u64::from(one).wrapping_mul(u64::from(*samples));
                        (times(Weight::ONE.weight), times(Weight::ONE.square))
                    };
                    if let Some(bucket) = histogram.bucket_mut(number) {
                        bucket.merge(&Bucket {
                            weight,
                            squares,
                            samples: *samples,
                            beyond: *beyond,
                        });
                    }
                }
            }
        }
        0
    }

    fn capabilities(&self, settings: &Settings, capabilities: &mut Capabilities) {
        capabilities.delay_samples = settings.delay.samples;
    }
}

impl DesiredState {
    /// Returns the requests of a kind that a bank admits.
    pub(in crate::tofino) fn admission(
        &self,
        bank: usize,
        kind: DelayKind,
        settings: &delay::Settings,
    ) -> Admission {
        let find = |(of, admission): &(DelayKind, Admission)| (*of == kind).then_some(*admission);
        let set = self.admissions.get(bank).and_then(|bank| bank.iter().find_map(find));
        set.unwrap_or(Admission { kept: settings.admit_log2, counted: settings.admit_log2 })
    }
}

/// Stores the shares that a bank was counted with, if they follow the traffic.
pub(in crate::tofino) fn set_shares(
    Settings { delay, .. }: &Settings,
    admissions: &[(DelayKind, Admission)],
    bank: &mut WindowTotals,
) {
    if !delay.follows {
        return;
    }
    let (labels, fridges) = (delay.labels(), delay.fridges());
    for (rank, kind) in delay.kinds.each().enumerate() {
        let mut counts = bank.delay.counts.iter().skip(rank * labels).take(labels);
        let histograms =
            bank.delay.histograms.iter().skip(rank * labels * fridges).take(labels * fridges);
        let is_counted = counts.any(|counts| counts.requests > 0 || counts.backward > 0)
            || histograms
                .flat_map(|histogram| histogram.buckets())
                .any(|bucket| bucket.samples > 0);
        if is_counted {
            let set = admissions.iter().find(|(of, _)| *of == kind);
            bank.delay.set_admit_log2(
                kind,
                set.map_or(delay.admit_log2, |(_, admission)| admission.counted),
            );
        }
    }
}

/// Returns the number of index bits for the kind.
fn kind_bits(kinds: Kinds) -> u32 {
    kinds.number().next_power_of_two().trailing_zeros()
}

/// Returns the width of a delay on a switch, in bits.
fn tick_bits(delay: &delay::Settings) -> u32 {
    if delay.algorithm == Algorithm::Expiry { EXPIRING_BITS } else { u32::BITS }
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Returns the table of request admission, and of the fridge; the first match applies.
fn admission(request: &str, delay: delay::Settings) -> MatchTable {
    let has_fridges = delay.fridges() > 1;
    let ternary = |value: u32, mask: u32, bits| Match::Ternary {
        value: names::bytes(value, bits),
        mask: names::bytes(mask, bits),
    };
    // Matches a hash with at least this many zeros, of a bank and a kind if they have shares of
    // their own.
    let key = move |of: Option<(usize, usize)>, zeros: u32, priority: u32| {
        let mask = 1_u32.wrapping_shl(zeros).wrapping_sub(1);
        let part = |number: usize, bits: u32| {
            ternary(number as u32, if of.is_some() { (1 << bits) - 1 } else { 0 }, bits)
        };
        let (bank, kind) = of.unwrap_or_default();
        let priority = Match::Exact(priority.to_be_bytes().to_vec());
        vec![
            (BANK, part(bank, BANK_BITS)),
            (KIND_KEY, part(kind, KIND_BITS)),
            (HASH, ternary(0, mask, HASH_BITS)),
            (codec::PRIORITY, priority),
        ]
    };
    let filling = move |desired: &DesiredState| {
        if delay.follows {
            // The same keys whatever the shares, so that a change modifies only actions.
            let entry = |bank: usize, rank: usize, kind: DelayKind, zeros: u8| {
                let Admission { kept, counted } = desired.admission(bank, kind, &delay);
                let data = [kept, counted].map(|share| vec![u8::from(zeros >= share)]).to_vec();
                (key(Some((bank, rank)), zeros.into(), u32::from(MAX_ADMIT_BITS - zeros)), data)
            };
            let each = (0..BANKS).flat_map(|bank| {
                delay.kinds.each().enumerate().map(move |(rank, kind)| (bank, rank, kind))
            });
            let entries = each.flat_map(|(bank, rank, kind)| {
                (0..=MAX_ADMIT_BITS).map(move |zeros| entry(bank, rank, kind, zeros))
            });
            return TableContents { entries: entries.collect(), default: None };
        }
        let entry = |(priority, fridge): (u32, usize)| {
            let fridge_data = has_fridges.then(|| names::bytes(fridge as u32, FRIDGE_BITS));
            let data = [vec![1], vec![1]].into_iter().chain(fridge_data).collect();
            (key(None, u32::from(delay.admit_log2) + ((fridge as u32) << 1), priority), data)
        };
        // The fridge with the most zeros comes first.
        TableContents {
            entries: (0..).zip((0..delay.fridges()).rev()).map(entry).collect(),
            default: None,
        }
    };
    let parameters = ADMITTED
        .map(|name| (name, 1))
        .into_iter()
        .chain(has_fridges.then_some((FRIDGE, FRIDGE_BITS)))
        .collect();
    let keys = vec![(BANK, BANK_BITS), (KIND_KEY, KIND_BITS), (HASH, HASH_BITS)];
    MatchTable::new(format!("{request}.{ADMISSION}"), keys, ADMIT, parameters, filling)
        .that_changes(delay.follows)
}

/// Returns the table from addresses to their owner.
fn owners(name: &str, action: &str, is_v4: bool, delay: delay::Settings) -> MatchTable {
    let group = (delay.groups_log2 > 0).then_some((GROUP, u32::from(delay.groups_log2)));
    let side = (delay.directions == Directions::Local).then_some((IS_LOCAL, 1));
    let filling = move |desired: &DesiredState| {
        let entry = |owned: &PrefixOwner| {
            let (of_v4, address, length) = owned.prefix.parts();
            let value = if is_v4 {
                (address as u32).to_be_bytes().to_vec()
            } else {
                address.to_be_bytes().to_vec()
            };
            let Owner { group: number, is_local } =
                prefixes::owner(&desired.tables.prefixes, &owned.prefix);
            let group = group.map(|(_, bits)| names::bytes(number.into(), bits));
            let data = group.into_iter().chain(side.map(|_| vec![is_local.into()])).collect();
            (of_v4 == is_v4).then(|| {
                (vec![(ADDRESS, Match::Lpm { value, prefix_length: length.into() })], data)
            })
        };
        TableContents {
            entries: desired.tables.prefixes.iter().filter_map(entry).collect(),
            default: None,
        }
    };
    let bits = if is_v4 { u32::BITS } else { u64::BITS };
    MatchTable::new(
        name.to_owned(),
        vec![(ADDRESS, bits)],
        action,
        group.into_iter().chain(side).collect(),
        filling,
    )
}

fn prefix(value: u32, free_bits: u32, bits: u32) -> Match {
    Match::Lpm { value: value.to_be_bytes().to_vec(), prefix_length: bits - free_bits }
}

/// Returns the table from delays of `bits` bits to buckets. The highest bit is the sign.
fn buckets(bits: u32) -> TableContents {
    let data = |bucket: usize| vec![names::bytes(bucket as u32, BUCKET_BITS)];
    let entry = |bucket: usize| {
        let free_bits = (least(bucket + 1) - least(bucket)).trailing_zeros();
        (vec![(TICKS, prefix(least(bucket), free_bits, bits))], data(bucket))
    };
    let positive = (0..BUCKETS).take_while(|bucket| least(*bucket) < 1 << (bits - 1));
    TableContents { entries: positive.map(entry).collect(), default: Some(data(0)) }
}

/// Returns the table of weights with their complements, by class. Delays beyond the last class
/// weigh as much as in it.
fn classes(slots_log2: u8) -> TableContents {
    let free_bits = u32::from(slots_log2).saturating_sub(CLASS_BITS);
    let data = |weight: Weight, is_beyond: bool| {
        let values =
            [weight.weight, !weight.weight, weight.square, !weight.square, is_beyond.into()];
        values.map(|value| value.to_be_bytes().to_vec()).to_vec()
    };
    let entry = |(class, weight): (u32, Weight)| {
        (vec![(INSERTIONS, prefix(class << free_bits, free_bits, u32::BITS))], data(weight, false))
    };
    let last = weights(slots_log2).last().unwrap_or(Weight::ONE);
    TableContents {
        entries: (0..).zip(weights(slots_log2)).map(entry).collect(),
        default: Some(data(last, true)),
    }
}
