//! Damaged, partial, late or missing answers.

use crate::common::{assert_contains, persist};
use crate::tofino::lab::{Lab, PATIENT, Reads, Writes, failure, refused, warnings};
use flowgauge_bfruntime::proto::{self, data_field, entity, key_field, table_entry, update};
use flowgauge_dataplane::Dataplane;
use flowgauge_dataplane::tofino::Failure;
use std::time::Duration;
use tonic::{Code, Status};

/// IDs of tables in the schema.
pub const BANK: u32 = 11;
pub const REGISTERS: u32 = 13;
pub const FRAMES: u32 = 14;

/// Deadline short enough to fail.
const SHORT: Duration = Duration::from_millis(50);

fn is_of(entity: &proto::Entity, table: u32) -> bool {
    matches!(&entity.entity, Some(entity::Entity::TableEntry(entry)) if entry.table_id == table)
}

pub fn asks_for(request: &proto::ReadRequest, table: u32) -> bool {
    request.entities.iter().any(|entity| is_of(entity, table))
}

pub fn is_entry(update: &proto::Update) -> bool {
    matches!(update.entity, Some(proto::Entity { entity: Some(entity::Entity::TableEntry(_)) }))
}

fn writes_to(request: &proto::WriteRequest, table: u32) -> bool {
    let mut entities = request.updates.iter().filter_map(|update| update.entity.as_ref());
    entities.any(|entity| is_of(entity, table))
}

fn entry(answer: &mut proto::ReadResponse, index: usize) -> &mut proto::TableEntry {
    match &mut answer.entities[index].entity {
        Some(entity::Entity::TableEntry(entry)) => entry,
        other => panic!("{other:?}"),
    }
}

fn fields(answer: &mut proto::ReadResponse, index: usize) -> &mut Vec<proto::DataField> {
    &mut entry(answer, index).data.as_mut().unwrap().fields
}

fn index_of(answer: &mut proto::ReadResponse, index: usize) -> &mut Vec<u8> {
    let Some(table_entry::Value::Key(key)) = &mut entry(answer, index).value else { panic!() };
    match &mut key.fields[0].match_type {
        Some(key_field::MatchType::Exact(exact)) => &mut exact.value,
        other => panic!("{other:?}"),
    }
}

