//! Signatures of functions in tables.

use std::ffi::c_int;

/// A signature, written as a function of Rust and called by C's convention.
pub(crate) trait Signature {
    /// The function.
    type C: Copy;
}

macro_rules! signatures {
    ($($argument:ident)*) => {
        impl<$($argument),*> Signature for fn($($argument),*) -> c_int {
            type C = unsafe extern "C" fn($($argument),*) -> c_int;
        }
    };
}
signatures!(A);
signatures!(A B);
signatures!(A B C);
signatures!(A B C D);
signatures!(A B C D E);
signatures!(A B C D E F);
signatures!(A B C D E F G);
signatures!(A B C D E F G H);
signatures!(A B C D E F G H I);
