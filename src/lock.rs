//! A mutex that a panic does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A [`Mutex`] for state that is whole between any two statements, or that may be half-done (what is drawn on a
/// screen): a panic in one thread is no reason for the others to fail.
#[derive(Debug, Default)]
pub struct Lock<T: ?Sized>(Mutex<T>);

impl<T> Lock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T: ?Sized> Lock<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
