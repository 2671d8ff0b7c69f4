//! Locks of files: the standard library's, on a thread of the pool.

use std::fs::{File, TryLockError};

use polder::{fs, unblock};

use crate::everywhere;

/// A lock of a file is waited for on a thread of the pool.
#[test]
fn file_lock_waits_on_pool_thread() {
    everywhere(|_| async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let file = fs::File::create(&path)
            .await
            .expect("a file")
            .into_std()
            .await;
        let file = file.expect("it has written all");
        let file = unblock(move || file.lock().map(|()| file))
            .await
            .expect("a lock");
        let other = File::open(&path).expect("a file");
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        let waits = polder::spawn(unblock(move || other.lock().map(|()| other)));
        drop(file);
        waits.await.expect("the lock");
    });
}
