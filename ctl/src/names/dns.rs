//! Names from DNS: reverse lookups in the background, with a cache.

use crossbeam::channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Requests at a time.
const THREADS: usize = 4;
/// Maximum number of queued addresses; others are requested when they are needed again.
const MAX_WAITING: usize = 4096;
/// Maximum number of answers in the cache; it is emptied beyond.
const MAX_ANSWERS: usize = 1 << 16;
/// Time for which an answer with a name is used.
const NAME_AGE: Duration = Duration::from_secs(3600);
/// Time for which an answer without a name is used.
const NONE_AGE: Duration = Duration::from_secs(300);

/// Resolver with its cache.
#[derive(Debug)]
pub(super) struct Resolver {
    cache: Arc<Cache>,
    requests: Sender<IpAddr>,
}

#[derive(Debug, Default)]
struct Cache {
    answers: Mutex<HashMap<IpAddr, CachedAnswer>>,
    answered: Condvar,
}

#[derive(Debug)]
enum CachedAnswer {
    Pending,
    Answered { name: Option<String>, until: Instant },
}

impl Cache {
    fn answers(&self) -> MutexGuard<'_, HashMap<IpAddr, CachedAnswer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver {
    /// Starts threads that call `lookup`, which returns the name of an address if it has one.
    pub(super) fn start(
        lookup: impl Fn(IpAddr) -> Option<String> + Clone + Send + 'static,
    ) -> Result<Self, String> {
        let cache = Arc::new(Cache::default());
        let (requests, waiting) = bounded(MAX_WAITING);
        for _ in 0..THREADS {
            let (cache, waiting, lookup) = (Arc::clone(&cache), waiting.clone(), lookup.clone());
            thread::Builder::new()
                .name("dns".to_owned())
                .spawn(move || answer(&cache, &waiting, lookup))
                .map_err(|error| format!("cannot start a thread for DNS: {error}"))?;
        }
        Ok(Resolver { cache, requests })
    }

    /// Returns the name of an address if it is known; else requests it.
    pub(super) fn name(&self, address: IpAddr) -> Option<String> {
        let mut answers = self.cache.answers();
        let before = match answers.get(&address) {
            None => None,
            Some(CachedAnswer::Pending) => return None,
            Some(CachedAnswer::Answered { name, until }) if *until > Instant::now() => {
                return name.clone();
            }
            // A name that was known until now is used until there is another answer.
            Some(CachedAnswer::Answered { name, .. }) => name.clone(),
        };
        if answers.len() >= MAX_ANSWERS {
            answers.retain(|_, answer| matches!(answer, CachedAnswer::Pending));
        }
        if self.requests.try_send(address).is_ok() {
            answers.insert(address, CachedAnswer::Pending);
        }
        before
    }

    /// Requests the names of addresses, and waits for them. Returns how many were not answered.
    pub(super) fn prepare(&self, addresses: &[IpAddr], most: Duration) -> usize {
        let until = Instant::now() + most;
        loop {
            let unanswered = addresses.iter().filter(|address| {
                // Requests those that are not waiting yet.
                let _ = self.name(**address);
                let answers = self.cache.answers();
                !matches!(answers.get(address), Some(CachedAnswer::Answered { .. }))
            });
            let unanswered = unanswered.count();
            let left = until.saturating_duration_since(Instant::now());
            if unanswered == 0 || left.is_zero() {
                return unanswered;
            }
            let answers = self.cache.answers();
            let wait = left.min(Duration::from_millis(100));
            drop(self.cache.answered.wait_timeout(answers, wait));
        }
    }
}

/// Answers requests until the resolver is dropped.
fn answer(cache: &Cache, waiting: &Receiver<IpAddr>, lookup: impl Fn(IpAddr) -> Option<String>) {
    while let Ok(address) = waiting.recv() {
        let name = lookup(address);
        let age = if name.is_some() { NAME_AGE } else { NONE_AGE };
        let until = Instant::now() + age;
        cache.answers().insert(address, CachedAnswer::Answered { name, until });
        cache.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_once_the_resolver_has_answered() {
        let (asked, requests) = bounded(16);
        let (answers, answered) = bounded::<Option<String>>(16);
        let lookup = move |address: IpAddr| -> Option<String> {
            asked.send(address).ok()?;
            answered.recv().ok()?
        };
        let resolver = Resolver::start(lookup).unwrap();
        let [one, other]: [IpAddr; 2] = ["192.0.2.7", "2001:db8::7"].map(|it| it.parse().unwrap());
        assert_eq!(resolver.name(one), None);
        assert_eq!(requests.recv(), Ok(one));
        // It is not requested again, neither before the answer nor after it.
        assert_eq!(resolver.name(one), None);
        answers.send(Some("host.example".to_owned())).unwrap();
        assert_eq!(resolver.prepare(&[one], Duration::from_secs(60)), 0);
        assert_eq!(resolver.name(one).as_deref(), Some("host.example"));
        assert_eq!(resolver.name(other), None);
        assert_eq!(requests.recv(), Ok(other));
        answers.send(None).unwrap();
        assert_eq!(resolver.prepare(&[other], Duration::from_secs(60)), 0);
        assert_eq!((resolver.name(other), requests.try_recv().ok()), (None, None));
    }
}
