//! The device slots of a target: who may hold a device now, and what it sees.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use modelfarm_matrix::target::Slots;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of one target.
#[derive(Debug, Clone)]
pub struct DeviceSlots {
    permits: Arc<Semaphore>,
    free: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    count: usize,
}

impl DeviceSlots {
    /// The slots that a target declares, on a host with this many cores.
    pub fn new(slots: &Slots, cores: usize) -> Self {
        let free = slots.environments(cores);
        let count = free.len();
        Self { permits: Arc::new(Semaphore::new(count)), free: Arc::new(Mutex::new(free)), count }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Waits for a slot. It is given back when dropped.
    pub async fn acquire(&self) -> DeviceSlot {
        // The semaphore is never closed, so that the only error cannot happen; an unnumbered slot would be the harmless result.
        let permit = self.permits.clone().acquire_owned().await.ok();
        let env = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        DeviceSlot { env, free: self.free.clone(), _permit: permit }
    }
}

/// A slot held by one child.
#[derive(Debug)]
pub struct DeviceSlot {
    env: BTreeMap<String, String>,
    free: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl DeviceSlot {
    /// The variables that make the child see this device alone.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }
}

impl Drop for DeviceSlot {
    fn drop(&mut self) {
        // Runs before the permit is released, so that whoever gets the permit finds the slot.
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.env));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_holder_sees_a_device_of_its_own() {
        let chip = |n: &str| BTreeMap::from([("TPU_VISIBLE_CHIPS".to_owned(), n.to_owned())]);
        let slots = DeviceSlots::new(&Slots::Devices(vec![chip("0"), chip("1")]), 8);
        let first = slots.acquire().await;
        let second = slots.acquire().await;
        assert_ne!(first.env(), second.env());
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), slots.acquire()).await;
        assert!(waiting.is_err(), "a third holder must wait");
        let freed = first.env().clone();
        drop(first);
        assert_eq!(slots.acquire().await.env(), &freed);
    }
}
