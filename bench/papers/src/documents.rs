//! All numbers that the three documents print and that can be compared, next to ours: the list
//! `printed.csv`, verdicts, and the page of the documentation, whose text is `reproductions.md.in`.
//!
//! A line of the list names a result of a reproduction, so that nothing on the page is written by
//! hand: neither our numbers nor verdicts.

use crate::report::{Cell, Column, Table};
use crate::statistics::{Numbers, Spread};

const LIST: &str = include_str!("../printed.csv");
const TEXT: &str = include_str!("../reproductions.md.in");

/// Standard deviations by which one run may differ from the mean of ours. The chance that a normal
/// variable does is 0.3 %.
const DEVIATIONS: f64 = 3.0;

/// Document with printed numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its name in the list.
    name: &'static str,
    /// Authors, title and place.
    pub title: &'static str,
}

impl Document {
    /// All documents.
    pub(crate) const ALL: [Document; 3] = [
        Document {
            name: "thesis",
            title: "Amanj Malaei, Performance Evaluation of HyperLogLog for In-Network Flow Cardinality Estimation on P4-Programmable Switches, Politecnico di \
                    Torino, 2025-2026",
        },
        Document {
            name: "p4entropy",
            title: "Damu Ding, Marco Savi and Domenico Siracusa, Estimating Logarithmic and Exponential Functions to Track Network Traffic Entropy in P4, NOMS 2020",
        },
        Document {
            name: "dissertation",
            title: "Yufei Zheng, Compact Algorithms for Measuring Network Performance, Princeton University, 2024",
        },
    ];
}

/// Relation in which our number has to be to the printed one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Relation {
    /// Equal, but for rounding of the last printed digit and the variation of one run.
    Equal,
    /// Equal if rounded to the first digit of the printed one: "close to", "around".
    About,
    /// Less.
    Below,
    /// At least.
    AtLeast,
    /// Not comparable.
    None,
}

/// Printed number.
#[derive(Clone, Debug, PartialEq)]
pub struct PrintedNumber {
    /// Document.
    pub document: Document,
    /// Table, figure or section.
    pub place: String,
    /// Printed quantity.
    pub what: String,
    /// Relation to ours.
    pub relation: Relation,
    /// The number as it is printed.
    pub paper: String,
    /// Name of our result; empty without one.
    pub ours: String,
    /// Cause of a difference, or why there is no comparison.
    pub remark: String,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ours has the relation to the printed number.
    Met,
    /// It does not.
    NotMet,
    /// There is nothing to compare.
    NotComparable,
}

impl Verdict {
    /// Returns its name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::NotMet => "not met",
            Verdict::NotComparable => "not comparable",
        }
    }
}

impl PrintedNumber {
    fn parse(line: &str) -> Option<Self> {
        let [document, place, what, relation, paper, ours, remark] =
            <[String; 7]>::try_from(fields(line)).ok()?;
        let relation = match relation.as_str() {
            "=" => Relation::Equal,
            "~" => Relation::About,
            "<" => Relation::Below,
            ">=" => Relation::AtLeast,
            "none" => Relation::None,
            _ => return None,
        };
        let document = Document::ALL.into_iter().find(|other| other.name == document)?;
        Some(PrintedNumber { document, place, what, relation, paper, ours, remark })
    }

    /// Returns the printed number without its unit.
    fn value(&self) -> Option<f64> {
        self.paper.split(' ').next()?.replace(',', "").parse().ok()
    }

    /// Compares ours with the printed number.
    pub(crate) fn verdict(&self, ours: Option<Spread>) -> Verdict {
        let (Some(ours), Some(paper)) = (ours, self.value()) else { return Verdict::NotComparable };
        let difference = (ours.mean - paper).abs();
        let is_met = match self.relation {
            Relation::Equal => {
                let chance = DEVIATIONS * ours.deviation * (1.0 + 1.0 / ours.count as f64).sqrt();
                difference <= 0.5 * last_digit(&self.paper) + chance
            }
            Relation::About => difference <= 0.5 * 10_f64.powf(paper.abs().log10().floor()),
            Relation::Below => ours.mean < paper,
            Relation::AtLeast => ours.mean >= paper,
            Relation::None => return Verdict::NotComparable,
        };
        if is_met { Verdict::Met } else { Verdict::NotMet }
    }
}

