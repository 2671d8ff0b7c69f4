//! [`Activity`]: finds HTTP/2 connections on which nothing moves.
//!
//! An HTTP/1 connection has one request at a time, and hyper and [`Stall`](crate::stall::Stall)
//! limit each step that waits for the client. HTTP/2 has many, a connection may have none for long,
//! and a client can stop one response by its window while it takes others. So a connection counts
//! as stalled when for some time no byte was read or written, and no request is *at work*: no
//! service runs, and no body of a response is waited for. A service that waits for its request's
//! body is at work; [`Body`](crate::Body) limits that. So is a tunnel (`CONNECT`), as an upgraded
//! HTTP/1 connection has no such limit.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use polder::time::sleep;

/// A connection is looked at this often in its time limit, which it may exceed by one part.
const LOOKS: u32 = 4;

#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Whether bytes were read or written since the last look.
    moved: AtomicBool,
    /// Requests without the end of their response.
    requests: AtomicUsize,
    /// Those of them that wait for the server.
    at_work: AtomicUsize,
}

impl Activity {
    pub(crate) fn has_moved(&self) {
        self.moved.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) != 0
    }

    /// Completes when the connection has been stalled for `limit`.
    pub(crate) async fn stalled(&self, limit: Duration) {
        let mut looks = 0;
        while looks < LOOKS {
            sleep(limit / LOOKS).await;
            let moved = self.moved.swap(false, Ordering::Relaxed);
            let is_stalled = !moved && self.at_work.load(Ordering::Relaxed) == 0;
            looks = if is_stalled { looks + 1 } else { 0 };
        }
    }
}

/// One request, from its head to the end of its response.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    is_at_work: bool,
}

impl InFlight {
    /// A request that has come, for which its service is at work.
    pub(crate) fn new(activity: Arc<Activity>) -> InFlight {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        activity.at_work.fetch_add(1, Ordering::Relaxed);
        let is_at_work = true;
        InFlight {
            activity,
            is_at_work,
        }
    }

    fn set_at_work(&mut self, is_at_work: bool) {
        match (self.is_at_work, is_at_work) {
            (false, true) => self.activity.at_work.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.activity.at_work.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.is_at_work = is_at_work;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.set_at_work(false);
        self.activity.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps an HTTP/2 connection from being stalled: first in the extensions of a `CONNECT` request,
/// then in the stream of [`upgrade`](crate::upgrade()). It ends with the request if there is no
/// upgrade.
#[derive(Clone, Debug)]
pub(crate) struct Tunnel {
    _in_flight: Arc<InFlight>,
}

impl Tunnel {
    pub(crate) fn new(activity: Arc<Activity>) -> Tunnel {
        let _in_flight = Arc::new(InFlight::new(activity));
        Tunnel { _in_flight }
    }
}

pin_project! {
    /// The body of a response: that of the service, or none.
    #[derive(Debug)]
    pub(crate) struct Reply<B> {
        #[pin]
        body: Option<B>,
        in_flight: Option<InFlight>,
    }
}

impl<B> Reply<B> {
    pub(crate) fn new(body: Option<B>, in_flight: Option<InFlight>) -> Reply<B> {
        Reply { body, in_flight }
    }
}

impl<B: Body> Body for Reply<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let frame = body.poll_frame(cx);
        // hyper asks for more once the client takes more.
        if let Some(in_flight) = this.in_flight {
            in_flight.set_at_work(frame.is_pending());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(Body::size_hint);
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}