fn bytes(answer: &mut proto::ReadResponse, index: usize, field: usize) -> &mut Vec<u8> {
    match &mut fields(answer, index)[field].value {
        Some(data_field::Value::Stream(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Appends a copy of a field to its entry.
fn repeat_field(answer: &mut proto::ReadResponse, index: usize, field: usize) {
    let fields = fields(answer, index);
    fields.push(fields[field].clone());
}

type Damage = fn(&mut proto::ReadResponse);

/// Damages the answers to reads of a table.
fn damage_answers(lab: &Lab, table: u32, damage: Damage) {
    lab.tampering.reads(move |request, mut answer| {
        if asks_for(request, table) {
            damage(&mut answer);
        }
        Reads::Answer(vec![answer], None)
    });
}

#[track_caller]
fn assert_problem(failed: &Failure, expected: &str) {
    let Failure::Answer { problem } = failed else { panic!("{failed} and not {expected}") };
    assert!(problem.contains(expected), "{problem}\nand not\n{expected}");
    assert!(failed.is_transient(), "{failed}");
}

/// Asserts that each damage is an error with this problem until it ends, and loses nothing.
fn assert_harmless(lab: &Lab, damages: impl IntoIterator<Item = (u32, Damage, &'static str)>) {
    let mut tofino = lab.counting();
    let mut first = 0;
    for (table, damage, expected) in damages {
        let packets = first..first + 10;
        first += 10;
        lab.count(packets.clone());
        damage_answers(lab, table, damage);
        for failed in [tofino.sample(), tofino.rotate(), tofino.rotate()] {
            assert_problem(&failure(failed), expected);
        }
        lab.tampering.stop();
        lab.assert_holds(&tofino.rotate().unwrap(), packets);
        // Bank 0 is the next one again.
        lab.assert_holds(&tofino.rotate().unwrap(), 0..0);
    }
    assert_eq!(lab.proxy.accepted(), 1, "for none of these the connection was given up");
    assert_eq!(warnings(&mut tofino), [""; 0]);
}

/// Damage of registers, with the error that it causes. The switch has two pipes and two banks of
/// 64; the first bank is read.
const OF_REGISTERS: &[(Damage, &str)] = &[
    (|answer| answer.entities.clear(), "64 of 64 entries are missing"),
    (|answer| drop(answer.entities.pop()), "1 of 64 entries are missing"),
    (|answer| drop(answer.entities.remove(40)), "1 of 64 entries are missing"),
    (|answer| answer.entities.push(answer.entities[5].clone()), "index 5 twice"),
    (
        |answer| *index_of(answer, 9) = vec![0, 0, 0, 64],
        "an index 64, where 0 to 63 were asked for",
    ),
    (
        |answer| *index_of(answer, 9) = vec![255; 4],
        "an index 4294967295, where 0 to 63 were asked for",
    ),
    (|answer| *index_of(answer, 9) = vec![9], "index: 1 bytes given where 4 hold its 32 bits"),
    (|answer| index_of(answer, 9).clear(), "index: 0 bytes given where 4 hold its 32 bits"),
    (|answer| entry(answer, 0).table_id = 12, "an entry of table 12 and not of 13"),
    (|answer| entry(answer, 0).value = None, "an entry without a key"),
    (
        |answer| entry(answer, 0).value = Some(table_entry::Value::HandleId(3)),
        "an entry without a key",
    ),
    (
        |answer| entry(answer, 0).value = Some(table_entry::Value::Key(proto::TableKey::default())),
        "whose key is no index",
    ),
    (|answer| entry(answer, 3).data = None, "registers[3] has values of 0 pipes, others of 2"),
    (|answer| fields(answer, 3).clear(), "registers[3] has values of 0 pipes, others of 2"),
    (|answer| drop(fields(answer, 3).pop()), "registers[3] has values of 1 pipes, others of 2"),
    (|answer| repeat_field(answer, 3, 0), "values of 3 pipes"),
    (
        |answer| (0..64).for_each(|index| drop(fields(answer, index).pop())),
        "registers of 1 pipes, of 2 before",
    ),
    (
        |answer| (0..64).for_each(|index| repeat_field(answer, index, 0)),
        "registers of 3 pipes, of 2 before",
    ),
    (|answer| fields(answer, 3)[1].field_id = 2, "registers[3] has another field"),
    (|answer| fields(answer, 3)[1].value = None, "registers[3] has another field"),
    (
        |answer| fields(answer, 3)[1].value = Some(data_field::Value::StrVal("7".into())),
        "registers[3] has another field",
    ),
    (|answer| *bytes(answer, 3, 0) = vec![], "registers[3]: 0 bytes given where 1 hold its 8 bits"),
    (
        |answer| *bytes(answer, 3, 0) = vec![0, 7],
        "registers[3]: 2 bytes given where 1 hold its 8 bits",
    ),
    (|answer| *bytes(answer, 50, 1) = vec![28], "registers[50] is 28, no hash gives more than 27"),
    (|answer| answer.entities[0].entity = None, "something else than a table's entry"),
    (
        |answer| {
            answer.entities[0].entity =
                Some(entity::Entity::TableUsage(proto::TableUsage::default()))
        },
        "something else than a table's entry",
    ),
];

/// Damage of counters; a bank has eight.
const OF_COUNTERS: &[(Damage, &str)] = &[
    (|answer| answer.entities.clear(), "8 of 8 entries are missing"),
    (|answer| drop(answer.entities.remove(0)), "1 of 8 entries are missing"),
    (
        |answer| drop(fields(answer, 0).remove(1)),
        "frames[0]: $COUNTER_SPEC_PKTS is not there exactly once",
    ),
    (
        |answer| drop(fields(answer, 0).remove(0)),
        "frames[0]: $COUNTER_SPEC_BYTES is not there exactly once",
    ),
    (
        |answer| fields(answer, 0).swap_remove(0).field_id = 0,
        "frames[0]: $COUNTER_SPEC_BYTES is not there exactly once",
    ),
    (
        |answer| repeat_field(answer, 0, 1),
        "frames[0]: $COUNTER_SPEC_PKTS is not there exactly once",
    ),
    (|answer| bytes(answer, 0, 1).truncate(7), "frames[0]: 7 bytes given where 8 hold its 64 bits"),
    (|answer| bytes(answer, 5, 1)[7] = 1, "packets of classes that there are not"),
];

#[test]
fn a_damaged_answer_is_an_error_that_says_what_is_wrong_and_loses_nothing() {
    let lab = Lab::new(2);
    let of_registers = OF_REGISTERS.iter().map(|(damage, text)| (REGISTERS, *damage, *text));
    let of_counters = OF_COUNTERS.iter().map(|(damage, text)| (FRAMES, *damage, *text));
    assert_harmless(&lab, of_registers.chain(of_counters));
}

#[test]
fn the_active_bank_is_decoded_from_one_default_entry() {
    let (lab, mut tofino) = Lab::new(1).started();
    lab.count(0..10);
    let damages: [(Damage, &str); 5] = [
        (|answer| answer.entities.clear(), "0 default entries of one table"),
        (|answer| entry(answer, 0).is_default_entry = false, "an entry without a key"),
        (|answer| entry(answer, 0).table_id = 12, "an entry of table 12 and not of"),
        (|answer| fields(answer, 0).clear(), "says no bank"),
        (|answer| *bytes(answer, 0, 0) = vec![2], "0x2 does not fit in its 1 bits"),
    ];
    for (damage, expected) in damages {
        damage_answers(&lab, BANK, damage);
        assert_problem(&failure(tofino.sample()), expected);
        assert_problem(&failure(tofino.rotate()), expected);
    }
    lab.tampering.stop();
    lab.assert_holds(&tofino.rotate().unwrap(), 0..10);
}

#[test]
fn an_answer_may_come_in_parts_and_in_any_order() {
    let (lab, mut tofino) = Lab::new(2).started();
    lab.count(0..200);
    lab.tampering.reads(|_, mut answer| {
        answer.entities.reverse();
        let one =
            |entity: proto::Entity| proto::ReadResponse { entities: vec![entity], status: vec![] };
        Reads::Answer(answer.entities.into_iter().map(one).collect(), None)
    });
    lab.assert_holds(&tofino.rotate().unwrap(), 0..200);
}

fn error(code: Code, message: &str) -> proto::Error {
    proto::Error { canonical_code: code.into(), message: message.into(), ..Default::default() }
}

#[test]
fn half_an_answer_is_rejected() {
    use Code::{
        Aborted, DataLoss, Internal, PermissionDenied, ResourceExhausted, Unavailable, Unknown,
    };

    let (lab, mut tofino) = Lab::new(2).started();
    lab.count(0..200);
    let transient = [DataLoss, Internal, Unavailable, ResourceExhausted, Aborted];
    for code in transient.into_iter().chain([PermissionDenied, Unknown]) {
        lab.tampering.reads(move |request, mut answer| {
            if !asks_for(request, REGISTERS) {
                return Reads::Answer(vec![answer], None);
            }
            answer.entities.truncate(32);
            Reads::Answer(vec![answer], Some(Status::new(code, "the rest is gone")))
        });
        let what = "reading pipe.Ingress.flowgauge.cardinality_by_src.registers: the rest is gone";
        let failed = refused(tofino.rotate(), what);
        assert_eq!(failed.is_transient(), transient.contains(&code), "{failed}");
        lab.tampering.stop();
    }
    // Errors may also be in a message that looks like success.
    lab.tampering.reads(|_, answer| {
        let error = error(Code::NotFound, "no such thing");
        Reads::Answer(vec![proto::ReadResponse { status: vec![error], ..answer }], None)
    });
    let failed = failure(tofino.rotate()).to_string();
    assert_contains(&failed, &["refused (NOT_FOUND)", "number 0: no such thing"]);
    lab.tampering.stop();
    lab.assert_holds(&tofino.rotate().unwrap(), 0..200);
}

#[test]
fn what_is_not_answered_in_time_is_asked_again_on_a_new_connection() {
    let (lab, mut tofino) = Lab::new(2).started();
    for table in [BANK, REGISTERS, FRAMES] {
        lab.count(0..50);
        lab.tampering.reads(move |request, answer| match asks_for(request, table) {
            true => Reads::Never,
            false => Reads::Answer(vec![answer], None),
        });
        tofino.set_deadline(SHORT);
        // On a slow machine an earlier call may be late too, and is then repeated.
        let failed = failure(tofino.rotate());
        assert!(failed.is_transient(), "{failed}");
        assert!(matches!(failed, Failure::NoAnswer { waited: SHORT }), "{failed}");
        lab.tampering.stop();
        tofino.set_deadline(PATIENT);
        lab.assert_holds(&persist(|| tofino.rotate()), 0..50);
    }
}

#[test]
fn a_write_whose_fate_is_unknown_is_repeated_and_counts_once() {
    let writes =
        [(BANK, "the flip"), (REGISTERS, "clearing registers"), (FRAMES, "clearing counters")];
    for (table, what) in writes {
        for lost in [true, false] {
            let (lab, mut tofino) = Lab::new(2).started();
            lab.count(0..300);
            let (proxy, mut cuts) = (lab.proxy.handle(), 1);
            lab.tampering.writes(move |request| {
                if cuts == 0 || !writes_to(request, table) {
                    return Writes::CarriedOut;
                }
                cuts -= 1;
                if lost {
                    proxy.cut();
                }
                if lost { Writes::Lost } else { Writes::AnswerLost(proxy.clone()) }
            });
            let failed = failure(tofino.rotate());
            assert!(matches!(failed, Failure::Unreachable { .. }), "{what}: {failed}");
            lab.assert_holds(&persist(|| tofino.rotate()), 0..300);
            lab.assert_holds(&persist(|| tofino.rotate()), 0..0);
            lab.assert_holds(&persist(|| tofino.rotate()), 0..0);
        }
    }
}

#[test]
fn refused_writes_say_which_and_why() {
    let (lab, mut tofino) = Lab::new(1).started();
    lab.count(0..10);
    lab.tampering.writes(move |_| {
        Writes::Errors(vec![error(Code::Ok, ""), error(Code::ResourceExhausted, "no room")])
    });
    let failed = failure(tofino.rotate());
    assert!(failed.is_transient());
    let why = "refused (RESOURCE_EXHAUSTED): changing the bank that counts: number 1: no room; 0 others failed as well";
    assert_eq!(failed.to_string(), why);
    lab.tampering.writes(|_| Writes::Refused(Status::permission_denied("not you")));
    let failed = failure(tofino.rotate());
    assert!(!failed.is_transient());
    let why = "refused (PERMISSION_DENIED): changing the bank that counts: not you";
    assert_eq!(failed.to_string(), why);
    lab.tampering.stop();
    lab.assert_holds(&tofino.rotate().unwrap(), 0..10);
}

#[test]
fn a_closed_bank_that_counts_on_is_not_read() {
    let (lab, mut tofino) = Lab::new(1).started();
    lab.count(0..10);
    // The flip is confirmed but not carried out.
    lab.tampering.writes(|request| {
        if writes_to(request, BANK) { Writes::Errors(vec![]) } else { Writes::CarriedOut }
    });
    let switch = lab.switch.clone();
    lab.tampering.reads(move |request, answer| {
        if asks_for(request, REGISTERS) {
            switch.count(&flowgauge_testing::frames::uniques(10..11));
        }
        Reads::Answer(vec![answer], None)
    });
    refused(tofino.rotate(), "bank 0 is closed and counts on");
    lab.tampering.stop();
    // The switch counts in the wrong bank: its windows cannot be separated.
    let snapshot = tofino.rotate().unwrap();
    assert!(!snapshot.complete);
    assert_eq!(snapshot.bank.counters.packets(), 0);
    lab.count(20..30);
    lab.assert_holds(&tofino.rotate().unwrap(), 20..30);
}

#[test]
fn installing_is_retried_until_the_time_limit() {
    let lab = Lab::new(1);
    let refuse = |failures: usize| {
        let mut left = failures;
        move |request: &proto::WriteRequest| {
            let insert = i32::from(update::Type::Insert);
            if left > 0 && request.updates.iter().any(|update| update.r#type == insert) {
                left -= 1;
                return Writes::Refused(Status::aborted("busy"));
            }
            Writes::CarriedOut
        }
    };
    lab.tampering.writes(refuse(1));
    let mut tofino = lab.connect();
    let why = "refused (ABORTED): filling pipe.Ingress.flowgauge.cardinality_by_src.rank: busy";
    assert_eq!(failure(tofino.install(&lab.tables())).to_string(), why);
    drop(tofino);

    let mut options = lab.options();
    options.patience = PATIENT;
    lab.tampering.writes(refuse(5));
    let mut tofino = crate::tofino::windows::connect_patiently(&options, lab.settings);
    tofino.install(&lab.tables()).unwrap();
    lab.count(0..10);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..10);
}

/// Each row of a sketch has its own answer, and so has each half of a sum.
#[test]
fn a_damaged_answer_of_a_sketch_is_an_error_and_loses_nothing() {
    let lab = Lab::with(crate::tofino::programs::everything(), 2);
    let damages: [(u32, Damage, &str); 8] = [
        (
            51,
            |answer| drop(answer.entities.remove(3)),
            "frequency_by_src.count_min1: 1 of 16 entries are missing",
        ),
        (
            51,
            |answer| drop(fields(answer, 3).pop()),
            "frequency_by_src.count_min1[3] has values of 1 pipes, others of 2",
        ),
        (
            51,
            |answer| (0..16).for_each(|index| drop(fields(answer, index).pop())),
            "registers of 1 pipes, of 2 before",
        ),
        (
            42,
            |answer| *bytes(answer, 9, 1) = vec![1],
            "entropy_by_src.count_sketch2[9]: 1 bytes given where 4 hold its 32 bits",
        ),
        (
            43,
            |answer| drop(fields(answer, 0).pop()),
            "entropy_by_src.sum[0] has values of 2 pipes, others of 0",
        ),
        (
            43,
            |answer| fields(answer, 0)[0].field_id = 2,
            "entropy_by_src.sum[0] has values of 1 pipes, others of 0",
        ),
        (43, |answer| fields(answer, 0)[0].field_id = 3, "entropy_by_src.sum[0] has another field"),
        (
            62,
            |answer| answer.entities.clear(),
            "membership_by_src.bits2: 2 of 2 entries are missing",
        ),
    ];
    assert_harmless(&lab, damages);
}