/// Returns the unit of the last digit of a printed number.
fn last_digit(text: &str) -> f64 {
    let number = text.split(' ').next().unwrap_or_default();
    number.split_once('.').map_or(1.0, |(_, digits)| 0.1_f64.powi(digits.len() as i32))
}

/// Returns the fields of a line of CSV, some of them in quotes.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => {
                if let Some(field) = fields.last_mut() {
                    field.push(character);
                }
            }
        }
    }
    fields
}

/// Returns the list of printed numbers.
#[must_use]
pub fn printed() -> Vec<PrintedNumber> {
    LIST.lines().skip(1).filter_map(PrintedNumber::parse).collect()
}

/// Returns the printed number with which a result is compared, without its unit; empty if there is
/// none.
pub(crate) fn paper(result: &str) -> String {
    let number = printed().into_iter().find(|number| number.ours == result);
    number.and_then(|number| Some(number.paper.split(' ').next()?.to_owned())).unwrap_or_default()
}

/// Returns how many numbers of a document were met, not met, and not comparable.
pub(crate) fn count(document: Document, numbers: &Numbers) -> [usize; 3] {
    let verdicts: Vec<Verdict> = printed()
        .iter()
        .filter(|number| number.document == document)
        .map(|number| number.verdict(numbers.get(&number.ours)))
        .collect();
    [Verdict::Met, Verdict::NotMet, Verdict::NotComparable]
        .map(|verdict| verdicts.iter().filter(|other| **other == verdict).count())
}

/// Returns the printed numbers that compare with results of a reproduction, next to these.
pub(crate) fn reproduction_table(reproduction: &str, numbers: &Numbers) -> Table {
    let is_its = |name: &str| name.split('/').next() == Some(reproduction);
    compared("Printed numbers and ours".to_owned(), numbers, |number| is_its(&number.ours))
}

fn compared(
    caption: String,
    numbers: &Numbers,
    is_wanted: impl Fn(&PrintedNumber) -> bool,
) -> Table {
    let columns = vec![
        Column::text("", "place"),
        Column::text("", "what"),
        Column::number("", "paper"),
        Column::number("", "ours"),
        Column::text("", "verdict"),
        Column::text("", "remark"),
    ];
    let mut table = Table::new(caption, columns);
    for number in printed().iter().filter(|number| is_wanted(number)) {
        let ours = numbers.get(&number.ours);
        let relation = match number.relation {
            Relation::About => "about ",
            Relation::Below => "< ",
            Relation::AtLeast => "at least ",
            Relation::Equal | Relation::None => "",
        };
        table.row(vec![
            Cell::new(&number.place),
            Cell::new(&number.what),
            Cell::new(format!("{relation}{}", number.paper)),
            Cell::new(ours.map_or_else(String::new, |ours| digits(ours.mean))),
            Cell::new(number.verdict(ours).name()),
            Cell::new(&number.remark),
        ]);
    }
    table
}

/// Formats a number with three digits, or all of those before the point.
fn digits(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return value.to_string();
    }
    let before = value.abs().log10().floor() as i32 + 1;
    let decimals = (3 - before).clamp(0, 6) as usize;
    format!("{value:.decimals$}")
}

