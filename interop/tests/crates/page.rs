//! The code on the page "Recommended crates" is that of the tests that it names.

use std::fs;
use std::path::Path;

/// Returns the file that the last link of `text` names, without white space.
fn linked(docs: &Path, text: &str) -> Option<String> {
    let (file, _) = text.rsplit_once("](../")?.1.split_once(')')?;
    let text = fs::read_to_string(docs.join("..").join(file));
    Some(without_space(&text.expect("it is there")))
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The code on the page of crates is in the files that it names.
#[test]
fn crates_page_code_is_in_files() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("CRATES.md")).expect("it is there");
    let mut found = 0;
    let mut holds = |file: &str, code: &str| {
        assert!(file.contains(&without_space(code)), "not there: {code}");
        found += 1;
    };
    // A row of the table: its third cell is code of the file that its last one names.
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.split(" | ").collect();
        let code = cells.get(2).and_then(|cell| cell.split('`').nth(1));
        if let (Some(code), Some(file)) = (code, linked(&docs, cells[cells.len() - 1])) {
            holds(&file, &code.replace(r"\|", "|"));
        }
    }
    // A section: each line of its code.
    for section in page.split("\n## ").skip(1) {
        for block in section.split("```rust\n").skip(1) {
            let (code, _) = block.split_once("```").expect("it has an end");
            let file = linked(&docs, section).expect("the section names it");
            code.lines().for_each(|line| holds(&file, line));
        }
    }
    assert!(found > 20, "it has {found} lines of code");
}
