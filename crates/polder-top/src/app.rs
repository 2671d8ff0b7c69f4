//! The user's choices, and the data to show.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::line::Line;
use crate::sample::{Row, Sample};
use crate::text::Text;

/// The column by which groups are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Column {
    #[default]
    Tasks,
    Polls,
    Oldest,
    LastPolled,
    State,
    WaitsFor,
    Place,
}

impl Column {
    pub const ALL: [Column; 7] = [
        Column::Tasks,
        Column::Polls,
        Column::Oldest,
        Column::LastPolled,
        Column::State,
        Column::WaitsFor,
        Column::Place,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Column::Tasks => "TASKS",
            Column::Polls => "POLLS/S",
            Column::Oldest => "OLDEST",
            Column::LastPolled => "POLLED",
            Column::State => "STATE",
            Column::WaitsFor => "WAITS FOR",
            Column::Place => "SPAWNED AT",
        }
    }

    /// Returns the column `by` places further.
    fn step(self, by: usize) -> Column {
        let place = Column::ALL.iter().position(|it| *it == self);
        Column::ALL[(place.unwrap_or(0) + by) % Column::ALL.len()]
    }

    /// Sorts what matters first: large, long, and the rest alphabetically.
    fn compare(self, one: &Row, other: &Row) -> Ordering {
        let (a, b) = (&one.group, &other.group);
        match self {
            Column::Tasks => b.tasks.cmp(&a.tasks),
            Column::Polls => (other.polls.unwrap_or(0.0)).total_cmp(&one.polls.unwrap_or(0.0)),
            Column::Oldest => b.oldest.total_cmp(&a.oldest),
            Column::LastPolled => {
                let ago = |row: &Row| row.group.last_polled.unwrap_or(f64::INFINITY);
                ago(other).total_cmp(&ago(one))
            }
            Column::State => a.state.cmp(&b.state),
            Column::WaitsFor => a.waits_for.cmp(&b.waits_for),
            Column::Place => a.spawned_at.cmp(&b.spawned_at),
        }
    }
}

/// The state of the connection to the program.
#[derive(Clone, PartialEq, Default, Debug)]
pub enum Link {
    /// Nothing has come yet.
    #[default]
    Waits,
    Up,
    /// Why it is down; it is retried.
    Down(Text),
}

#[derive(Default, Debug)]
pub struct App {
    pub sample: Option<Sample>,
    pub link: Link,
    pub sort: Column,
    pub is_reversed: bool,
    /// The index of a row in the sorted table.
    pub selected: usize,
    pub is_paused: bool,
    last: Option<(Line, Instant)>,
}

/// Returns whether this key ends the program.
pub fn ends(key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_meant = match key.code {
        KeyCode::Char('c') => is_control,
        code => matches!(code, KeyCode::Char('q') | KeyCode::Esc),
    };
    is_meant && key.kind != KeyEventKind::Release
}

/// The number of rows in a page, on any terminal.
const PAGE: usize = 10;

impl App {
    /// Handles a line. A new connection may begin with a line that other clients have had, and
    /// perhaps we too: a repeated line is ignored. Returns whether the line was new.
    pub fn line(&mut self, line: Line) -> bool {
        self.link = Link::Up;
        let before = self.last.as_ref().map(|(line, _)| line);
        let is_same = |before: &Line| {
            before.process == line.process && before.uptime == line.uptime && before.at == line.at
        };
        if before.is_some_and(is_same) {
            return false;
        }
        if !self.is_paused || self.sample.is_none() {
            self.sample = Some(Sample::new(before, &line));
            self.arrange();
        }
        self.last = Some((line, Instant::now()));
        true
    }

    pub fn is_down(&mut self, why: Text) {
        self.link = Link::Down(why);
    }

    /// Returns the time since the last line.
    pub fn silence(&self) -> Option<Duration> {
        self.last.as_ref().map(|(_, at)| at.elapsed())
    }

    pub fn key(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let last = (self.sample.as_ref()).map_or(0, |it| it.rows.len().saturating_sub(1));
        match key.code {
            KeyCode::Char('p') | KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Right | KeyCode::Char('s') => self.sort = self.sort.step(1),
            KeyCode::Left => self.sort = self.sort.step(Column::ALL.len() - 1),
            KeyCode::Down | KeyCode::Char('j') => self.selected += 1,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected += PAGE,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            _ => {}
        }
        self.arrange();
    }

