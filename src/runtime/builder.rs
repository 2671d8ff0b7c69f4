//! How a runtime is made other than by default.

use std::io;

use super::Runtime;
use crate::poller::{Backend, Poller};

/// Sets up a [`Runtime`].
///
/// ```
/// use polder::{Backend, Runtime};
///
/// # #[cfg(unix)] {
/// let runtime = Runtime::builder().backend(Backend::Poll).build()?;
/// assert_eq!(runtime.backend(), Backend::Poll);
/// # }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    backend: Option<Backend>,
}

impl Builder {
    /// A builder with the defaults.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Which backend waits. By default what [`Backend::configured`] says: the environment variable
    /// `POLDER_BACKEND`, or else the platform's best.
    pub fn backend(mut self, backend: Backend) -> Builder {
        self.backend = Some(backend);
        self
    }

    /// Makes the runtime. The calling thread will be the one that drives it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) where the backend is not available here,
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) where `POLDER_BACKEND` names none, and what
    /// the kernel says when there are no descriptors left.
    pub fn build(self) -> io::Result<Runtime> {
        let backend = match self.backend {
            Some(backend) => backend,
            None => Backend::configured()?,
        };
        Ok(Runtime::with(Poller::new(backend)?))
    }
}
