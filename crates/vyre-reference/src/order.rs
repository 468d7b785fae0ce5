//! The order in which workgroups and invocations run.
//!
//! Programs without data races give the same result in every order, so running one in several
//! orders finds bugs. A shuffled order visits `start + k · stride` modulo the count, with a stride
//! coprime to it: a permutation that needs no memory however large the grid is.

/// Order of workgroups, and of invocations between the points where they wait for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By ascending id.
    #[default]
    Ascending,
    /// By descending id.
    Descending,
    /// Reshuffled for every permutation, from this seed.
    Shuffled(u64),
    /// A few instructions of one random invocation, then of another, from this seed.
    Interleaved(u64),
}

/// Generates the orders of one run.
#[derive(Debug)]
pub(crate) struct Scheduler {
    order: Order,
    random: Random,
}

impl Scheduler {
    pub(crate) fn new(order: Order) -> Scheduler {
        let seed = match order {
            Order::Ascending | Order::Descending => 0,
            Order::Shuffled(seed) | Order::Interleaved(seed) => seed,
        };
        Scheduler { order, random: Random(seed) }
    }

    /// Whether invocations take turns instead of running until they wait.
    pub(crate) fn interleaves(&self) -> bool {
        matches!(self.order, Order::Interleaved(_))
    }

    /// An order of `count` items.
    pub(crate) fn permutation(&mut self, count: u64) -> Permutation {
        match self.order {
            Order::Ascending => Permutation { count, start: 0, stride: 1 },
            Order::Descending => {
                let last = count.saturating_sub(1);
                Permutation { count, start: last, stride: last }
            }
            Order::Shuffled(_) | Order::Interleaved(_) => self.shuffled(count),
        }
    }

    /// A random number below `limit`, which must not be zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.random.next() % limit as u64) as usize
    }

    fn shuffled(&mut self, count: u64) -> Permutation {
        let start = self.random.next() % count.max(1);
        loop {
            let stride = self.random.next() % count.max(1);
            if count <= 1 || greatest_common_divisor(stride, count) == 1 {
                return Permutation { count, start, stride };
            }
        }
    }
}

/// A permutation of 0 … count − 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    count: u64,
    start: u64,
    stride: u64,
}

impl Permutation {
    pub(crate) fn iter(self) -> impl Iterator<Item = u64> {
        let mut next = self.start;
        (0..self.count).map(move |_| {
            let this = next;
            next = ((u128::from(next) + u128::from(self.stride)) % u128::from(self.count)) as u64;
            this
        })
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// SplitMix64: small, and good enough for shuffling.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_visits_each_once() {
        let orders = [Order::Ascending, Order::Descending, Order::Shuffled(7), Order::Interleaved(7)];
        for order in orders {
            let mut scheduler = Scheduler::new(order);
            for count in 0..40 {
                let mut seen: Vec<u64> = scheduler.permutation(count).iter().collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{order:?} of {count}");
            }
        }
    }

    #[test]
    fn descending_is_ascending_reversed() {
        let mut visited: Vec<u64> = Scheduler::new(Order::Descending).permutation(5).iter().collect();
        visited.reverse();
        assert_eq!(visited, [0, 1, 2, 3, 4]);
    }
}
