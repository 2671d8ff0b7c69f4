//! `files`: sums of files and folders, and errors for unreadable ones.

use std::fs;
use std::path::PathBuf;

use crate::support::*;

/// Files counts each path and passes no symbolic link below it.
#[test]
fn files_counts_paths_follows_no_symlink() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("files");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("inner")).expect("a folder");
    let (one, two) = (folder.join("one"), folder.join("inner/two"));
    fs::write(&one, "a\nb\nc").expect("a file");
    fs::write(&two, pattern(200_000, 1)).expect("a file");
    let lines = 2 + pattern(200_000, 1).iter().filter(|b| **b == b'\n').count();
    std::os::unix::fs::symlink(&folder, folder.join("inner/circle")).expect("a link");
    let mut files = Program::start(with_arguments("files", [&folder, &one]));
    let expected = format!("{lines} lines, 200005 bytes: {}", folder.display());
    assert_eq!(files.line(), expected);
    let expected = format!("2 lines, 5 bytes: {}", one.display());
    assert_eq!(files.line(), expected);
    assert_eq!(files.next_line(), None);
    files.ended_well();
}

/// A path that cannot be read is named and none gets the usage.
#[test]
fn unreadable_path_named_none_gets_usage() {
    fails(
        "files",
        ["/nonexistent"],
        &["files: /nonexistent: No such file"],
    );
    wrong("files", [""], &["usage: files PATH..."]);
    wrong::<0>(
        "files",
        [] as [&str; 0],
        &["there is no path; usage: files PATH..."],
    );
}
