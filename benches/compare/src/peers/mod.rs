//! The programs, a file a runtime: the same work, each as that runtime's users would write it.
