//! Structs of counters, each of which is written down once.

/// Defines a struct of `u64` counters with what all such structs have: defaults of zero, `named` for reports,
/// and `+=` for totals. Counters are added over time, so other crates cannot build one field by field.
#[macro_export]
macro_rules! counters {
    (
        $(#[$about:meta])*
        $visibility:vis struct $Counters:ident {
            $($(#[doc = $help:literal])* pub $counter:ident: u64,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        $visibility struct $Counters {
            $($(#[doc = $help])* pub $counter: u64,)*
        }

        impl $Counters {
            /// All counters with their names.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($counter), self.$counter)),*]
            }

            /// All counters with their names and what their documentation says of them.
            pub fn described(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($counter), concat!($($help),*).trim_ascii(), self.$counter)),*]
            }
        }

        impl ::std::ops::AddAssign<&$Counters> for $Counters {
            fn add_assign(&mut self, other: &$Counters) {
                $(self.$counter += other.$counter;)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    counters! {
        /// Packets of a test.
        struct Counters {
            /// Packets sent.
            pub sent: u64,
            /// Packets lost.
            pub lost: u64,
        }
    }

    #[test]
    fn counters_are_named_in_order_and_add_up_one_by_one() {
        let mut all = Counters { sent: 5, lost: 1 };
        all += &Counters { sent: 10, lost: 2 };
        assert_eq!(all.named(), [("sent", 15), ("lost", 3)]);
        let described = [("sent", "Packets sent.", 15), ("lost", "Packets lost.", 3)];
        assert_eq!(all.described(), described);
    }
}
