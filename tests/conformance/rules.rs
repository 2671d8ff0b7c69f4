//! Checks `rules.txt`, which lists the tests that show each rule.

use std::collections::{HashMap, HashSet};
use std::process::Command;

use crate::support::LIMIT;

const RULES: &str = include_str!("rules.txt");

/// Tests in separate programs, by their prefix in `rules.txt`.
const OTHERS: [(&str, &str); 2] = [
    ("signals::", include_str!("../signals.rs")),
    ("shutdown::", include_str!("../shutdown.rs")),
];

/// Returns the names of all tests of this program.
fn tests() -> HashSet<String> {
    let mut command = Command::new(std::env::current_exe().expect("the test knows where it is"));
    command.args(["--list", "--format", "terse"]);
    let output = crate::support::within(LIMIT, "the list of tests", move || command.output());
    let output = output.expect("the program starts again");
    assert!(output.status.success(), "{output:?}");
    let list = String::from_utf8(output.stdout).expect("names are text");
    list.lines()
        .filter_map(|line| line.strip_suffix(": test").map(String::from))
        .collect()
}

/// Every rule is shown by tests that exist or says why not.
#[test]
fn every_rule_has_existing_tests() {
    let tests = tests();
    assert!(tests.len() > 100, "{tests:?}");
    let elsewhere = |name: &str| {
        OTHERS.iter().find_map(|(process, text)| {
            let name = name.strip_prefix(process)?;
            Some(text.contains(&format!("fn {name}() {{")))
        })
    };
    let exists = |name: &str| match (elsewhere(name), name.strip_suffix('*')) {
        (Some(found), _) => found,
        (None, Some(prefix)) => tests.iter().any(|test| test.starts_with(prefix)),
        (None, None) => tests.contains(name),
    };
    let mut shown: HashMap<&str, usize> = HashMap::new();
    let mut rule = "";
    for line in RULES.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            _ if line.is_empty() => {}
            None => {
                let (number, title) = line.split_once(' ').expect("a number and a title");
                rule = number;
                assert!(!title.is_empty(), "rule {rule} has no title");
                assert!(
                    shown.insert(rule, 0).is_none(),
                    "rule {rule} is there twice"
                );
            }
            // These are not tests.
            Some(words) if words.starts_with("in part: ") || words.starts_with("note: ") => {}
            Some(entry) => {
                let excused = entry.starts_with("not yet: ");
                // Some of the tests are for Unix only, and some for Linux.
                assert!(
                    excused || exists(entry) || !cfg!(target_os = "linux"),
                    "rule {rule}: there is no test {entry}"
                );
                *shown.get_mut(rule).expect("a rule comes first") += 1;
            }
        }
    }
    let letters = ["23a", "23b", "23c", "26a", "26b", "29a", "45a", "49a"].map(String::from);
    let numbers = (1..=83).map(|number| number.to_string());
    for number in numbers.chain(letters) {
        let count = shown.remove(&*number);
        assert!(count.unwrap_or(0) > 0, "rule {number} is not shown");
    }
    assert!(shown.is_empty(), "there are no such rules: {shown:?}");
}
