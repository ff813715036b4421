//! What the user asks for a vCPU, and how a policy refuses what it cannot do.

use crate::ids::VmId;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// What the user asked for a vCPU. A policy uses what it knows and refuses the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VcpuParams {
    /// Its VM.
    pub vm: VmId,
    /// How many vCPUs its VM has.
    pub siblings: u32,
    /// Shares of its VM against other VMs (1 to 65535); `None` if not given, which counts as 1.
    pub shares: Option<u32>,
    /// Weight against the other vCPUs (1 to 10000); `None` if not given, which counts as 1.
    pub weight: Option<u32>,
    /// Nice value (−20 to 19), an alternative to a weight.
    pub nice: Option<i8>,
    /// The length of slice it asks for, if it asks.
    pub slice: Option<Nanos>,
    /// The most it may use, in per cent of one core, if it is capped (1 to 100 times its number of
    /// vCPUs; of the VM for policies that cap VMs).
    pub cap: Option<u32>,
    /// Period of a real-time reservation, if it has one.
    pub period: Option<Nanos>,
    /// Budget in each period of that reservation.
    pub budget: Option<Nanos>,
}

impl VcpuParams {
    /// A vCPU alone in its VM, with nothing asked for.
    #[must_use]
    pub const fn plain(vm: VmId) -> Self {
        Self {
            vm,
            siblings: 1,
            shares: None,
            weight: None,
            nice: None,
            slice: None,
            cap: None,
            period: None,
            budget: None,
        }
    }

    /// The weight of the vCPU alone, for policies that know no VMs. Shares of a VM that has one vCPU
    /// are the weight of that vCPU; shares of a wider VM are refused, and so is a weight of 0.
    pub fn flat_weight(&self, policy: &'static str) -> Result<u32, Refused> {
        if self.shares.is_some() && self.siblings > 1 {
            let knows = "a weight per vCPU; shares only for a VM that has a single vCPU";
            return Err(Refused::unknown(policy, "shares", knows));
        }
        self.some_product(policy)
    }

    /// The shares of the VM, for policies that know no weights within a VM. The weight of the only
    /// vCPU of a VM is the shares of that VM; weights in a wider VM are refused, and so are 0 shares.
    pub fn group_shares(&self, policy: &'static str) -> Result<u32, Refused> {
        self.refuse_weight_in_group(policy)?;
        self.some_product(policy)
    }

    /// The same for policies that let a VM with 0 shares run when nobody else wants to.
    pub fn group_shares_or_zero(&self, policy: &'static str) -> Result<u32, Refused> {
        self.refuse_weight_in_group(policy)?;
        self.product(policy)
    }

    fn refuse_weight_in_group(&self, policy: &'static str) -> Result<(), Refused> {
        if self.weight.is_some() && self.siblings > 1 {
            let knows = "shares per VM; a vCPU weight only in a VM that has a single vCPU";
            return Err(Refused::unknown(policy, "weight", knows));
        }
        Ok(())
    }

    /// Shares times weight.
    fn product(&self, policy: &'static str) -> Result<u32, Refused> {
        let (shares, weight) = (self.shares.unwrap_or(1), self.weight.unwrap_or(1));
        shares.checked_mul(weight).ok_or(Refused::Value {
            policy,
            param: "shares",
            value: shares,
            takes: "shares that, times the weight of the vCPU, are less than 2^32",
        })
    }

    /// The same, of at least 1.
    fn some_product(&self, policy: &'static str) -> Result<u32, Refused> {
        let given = [("shares", self.shares), ("weight", self.weight)];
        if let Some((param, _)) = given.into_iter().find(|(_, value)| *value == Some(0)) {
            return Err(Refused::Value {
                policy,
                param,
                value: 0,
                takes: "1 or more",
            });
        }
        self.product(policy)
    }

    /// Refuses all but weights and shares: a nice value, a slice, a cap, a reservation.
    pub fn refuse_all_but_weights(
        &self,
        policy: &'static str,
        knows: &'static str,
    ) -> Result<(), Refused> {
        self.refuse_nice(policy, knows)?;
        self.refuse_slice(policy, knows)?;
        self.refuse_limits(policy, knows)
    }

    /// Refuses whatever is asked for, for policies to which all are equal.
    pub fn refuse_all(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        self.refuse_all_but_weights(policy, knows)?;
        self.refuse_weights(policy, knows)
    }

