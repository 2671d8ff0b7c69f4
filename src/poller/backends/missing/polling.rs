//! In place of the backend `polling`, where it is not compiled: on a platform with a backend of
//! ours, the adapter is only a second opinion.

pub(in crate::poller) fn open() -> std::io::Result<Box<dyn crate::poller::Selector>> {
    Err(crate::poller::error::unsupported("what the platform has"))
}
