//! Locks of files: the standard library's, on a thread of the pool.

use std::fs::{File, TryLockError};

use polder::{fs, unblock};

use crate::everywhere;

#[test]
fn a_lock_of_a_file_is_waited_for_on_a_thread_of_the_pool() {
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