    /// Refuses a nice value.
    pub fn refuse_nice(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        self.nice
            .map_or(Ok(()), |_| Err(Refused::unknown(policy, "nice", knows)))
    }

    /// Refuses a cap and a reservation, for policies that know neither.
    pub fn refuse_limits(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        self.refuse_cap(policy, knows)?;
        self.refuse_reservation(policy, knows)
    }

    /// Refuses a cap.
    pub fn refuse_cap(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        let param = "cap";
        let refused = Refused::unknown(policy, param, knows);
        self.cap.map_or(Ok(()), |_| Err(refused))
    }

    /// Refuses weights and shares other than 1, for policies to which all are equal.
    pub fn refuse_weights(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        let given = [("weight", self.weight), ("shares", self.shares)];
        match given
            .into_iter()
            .find(|(_, value)| value.is_some_and(|value| value != 1))
        {
            Some((param, _)) => Err(Refused::unknown(policy, param, knows)),
            None => Ok(()),
        }
    }

    /// Refuses a real-time reservation.
    pub fn refuse_reservation(
        &self,
        policy: &'static str,
        knows: &'static str,
    ) -> Result<(), Refused> {
        let given = [("period", self.period), ("budget", self.budget)];
        match given.into_iter().find(|(_, value)| value.is_some()) {
            Some((param, _)) => Err(Refused::unknown(policy, param, knows)),
            None => Ok(()),
        }
    }

    /// Refuses a slice of its own.
    pub fn refuse_slice(&self, policy: &'static str, knows: &'static str) -> Result<(), Refused> {
        self.slice
            .map_or(Ok(()), |_| Err(Refused::unknown(policy, "slice", knows)))
    }
}

/// What a policy cannot do as it was asked to: never ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// A parameter that it does not know, or not together with the others.
    #[error("policy `{policy}` does not know the parameter `{param}`; it knows {knows}")]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// What it was given.
        param: &'static str,
        /// What it would understand.
        knows: &'static str,
    },
    /// A parameter that it knows, with a value that it has no use for.
    #[error("policy `{policy}` does not take {value} for `{param}`; it takes {takes}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// The parameter as it was given.
        param: &'static str,
        /// What it was given.
        value: u32,
        /// What it would take.
        takes: &'static str,
    },
}

impl Refused {
    /// A parameter that the policy does not know, and what it would understand.
    #[must_use]
    pub const fn unknown(policy: &'static str, param: &'static str, knows: &'static str) -> Self {
        Self::Unknown {
            policy,
            param,
            knows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(shares: Option<u32>, weight: Option<u32>, siblings: u32) -> VcpuParams {
        VcpuParams {
            shares,
            weight,
            siblings,
            ..VcpuParams::plain(VmId(0))
        }
    }

    fn said(refused: Result<u32, Refused>) -> String {
        refused.expect_err("refused").to_string()
    }

    #[test]
    fn a_value_that_is_refused_is_named_as_it_was_written() {
        let shares = said(params(Some(0), None, 1).flat_weight("stride"));
        let expected = "policy `stride` does not take 0 for `shares`; it takes 1 or more";
        assert_eq!(shares, expected);
        let weight = said(params(None, Some(0), 1).group_shares("credit"));
        let expected = "policy `credit` does not take 0 for `weight`; it takes 1 or more";
        assert_eq!(weight, expected);
        assert_eq!(params(Some(0), None, 2).group_shares_or_zero("fss"), Ok(0));
    }

    #[test]
    fn shares_times_weight_count_and_more_than_fits_is_refused() {
        let some = params(Some(60), Some(7), 1);
        assert_eq!(some.flat_weight("stride"), Ok(420));
        assert_eq!(some.group_shares("credit"), Ok(420));
        let many = params(Some(1 << 16), Some(1 << 16), 1);
        for refused in [many.flat_weight("stride"), many.group_shares("credit")] {
            let said = said(refused);
            assert!(said.contains("65536 for `shares`"), "{said}");
        }
    }

    #[test]
    fn in_a_wider_vm_shares_are_no_weight_and_weights_are_no_shares() {
        let shares = said(params(Some(2), None, 2).flat_weight("stride"));
        assert!(
            shares.contains("does not know the parameter `shares`"),
            "{shares}"
        );
        let weight = said(params(None, Some(2), 2).group_shares("credit"));
        assert!(
            weight.contains("does not know the parameter `weight`"),
            "{weight}"
        );
    }
}
