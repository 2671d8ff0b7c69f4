//! The table of capabilities in docs/PLATFORM.md is what the backends report.

use polder::Backend;
use polder::poller::Poller;

const PAGE: &str = include_str!("../docs/PLATFORM.md");

/// The table of capabilities is what the backends say.
#[test]
fn capabilities_table_is_current() {
    let (_, section) = PAGE.split_once("## Capabilities").expect("a section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    for backend in Backend::available() {
        let is = Poller::new(backend)
            .expect("it is available")
            .capabilities();
        // The same adapter under two names.
        let row = match backend {
            Backend::Polling if cfg!(windows) => Backend::Iocp,
            Backend::Polling if cfg!(target_os = "illumos") => Backend::EventPorts,
            other => other,
        };
        let begin = format!("| `{row}` |");
        let line = section.lines().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("{backend} is not in the table"));
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let flags = [
            is.level,
            is.one_shot,
            is.edge,
            is.hints,
            is.priority,
            is.descriptor,
        ];
        let told = cells[2..8].iter().map(|cell| *cell == "yes");
        assert!(told.eq(flags), "{line}\n{is:?}");
        // The text on "edge" names kqueue alone, which `polling` also takes where it is the
        // default.
        let is_kqueue = match backend {
            Backend::Polling => Backend::default() == Backend::Kqueue,
            other => other == Backend::Kqueue,
        };
        assert_eq!(is.tcp_room_on_demand, !is_kqueue, "{backend}");
        let granularity = format!("{:?}", is.granularity);
        assert!(cells[8].contains(&granularity), "{line}\n{is:?}");
    }
}
