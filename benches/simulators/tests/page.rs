//! What docs/MIGRATING.md shows of turmoil and madsim are the tests beside this one, which compile
//! and run. (`tests/sim/migrating.rs` holds the page to polder's.)

#[test]
fn the_page_shows_the_tests_of_the_others() {
    let page = include_str!("../../../docs/MIGRATING.md");
    for test in [include_str!("turmoil.rs"), include_str!("madsim.rs")] {
        // Below what the file says of itself.
        let (_, code) = test.split_once("\n\n").expect("a head");
        assert!(page.contains(code.trim_end()), "not on the page:\n{code}");
    }
}
