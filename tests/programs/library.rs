//! `library`: by two runtimes.

use polder::Backend;

use crate::support::*;

#[test]
fn a_library_without_a_runtime_answers_under_polder_and_under_another_executor() {
    for backend in Backend::available() {
        let mut program = on(backend, command("library"));
        assert_eq!(program.line(), "by polder: 17");
        assert_eq!(program.line(), "by async-io: 17");
        assert_eq!(program.next_line(), None);
        program.ended_well();
    }
}
