//! [`Pollers`]: the pollers of all workers: the events that each has to report, its timer, and
//! which workers are ready to run.
//!
//! A worker is on the list of ready ones from the moment at which its poller has something to
//! report, or is notified, until the world chooses it. A process with a pool has one poller more,
//! which all pool workers share: it wakes one of them. The worker's selector holds a
//! [`PollerOfWorker`], and is the only one that takes the poller's events.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::event_queue::{Event, Events, Timer};
use super::order::{Order, Queue};
use super::registrations::Registration;
use super::time::Time;

pub(crate) struct Pollers {
    pub(super) list: Vec<Poller>,
    /// The pollers of ready workers, in the order in which they became ready.
    ready: Vec<usize>,
    /// The poller of the running worker.
    pub(super) current: usize,
    /// Chooses the next worker of all processes.
    schedule: Queue,
    /// The order of workers and of tasks.
    pub(crate) order: Order,
    /// Whether the order is fixed: `set_order` does nothing.
    pub(super) keeps_order: bool,
    /// Whether another thread has woken a task.
    foreign: Arc<AtomicBool>,
}

/// A worker's poller: the events that it has to report, and when it wakes the worker.
pub(super) struct Poller {
    process: usize,
    /// The host of its process: avoids a dependent load.
    pub(super) host: usize,
    is_alive: bool,
    is_ready: bool,
    /// The sockets that have something to report.
    pub(super) events: VecDeque<u32>,
    /// The deadline that was armed last and has not passed, by the host's clock.
    pub(super) timer: Option<Instant>,
    /// The delay that is added to the timer.
    pub(super) late: u64,
    /// When the timer is due, by the world's time.
    alarm: Timer,
    /// Chooses the next of the worker's ready tasks; if it is a pool's, the worker that polls it.
    schedule: Queue,
    /// If it is the poller of a pool: those of the pool's workers, and the one that was chosen
    /// last.
    members: Option<(Range<usize>, usize)>,
}

impl Pollers {
    pub(super) fn new(seed: u64, order: Order, keeps_order: bool) -> Pollers {
        Pollers {
            list: Vec::new(),
            ready: Vec::new(),
            current: 0,
            schedule: Queue::new(seed, "process", 0, order),
            order,
            keeps_order,
            foreign: Arc::default(),
        }
    }

    /// Adds the pollers of a process: that of its pool and those of its pool workers, if it has
    /// any, and the main worker's. Returns their places.
    pub(super) fn add(
        &mut self,
        seed: u64,
        process: usize,
        host: usize,
        pool: usize,
    ) -> Range<usize> {
        let first = self.list.len();
        let has_pool = pool > 0;
        let members = first + 1..first + 1 + pool;
        let places = first..first + usize::from(has_pool) + pool + 1;
        for number in places.clone() {
            self.list.push(Poller {
                process,
                host,
                is_alive: true,
                is_ready: false,
                events: VecDeque::new(),
                timer: None,
                late: 0,
                alarm: Timer::default(),
                schedule: Queue::new(seed, "tasks", number, self.order),
                members: (has_pool && number == first).then(|| (members.clone(), pool - 1)),
            });
        }
        places
    }

    /// Ends the pollers of a process.
    pub(super) fn end(&mut self, process: usize, pollers: Range<usize>) {
        let list = &mut self.list;
        self.ready.retain(|poller| list[*poller].process != process);
        for poller in &mut list[pollers] {
            poller.is_alive = false;
            poller.events = VecDeque::new();
            poller.timer = None;
        }
    }

    pub(crate) fn host_of(&self, poller: usize) -> usize {
        self.list[poller].host
    }

    pub(super) fn process_of(&self, poller: usize) -> usize {
        self.list[poller].process
    }

