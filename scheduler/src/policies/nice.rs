//! Linux's weights of nice values: 1024 at nice 0, a factor of about 1.25 a step.
//!
//! Source: the kernel's `sched_prio_to_weight`, from general knowledge.

const WEIGHTS: [u32; 40] = [
    88_761, 71_755, 56_483, 46_273, 36_291, 29_154, 23_254, 18_705, 14_949, 11_916, 9_548, 7_620,
    6_100, 4_904, 3_906, 3_121, 2_501, 1_991, 1_586, 1_277, 1_024, 820, 655, 526, 423, 335, 272,
    215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of a nice value; values outside −20 to 19 count as the nearer end.
#[must_use]
pub fn weight_of_nice(nice: i8) -> u32 {
    let step = usize::try_from(i16::from(nice.clamp(-20, 19)) + 20).unwrap_or(20);
    WEIGHTS[step]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_about_a_quarter_and_nice_0_is_1024() {
        assert_eq!(weight_of_nice(0), 1_024);
        assert_eq!(weight_of_nice(-20), 88_761);
        assert_eq!(weight_of_nice(19), 15);
        for nice in -20..19 {
            let ratio = f64::from(weight_of_nice(nice)) / f64::from(weight_of_nice(nice + 1));
            assert!((1.18..1.32).contains(&ratio), "{nice}: {ratio}");
        }
    }
}