/// Returns the page of the documentation: the text with our results in the places of their names,
/// and the tables of all documents.
pub(crate) fn page(numbers: &Numbers) -> String {
    let table = |document: Document| {
        let [met, not_met, not_comparable] = count(document, numbers);
        let title = document.title;
        let caption =
            format!("{title}: {met} met, {not_met} not met, {not_comparable} not comparable");
        compared(caption, numbers, |number| number.document == document).markdown()
    };
    numbers.fill(TEXT, |name| (name == "documents").then(|| Document::ALL.map(table).join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::{fridge, p4entropy, p4exp, p4log, rap, reorder, spread, whll};

    /// Returns the reports of small runs: names do not depend on sizes.
    fn small() -> [Report; 8] {
        let options = p4entropy::Options { seeds: 1, packets_bits: 12, flows: 500, figures: true };
        [
            whll::small().report(),
            p4log::run(1_000, &|_, _| {}).report(),
            p4exp::run(1_000, &|_, _| {}).report(),
            p4entropy::run(&options, &|_, _| {}).report(),
            rap::small().report(),
            fridge::small().report(),
            reorder::small().report(),
            spread::small().report(),
        ]
    }

    #[test]
    fn every_printed_number_names_a_result_or_says_why_there_is_none() {
        let (mut numbers, printed) = (Numbers::default(), printed());
        for report in small() {
            // Pages have the names of results and of parts.
            let page = report.page.html();
            assert!(!page.contains("not run") && !page.contains("{{"), "a name is unknown: {page}");
            numbers.extend(report.numbers);
        }
        // A line that cannot be parsed would be left out.
        assert_eq!(printed.len(), LIST.lines().count() - 1);
        assert!(printed.len() >= 60, "{}", printed.len());
        for number in printed {
            let has_value = number.value().is_some();
            match number.relation {
                Relation::None => assert!(!number.remark.is_empty(), "{number:?}"),
                // Unknown if both tables are beyond all sizes.
                _ if number.ours.ends_with("/saving") => {
                    let slots = number.ours.replace("/saving", "/fridge");
                    assert!(has_value && numbers.get(&slots).is_some(), "{number:?}");
                }
                _ => assert!(has_value && numbers.get(&number.ours).is_some(), "{number:?}"),
            }
        }
        let page = page(&numbers);
        assert!(!page.contains("not run") && !page.contains("{{"), "a name is unknown: {page}");
        for document in Document::ALL {
            assert!(page.contains(document.title));
        }
    }

    #[test]
    fn verdicts_follow_from_relations() {
        let line = |relation: &str, paper: &str| {
            PrintedNumber::parse(&format!("thesis,1,\"a, b\",{relation},{paper},name,")).unwrap()
        };
        let runs = Spread::from_values([2.9, 3.1]);
        let one = |value| Spread::from_values([value]);
        assert_eq!(line("=", "3.00").what, "a, b");
        for (relation, paper, ours, verdict) in [
            // One digit is rounded, and one run varies by 3 x 0.141 x 1.22 = 0.52.
            ("=", "3.5", runs, Verdict::Met),
            ("=", "3.6", runs, Verdict::NotMet),
            ("=", "3.42", one(3.424), Verdict::Met),
            ("=", "3.42", one(3.43), Verdict::NotMet),
            ("=", "\"1,654\"", one(1654.4), Verdict::Met),
            ("~", "20 %", one(24.9), Verdict::Met),
            ("~", "20 %", one(25.1), Verdict::NotMet),
            ("<", "1 %", one(0.99), Verdict::Met),
            ("<", "1 %", one(1.0), Verdict::NotMet),
            (">=", "80 %", one(80.0), Verdict::Met),
            (">=", "80 %", None, Verdict::NotComparable),
            ("none", "57.8 ms", one(57.8), Verdict::NotComparable),
        ] {
            assert_eq!(line(relation, paper).verdict(ours), verdict, "{relation} {paper} {ours:?}");
        }
        assert_eq!(PrintedNumber::parse("thesis,1,a,?,3,name,"), None);
        assert_eq!(PrintedNumber::parse("unknown,1,a,=,3,name,"), None);
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 0.0512, 1.234, 12.34, 1654.4].map(digits);
        assert_eq!(texts, ["0", "0.0512", "1.23", "12.3", "1654"]);
    }
}
