//! The page about kept runs says what records are: every code, its name, and what each uses.

use super::tests;
use super::{Item, Record, encode};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../../../docs/trace-format.md");

/// The fields that an item may use, as the page calls them. The time belongs to the class.
const FIELDS: [&str; 7] = [
    "detail", "flags", "vcpu", "value", "other", "place", "place 2",
];

/// An item's row of the page, or what its records are.
#[derive(PartialEq, Eq, Default, Debug)]
struct Row {
    name: String,
    /// Those that it uses.
    fields: BTreeSet<&'static str>,
    /// The values that its detail has, if the page lists them.
    details: BTreeSet<u64>,
}

type Table = BTreeMap<u64, Row>;

/// Words in lower case, of a name such as `HostLockTaken`, from the front of what stands there.
fn words(debug: &str) -> String {
    let mut words = String::new();
    for letter in debug.chars().take_while(char::is_ascii_alphanumeric) {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// What records are, by class and code.
fn written() -> BTreeMap<u8, Table> {
    let mut all: BTreeMap<u8, Table> = BTreeMap::new();
    for item in tests::all() {
        let name = match item {
            Item::Input(_, input) => format!("{input:?}"),
            Item::Effect(effect) => format!("{effect:?}"),
            Item::Event(event) => format!("{:?}", event.kind),
        };
        let record = encode(&item);
        let table = all.entry(record[0]).or_default();
        let row = table.entry(record[1].into()).or_default();
        row.name = words(&name);
        row.fields.extend(used(&record));
        row.details.insert(record[2].into());
    }
    all
}

/// The fields of a record that are not 0.
fn used(record: &Record) -> impl Iterator<Item = &'static str> {
    let other = 24..28;
    let places = [2..3, 3..4, 4..8, 16..24, other.clone(), 28..30, 30..32];
    let has_other = record[other].iter().any(|byte| *byte != 0);
    let used = FIELDS.into_iter().zip(places).filter(|(name, place)| {
        // That the other is there is said in the flags.
        let says_other = *name == "flags" && has_other;
        !says_other && record[place.clone()].iter().any(|byte| *byte != 0)
    });
    used.map(|(name, _)| name).collect::<Vec<_>>().into_iter()
}

/// The rows of the page's table of a class.
fn documented(class: u8) -> Table {
    let title = format!("s (class {class})\n");
    let (_, section) = PAGE.split_once(&title).expect("every class has a section");
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(row).collect()
}

/// A line of a table: its code, and what it says.
fn row(line: &str) -> (u64, Row) {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [code, name, detail, others] = cells[..] else {
        panic!("four cells: {line}");
    };
    // What stands behind the name in brackets explains it.
    let name = name.split(" (").next().unwrap_or(name).to_owned();
    let clauses = others
        .split([',', ';'])
        .flat_map(|clause| clause.split(" or "));
    let mut fields: BTreeSet<_> = clauses.filter_map(|clause| field(clause.trim())).collect();
    if !detail.is_empty() {
        fields.insert("detail");
    }
    let details = details(detail);
    let row = Row {
        name,
        fields,
        details,
    };
    (code.parse().expect("a code"), row)
}

/// The field that a clause begins with, such as `place = core`.
fn field(clause: &str) -> Option<&'static str> {
    let mut fields = FIELDS.into_iter().rev();
    fields.find(|field| clause.starts_with(field))
}

/// The numbers that a cell lists, or that the list lists which it names.
fn details(cell: &str) -> BTreeSet<u64> {
    let text = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    let list = format!("{}s: ", cell.trim_start_matches("the "));
    let title = list[..1].to_uppercase() + &list[1..];
    let listed = text.split_once(&title).filter(|_| !cell.is_empty());
    let listed = listed.map_or(cell, |(_, rest)| rest.split('.').next().unwrap_or(rest));
    let numbers = listed.split(|letter: char| !letter.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn the_page_has_every_code_with_its_name_and_what_it_uses() {
    for (class, mut written) in written() {
        let documented = documented(class);
        let codes: Vec<_> = documented.keys().copied().collect();
        assert!(written.keys().copied().eq(codes), "class {class}");
        for (code, page) in documented {
            let row = written.get_mut(&code).expect("both have it");
            let what = format!("class {class}, code {code}, {}", row.name);
            assert_eq!(page.name, row.name, "{what}");
            if class == super::EVENT {
                // "All name the vCPU they are about."
                row.fields.remove("vcpu");
            }
            assert_eq!(page.fields, row.fields, "{what}");
            if !page.details.is_empty() {
                assert_eq!(page.details, row.details, "{what}");
            }
        }
    }
}

#[test]
fn rows_are_read_as_they_stand() {
    let (code, row) =
        row("| 8 | block (it waits) | 0 idle, 2 host | vcpu, place 2: until 0, value or other |");
    assert_eq!((code, &row.name[..]), (8, "block"));
    assert_eq!(
        row.fields,
        ["detail", "other", "place 2", "value", "vcpu"].into()
    );
    assert_eq!(row.details, [0, 2].into());
    assert_eq!(details("preemption reason"), (0..=6).collect());
    assert_eq!(words("HostLockTaken(HostLockId(1))"), "host lock taken");
}