    /// Returns whether no worker is ready.
    pub(super) fn are_idle(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the pollers of the workers that are ready, in the order in which they became so.
    pub(super) fn ready(&self) -> impl Iterator<Item = usize> {
        self.ready.iter().copied()
    }

    /// Takes this poller from those of the workers that are ready.
    pub(super) fn take_ready(&mut self, poller: usize) {
        self.ready.retain(|ready| *ready != poller);
        self.list[poller].is_ready = false;
    }

    /// Returns whether another thread has woken a task.
    pub(crate) fn were_woken_from_elsewhere(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Returns the handle of a poller of this world.
    pub(super) fn handle(&self, world: u32, number: usize) -> PollerOfWorker {
        PollerOfWorker {
            world,
            number,
            foreign: self.foreign.clone(),
        }
    }

    /// Marks a poller's worker as ready to run; if it is a pool's poller, one of the pool's
    /// workers, unless one is ready already: it polls this poller too.
    pub(super) fn wake(&mut self, poller: usize) {
        let poller = if self.list[poller].members.is_some() {
            match self.choose_member(poller) {
                Some(member) => member,
                None => return,
            }
        } else {
            poller
        };
        let state = &mut self.list[poller];
        if state.is_alive && !std::mem::replace(&mut state.is_ready, true) {
            self.ready.push(poller);
        }
    }

    /// Chooses the worker that polls the poller of its pool next.
    fn choose_member(&mut self, poller: usize) -> Option<usize> {
        let (members, last) = self.list[poller].members.clone()?;
        if (self.list[members.clone()].iter()).any(|member| member.is_ready) {
            return None;
        }
        let count = members.len();
        let chosen = match self.order {
            Order::Random => {
                let ids = members.clone().map(|member| member as u64);
                self.list[poller].schedule.choose(count, ids)
            }
            // Round-robin: with fixed priorities it would always be the same one.
            Order::Fifo | Order::Pct(_) => (last + 1) % count,
        };
        let member = members.start + chosen;
        self.list[poller].members = Some((members, chosen));
        Some(member)
    }

    /// Takes the poller of the worker that runs next: one that is ready, and not paused.
    /// `is_paused` is given if any host is paused.
    pub(super) fn next(&mut self, is_paused: Option<impl Fn(usize) -> bool>) -> Option<usize> {
        // The common case: one alone is no choice.
        if is_paused.is_none() && self.ready.len() < 2 {
            let poller = self.ready.pop()?;
            self.schedule.choose(1, std::iter::empty());
            self.list[poller].is_ready = false;
            return Some(poller);
        }
        // The places of the workers that may run, if not all may.
        let places: Option<Vec<usize>> = is_paused.map(|is_paused| {
            let places = self.ready.iter().enumerate();
            let may_run = |poller: &usize| !is_paused(self.list[*poller].host);
            let may_run = places.filter(|(_, poller)| may_run(poller));
            may_run.map(|(place, _)| place).collect()
        });
        let count = places.as_ref().map_or(self.ready.len(), Vec::len);
        if count == 0 {
            return None;
        }
        let place = |nth: usize| places.as_ref().map_or(nth, |places| places[nth]);
        let ids = (0..count).map(|nth| self.ready[place(nth)] as u64);
        let chosen = self.schedule.choose(count, ids);
        let poller = self.ready.remove(place(chosen));
        self.list[poller].is_ready = false;
        Some(poller)
    }

    /// Reports readiness of a socket to a poller that it is registered with.
    #[inline]
    pub(super) fn report(&mut self, socket: u32, registration: &mut Registration, ready: u8) {
        if registration.raise(ready) {
            self.list[registration.poller].events.push_back(socket);
        }
        self.wake(registration.poller);
    }

    /// Sets the order of workers, and of the tasks of each. Returns `false` if it is fixed.
    pub(super) fn set_order(&mut self, order: Order) -> bool {
        if self.keeps_order {
            return false;
        }
        self.order = order;
        self.schedule.set(order);
        let pollers = self.list.iter_mut();
        pollers.for_each(|poller| poller.schedule.set(order));
        true
    }

    /// Schedules the wake-up of a worker for its timer, which is due by its host's clock.
    pub(super) fn arm(&mut self, id: usize, time: &Time, events: &mut Events) {
        let (now, poller) = (time.now(), &mut self.list[id]);
        let timer = poller.timer.map(|timer| time.nanos_at(timer));
        let due = timer.and_then(|timer| time.when(poller.host, timer));
        poller.alarm.deadline = due.map(|due| {
            let due = due.max(now);
            let late = due.saturating_add(poller.late);
            // Setting a clock delays nothing that is already due.
            match poller.alarm.deadline.filter(|_| due == now) {
                Some(before) => late.min(before.max(now)),
                None => late,
            }
        });
        poller.alarm.arm(events, Event::Deadline(id));
    }

    /// Takes away the delays of all timers.
    pub(super) fn make_punctual(&mut self, time: &Time, events: &mut Events) {
        for number in 0..self.list.len() {
            if std::mem::take(&mut self.list[number].late) != 0 {
                self.arm(number, time, events);
            }
        }
    }

    /// Returns whether this event of the poller's timer still applies; if not, it is dropped.
    pub(super) fn is_due(&mut self, number: usize, at: u64, events: &mut Events) -> bool {
        let poller = &mut self.list[number];
        let event = Event::Deadline(number);
        poller.is_alive && poller.alarm.is_due(at, events, event)
    }

    /// Chooses the next of `count` ready tasks of the running worker. `ready` gives their ids.
    pub(super) fn choose_task(
        &mut self,
        count: usize,
        ready: impl Iterator<Item = u64> + Clone,
    ) -> usize {
        self.list[self.current].schedule.choose(count, ready)
    }

    /// Wakes a worker because its timer is due.
    pub(super) fn fire(&mut self, number: usize) {
        let poller = &mut self.list[number];
        (poller.timer, poller.alarm) = (None, Timer::default());
        self.wake(number);
    }
}

/// The poller of a process's worker, as its selector holds it.
#[derive(Debug)]
pub(crate) struct PollerOfWorker {
    pub(super) world: u32,
    pub(super) number: usize,
    pub(super) foreign: Arc<AtomicBool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pollers(order: Order) -> Pollers {
        let mut pollers = Pollers::new(1, order, false);
        assert_eq!(pollers.add(1, 0, 0, 0), 0..1);
        assert_eq!(pollers.add(1, 1, 1, 2), 1..5);
        pollers
    }

    const NOT_PAUSED: Option<fn(usize) -> bool> = None;

    /// Ready workers run once each unless their host is paused or they end.
    #[test]
    fn ready_workers_run_once_unless_paused() {
        let mut pollers = pollers(Order::Fifo);
        [4, 0, 4]
            .into_iter()
            .for_each(|poller| pollers.wake(poller));
        assert_eq!(pollers.next(Some(|host| host == 1)), Some(0));
        assert_eq!(pollers.next(Some(|host| host == 1)), None);
        assert_eq!(pollers.next(NOT_PAUSED), Some(4));
        assert!(pollers.are_idle());
        pollers.wake(4);
        pollers.end(1, 1..5);
        pollers.wake(4);
        assert_eq!(pollers.next(NOT_PAUSED), None);
    }

    /// The poller of a pool wakes one worker at a time round robin.
    #[test]
    fn pool_poller_wakes_workers_round_robin() {
        let mut pollers = pollers(Order::Fifo);
        for member in [2, 3, 2] {
            (0..2).for_each(|_| pollers.wake(1));
            assert_eq!(pollers.next(NOT_PAUSED), Some(member));
            assert_eq!(pollers.next(NOT_PAUSED), None);
        }
    }

    #[test]
    fn an_order_that_is_kept_stays() {
        let mut pollers = pollers(Order::Random);
        assert!(pollers.set_order(Order::Fifo));
        pollers.keeps_order = true;
        assert!(!pollers.set_order(Order::Random));
        assert_eq!(pollers.order, Order::Fifo);
    }

    /// A timer that was postponed is not due at its first deadline.
    #[test]
    fn postponed_timer_not_due_at_first_deadline() {
        let (mut pollers, mut time) = (pollers(Order::Fifo), Time::begin());
        let mut events = Events::default();
        let began = super::super::time::now().expect("a world has begun");
        let at = |nanos| Some(began + std::time::Duration::from_nanos(nanos));
        for timer in [at(50), at(70)] {
            pollers.list[0].timer = timer;
            pollers.arm(0, &time, &mut events);
        }
        assert!(!pollers.is_due(0, 50, &mut events));
        assert!(pollers.is_due(0, 70, &mut events));
        time.pass(70);
        pollers.fire(0);
        assert!(!pollers.is_due(0, 70, &mut events), "it has fired");
        assert_eq!(pollers.next(NOT_PAUSED), Some(0));
        super::super::time::end();
    }
}
