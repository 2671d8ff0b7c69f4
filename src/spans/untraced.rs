//! The stub without the feature `tracing`: nothing is reported.

use std::fmt;
use std::io;
use std::panic::Location;
use std::task::{Context, Waker};

use super::NewTask;

pub(crate) struct TaskSpan;

impl TaskSpan {
    #[inline(always)]
    pub(crate) fn new<'a>(_: impl FnOnce() -> NewTask<'a>) -> TaskSpan {
        TaskSpan
    }

    #[inline(always)]
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        poll(cx)
    }

    #[inline(always)]
    pub(crate) fn waker_to_list<'a>(&'a mut self, own: &'a Waker) -> &'a Waker {
        own
    }

    #[inline(always)]
    pub(crate) fn end<T>(&mut self, last: impl FnOnce() -> T) -> T {
        last()
    }
}

#[inline(always)]
pub(crate) fn task_panicked(_: &Location<'_>, _: &str) {}

#[inline(always)]
pub(crate) fn stalled(_: &dyn fmt::Display, _has_ended: bool) {}

#[inline(always)]
pub(crate) fn accept_failed(_: &io::Error) {}
