//! `library`: by two runtimes.

use polder::Backend;

use crate::support::*;

/// A library without a runtime answers under polder and under another executor.
#[test]
fn library_answers_under_any_executor() {
    for backend in Backend::available() {
        let mut program = on(backend, command("library"));
        assert_eq!(program.line(), "by polder: 17");
        assert_eq!(program.line(), "by async-io: 17");
        assert_eq!(program.next_line(), None);
        program.ended_well();
    }
}
