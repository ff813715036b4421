//! A histogram of times that fits a page: 16 buckets to an octave, so a value is known to 1 in 16.
//!
//! The guest counts into it without leaving its VM; the host reads it at the end.

/// Buckets of a histogram: values up to 2^43 ns (2.4 hours), all above in the last.
pub const BUCKETS: usize = 640;

/// The bucket of a value.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "values below 16, or masked to four bits"
)]
pub const fn bucket(value: u64) -> usize {
    if value < 16 {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros() as usize;
    let within = (value >> (octave - 4)) as usize & 15;
    let index = (octave - 3) * 16 + within;
    if index < BUCKETS { index } else { BUCKETS - 1 }
}

/// The least value of a bucket.
#[must_use]
pub const fn lowest(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let (octave, within) = (bucket / 16 + 3, bucket % 16);
    (16 + within as u64) << (octave - 4)
}

/// The value halfway between the least of a bucket and that of the next.
#[must_use]
pub const fn middle(bucket: usize) -> u64 {
    u64::midpoint(lowest(bucket), lowest(bucket + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_a_value_is_known_to_one_in_sixteen() {
        for value in (0..2_000).chain([1 << 20, (1 << 20) + 99, 123_456_789, 1 << 42]) {
            let b = bucket(value);
            assert!(lowest(b) <= value, "{value}");
            assert!(value - lowest(b) <= value / 16, "{value}");
            assert!(bucket(middle(b)) == b);
            assert!(b + 1 == BUCKETS || value < lowest(b + 1), "{value}");
        }
    }

    #[test]
    fn a_value_too_large_for_the_table_is_counted_in_the_last_bucket() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
