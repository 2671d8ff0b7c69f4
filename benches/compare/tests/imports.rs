//! Imports point in one direction: down the list in the head of src/main.rs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// Returns the modules of the list, each with its line in it.
fn levels() -> BTreeMap<String, usize> {
    let main = fs::read_to_string(Path::new(SOURCES).join("main.rs")).expect("it is there");
    let list = (main.lines())
        .map_while(|line| line.strip_prefix("//!"))
        .skip_while(|line| !line.contains("Imports point down"))
        .skip_while(|line| *line != " ```text")
        .skip(1)
        .take_while(|line| *line != " ```");
    let mut levels = BTreeMap::new();
    for (level, line) in list.enumerate() {
        let modules = line.trim().split("  ").next().unwrap_or_default();
        for module in modules.split(' ') {
            levels.insert(module.to_string(), level);
        }
    }
    levels
}

/// Collects the files below, each with its module at the crate's root.
fn files(folder: &Path, module: Option<&str>, found: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let stem = path.file_stem().expect("it has a name").to_string_lossy();
        let module = module.unwrap_or(&stem).to_string();
        if path.is_dir() {
            files(&path, Some(&module), found);
        } else {
            found.push((module, path));
        }
    }
}

/// Returns the names after `crate::`, one module or several in braces.
fn imported(text: &str) -> Vec<String> {
    let code = (text.lines())
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let word = |text: &str| {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut modules = Vec::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                modules.extend(list.split(',').map(|item| word(item.trim_start())));
            }
            None => modules.push(word(rest)),
        }
    }
    modules.retain(|module| !module.is_empty());
    modules
}

#[test]
fn a_module_imports_only_what_is_below_it() {
    let levels = levels();
    let mut found = Vec::new();
    files(Path::new(SOURCES), None, &mut found);
    let mut wrong = Vec::new();
    for (module, path) in found {
        let name = path.display();
        let Some(own) = levels.get(&module) else {
            wrong.push(format!("{name}: {module} is not in the list"));
            continue;
        };
        let text = fs::read_to_string(&path).expect("it is text");
        for other in imported(&text) {
            match levels.get(&other) {
                None => wrong.push(format!("{name}: {other} is not in the list")),
                Some(level) if other != module && level <= own => {
                    wrong.push(format!("{name}: {other} is not below {module}"));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
