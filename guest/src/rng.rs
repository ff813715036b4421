//! A small seeded generator, the same in guest and simulator.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): one
//! 64-bit state, full period, good enough for durations; integer arithmetic only, because the guest
//! kernel has no floating point.

/// The generator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for each stream (vCPU) of a seed.
    ///
    /// All generators go through the same numbers, from different places. Both seed and stream are mixed, because
    /// places that are near each other would give the same numbers a few draws apart.
    #[must_use]
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self(mix(mix(seed).wrapping_add(stream)))
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform from 0 to `bound` − 1; 0 for a bound of 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// Uniform from `low` to `high`, both included; `low` if they are out of order.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low {
            return low;
        }
        low + self.below(high - low + 1)
    }

    /// Exponentially distributed with the given mean, at most about 22 times the mean.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "22.2 times a mean: means stay below 2^59"
    )]
    pub const fn exponential(&mut self, mean: u64) -> u64 {
        // -ln(u) for u = (bits + 1) / 2^32, as 32·ln 2 − log2(bits + 1)·ln 2, 16 fractional bits.
        let drawn = (self.bits() >> 32) + 1;
        let minus_log2 = (32 << 16) - log2_q16(drawn);
        const LN2_Q16: u128 = 45_426;
        ((mean as u128 * minus_log2 as u128 * LN2_Q16) >> 32) as u64
    }
}

/// SplitMix64's finalizer: different numbers give different ones that have nothing to do with each other.
const fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// log2 of `x` ≥ 1 with 16 fractional bits, by repeated squaring.
const fn log2_q16(x: u64) -> u64 {
    let whole = 63 - x.leading_zeros() as u64;
    // The mantissa in [1, 2) with 31 fractional bits.
    let mut mantissa = if whole >= 31 {
        x >> (whole - 31)
    } else {
        x << (31 - whole)
    };
    let mut log = whole;
    let mut bit = 0;
    while bit < 16 {
        mantissa = (mantissa * mantissa) >> 31;
        log <<= 1;
        if mantissa >= 1 << 32 {
            mantissa >>= 1;
            log |= 1;
        }
        bit += 1;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_stream_give_the_same_numbers_and_others_do_not() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.bits(), rng.bits(), rng.bits()]
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn no_stream_goes_through_the_numbers_of_another() {
        let streams: Vec<_> = (0..8)
            .flat_map(|seed| (0..16).map(move |stream| (seed, stream)))
            .collect();
        let mut seen = std::collections::HashMap::new();
        for (seed, stream) in streams {
            let mut rng = Rng::new(seed, stream);
            for draw in 0..64 {
                let before = seen.insert(rng.bits(), (seed, stream, draw));
                assert_eq!(before, None, "seed {seed}, stream {stream}, draw {draw}");
            }
        }
    }

    #[test]
    fn uniform_draws_stay_in_bounds_and_reach_both_ends() {
        let mut rng = Rng::new(7, 0);
        let drawn: Vec<_> = (0..1_000).map(|_| rng.between(3, 6)).collect();
        assert!(drawn.iter().all(|v| (3..=6).contains(v)));
        assert!(drawn.contains(&3) && drawn.contains(&6));
        assert_eq!(rng.between(5, 5), 5);
        assert_eq!(rng.between(9, 2), 9);
    }

    #[test]
    fn exponential_draws_have_their_mean_and_spread() {
        let mut rng = Rng::new(3, 0);
        let n = 200_000u64;
        let (mut sum, mut above) = (0u64, 0u64);
        for _ in 0..n {
            let v = rng.exponential(1_000_000);
            sum += v;
            above += u64::from(v > 1_000_000);
        }
        let mean = sum / n;
        assert!((985_000..1_015_000).contains(&mean), "{mean}");
        // P(X > mean) = 1/e = 36.8 %.
        let share = above * 1000 / n;
        assert!((360..376).contains(&share), "{share}");
    }

    #[test]
    fn the_logarithm_is_exact_at_powers_of_two_and_close_between() {
        assert_eq!(log2_q16(1), 0);
        assert_eq!(log2_q16(1 << 20), 20 << 16);
        let three = log2_q16(3) as f64 / 65_536.0;
        assert!((three - 1.584_96).abs() < 1e-4, "{three}");
    }
}
