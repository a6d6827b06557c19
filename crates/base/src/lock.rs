//! A mutex that a panic does not poison.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A [`Mutex`] for state that is consistent between any two statements, or whose consistency does not matter (what is
/// drawn on a screen): after a panic in one thread the others continue.
#[derive(Debug, Default)]
pub struct Lock<T: ?Sized>(Mutex<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T: ?Sized> Lock<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases the lock until `condition` is notified.
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
