//! Abilities that the kernel must have, and meanings of its refusals.

use std::io;

use crate::error::LabError;

/// Something that the kernel must be able to do.
#[derive(Debug)]
pub(crate) struct Ability {
    what: &'static str,
    option: &'static str,
    /// Error numbers that mean that the kernel was built without it.
    absent: &'static [i32],
}

pub(crate) const NAMESPACE: Ability = Ability {
    what: "network namespaces",
    option: "CONFIG_NET_NS",
    absent: &[libc::EINVAL, libc::ENOSYS, libc::ENOENT],
};
pub(crate) const NETLINK: Ability =
    Ability { what: "netlink", option: "CONFIG_NET", absent: &[libc::EPROTONOSUPPORT] };
pub(crate) const BRIDGE: Ability =
    Ability { what: "bridges", option: "CONFIG_BRIDGE", absent: &[libc::EOPNOTSUPP] };
pub(crate) const VETH: Ability =
    Ability { what: "virtual Ethernet pairs", option: "CONFIG_VETH", absent: &[libc::EOPNOTSUPP] };
pub(crate) const ADDRESS: Ability =
    Ability { what: "IPv4 addresses", option: "CONFIG_INET", absent: &[libc::EOPNOTSUPP] };
pub(crate) const ROUTE: Ability = Ability {
    what: "routes with several next hops",
    option: "CONFIG_IP_ROUTE_MULTIPATH",
    absent: &[libc::EINVAL, libc::EOPNOTSUPP],
};
pub(crate) const FORWARDING: Ability = Ability {
    what: "settings of IPv4 forwarding",
    option: "CONFIG_SYSCTL and CONFIG_IP_ROUTE_MULTIPATH",
    absent: &[libc::ENOENT],
};
pub(crate) const TBF: Ability = Ability {
    what: "token bucket queues",
    option: "CONFIG_NET_SCH_TBF",
    absent: &[libc::EOPNOTSUPP, libc::ENOENT],
};
pub(crate) const HTB: Ability = Ability {
    what: "hierarchical token buckets",
    option: "CONFIG_NET_SCH_HTB",
    absent: &[libc::EOPNOTSUPP, libc::ENOENT],
};
pub(crate) const CLSACT: Ability = Ability {
    what: "classifiers of received packets",
    option: "CONFIG_NET_SCH_INGRESS",
    absent: &[libc::EOPNOTSUPP, libc::ENOENT],
};
pub(crate) const CLASSIFIER: Ability = Ability {
    what: "eBPF classifiers",
    option: "CONFIG_NET_CLS_BPF",
    absent: &[libc::EOPNOTSUPP, libc::ENOENT],
};
pub(crate) const BPF: Ability =
    Ability { what: "eBPF programs", option: "CONFIG_BPF_SYSCALL", absent: &[libc::ENOSYS] };

impl Ability {
    /// Error that a refusal means.
    pub(crate) fn refused(&self, source: io::Error) -> LabError {
        let Ability { what, option, absent } = *self;
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LabError::NotPermitted { what },
            Some(libc::ENOSPC) if what == NAMESPACE.what => LabError::Full,
            Some(number) if absent.contains(&number) => LabError::Missing { what, option },
            _ => LabError::Kernel { what, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(ability: &Ability, number: i32) -> String {
        ability.refused(io::Error::from_raw_os_error(number)).to_string()
    }

    #[test]
    fn refusals_say_what_is_missing_and_what_to_do() {
        assert_eq!(
            message(&TBF, libc::ENOENT),
            "this kernel has no token bucket queues: load its module, or use a kernel with \
             CONFIG_NET_SCH_TBF"
        );
        assert_eq!(
            message(&BPF, libc::EPERM),
            "this root may not use eBPF programs: run outside of the container, or give it \
             CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_BPF"
        );
        assert!(message(&NAMESPACE, libc::ENOSPC).contains("user.max_net_namespaces"));
        assert_eq!(
            message(&VETH, libc::EEXIST),
            "setting up virtual Ethernet pairs failed: File exists (os error 17)"
        );
    }
}