    /// Sorts the rows as the user wants them. The sort is stable.
    fn arrange(&mut self) {
        let Some(sample) = &mut self.sample else {
            return;
        };
        let (sort, is_reversed) = (self.sort, self.is_reversed);
        sample.rows.sort_by(|one, other| {
            let order = sort.compare(one, other).then_with(|| {
                let of = |row: &Row| (row.runtime, row.group.spawned_at.clone());
                of(one).cmp(&of(other))
            });
            if is_reversed { order.reverse() } else { order }
        });
        self.selected = self.selected.min(sample.rows.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(uptime: f64) -> Line {
        let text = format!(
            r#"{{"polder_top":1,"process":1,"uptime":{uptime},"runtimes":[{{"within":1,"groups":[
            {{"spawned_at":"b","tasks":5,"recent_polls":1,"waits_for":"timer"}},
            {{"spawned_at":"a","tasks":7,"recent_polls":3,"waits_for":"event"}},
            {{"spawned_at":"c","tasks":5,"recent_polls":2,"waits_for":"task"}}]}}]}}"#
        );
        Line::parse(text.as_bytes()).unwrap()
    }

    fn press(app: &mut App, code: KeyCode) -> String {
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
        let rows = &app.sample.as_ref().unwrap().rows;
        rows.iter()
            .map(|row| row.group.spawned_at.as_str())
            .collect()
    }

    #[test]
    fn keys_sort_by_column_and_turn_it_round() {
        let mut app = App::default();
        app.line(line(1.0));
        assert_eq!(press(&mut app, KeyCode::Home), "abc");
        assert_eq!(press(&mut app, KeyCode::Right), "acb");
        assert_eq!(app.sort, Column::Polls);
        assert_eq!(press(&mut app, KeyCode::Char('r')), "bca");
        assert_eq!(press(&mut app, KeyCode::Left), "cba");
        assert_eq!(press(&mut app, KeyCode::Left), "cba");
        assert_eq!(app.sort, Column::Place);
        assert_eq!(press(&mut app, KeyCode::Left), "bca");
        assert_eq!(app.sort, Column::WaitsFor);
    }

    /// A row within the table is selected after any keys.
    #[test]
    fn selection_stays_within_table() {
        let mut app = App::default();
        app.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        app.line(line(1.0));
        for (code, selected) in [
            (KeyCode::Home, 0),
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 2),
            (KeyCode::PageUp, 0),
            (KeyCode::End, 2),
            (KeyCode::Down, 2),
        ] {
            press(&mut app, code);
            assert_eq!(app.selected, selected, "{code:?}");
        }
    }

    /// A pause keeps what is seen and the next line shows what is so then.
    #[test]
    fn pause_keeps_view_until_resumed() {
        let mut app = App::default();
        app.line(line(1.0));
        press(&mut app, KeyCode::Char('p'));
        app.line(line(2.0));
        assert_eq!(app.sample.as_ref().unwrap().uptime, 1.0);
        press(&mut app, KeyCode::Char('p'));
        app.line(line(3.0));
        assert_eq!(app.sample.as_ref().unwrap().uptime, 3.0);
        assert!(app.sample.as_ref().unwrap().rates.is_some());
    }

    #[test]
    fn a_line_that_comes_twice_is_compared_with_none() {
        let mut app = App::default();
        assert!(app.line(line(1.0)));
        assert!(app.line(line(2.0)));
        assert!(!app.line(line(2.0)));
        assert!(app.sample.as_ref().unwrap().rates.is_some());
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        for (code, modifiers, is_end) in [
            (KeyCode::Char('q'), KeyModifiers::NONE, true),
            (KeyCode::Esc, KeyModifiers::NONE, true),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, true),
            (KeyCode::Char('c'), KeyModifiers::NONE, false),
            (KeyCode::Char('p'), KeyModifiers::NONE, false),
        ] {
            let mut key = KeyEvent::new(code, modifiers);
            assert_eq!(ends(key), is_end, "{code:?}");
            key.kind = KeyEventKind::Release;
            assert!(!ends(key), "{code:?}");
        }
    }
}
