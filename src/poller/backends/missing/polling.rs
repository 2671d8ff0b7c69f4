//! Placeholder for `polling.rs` where the adapter is not compiled.

pub(in crate::poller) fn open() -> std::io::Result<Box<dyn crate::poller::selector::Selector>> {
    Err(crate::poller::error::unsupported("the native backend"))
}
