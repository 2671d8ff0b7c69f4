//! The turmoil and madsim tests that docs/MIGRATING.md shows are those in this folder, which
//! compile and run. (`tests/sim/migrating.rs` checks the page against polder's.)

#[test]
fn the_page_shows_the_tests_of_the_others() {
    let page = include_str!("../../../docs/MIGRATING.md");
    for test in [include_str!("turmoil.rs"), include_str!("madsim.rs")] {
        // Below the file's head comment.
        let (_, code) = test.split_once("\n\n").expect("a head");
        assert!(page.contains(code.trim_end()), "not on the page:\n{code}");
    }
}
