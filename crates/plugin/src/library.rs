//! A library with tables.
#![expect(unsafe_code, reason = "libraries are loaded and read by addresses")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::coll::Coll;
use crate::net::Net;
use crate::signature::Signature;
use crate::tuner::Tuner;
use crate::{CallError, succeeded};

/// Versions of net and CollNet that are known here.
const NET_VERSIONS: std::ops::RangeInclusive<u32> = 8..=12;
/// Versions of the tuner that are known here.
const TUNER_VERSIONS: std::ops::RangeInclusive<u32> = 4..=6;

/// A loaded library. It stays loaded unless [`Library::unload`] is called.
#[derive(Debug)]
pub struct Library(*mut c_void);

/// Versions of the interface that a library has, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Messages between two ranks.
    pub net: Vec<u32>,
    /// All-reduces.
    pub coll: Vec<u32>,
    /// Choice of algorithms.
    pub tuner: Vec<u32>,
}

impl Library {
    /// Loads a library with the options that NCCL uses.
    pub fn load(path: &Path) -> Result<Library, CallError> {
        let failed = |reason: String| CallError::NotLoaded { path: path.to_owned(), reason };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| failed("the path has a zero byte".into()))?;
        // SAFETY: a path. The initialisers of the library are the caller's choice, as with NCCL.
        let loaded = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if loaded.is_null() {
            // SAFETY: the text of the failure above, or null.
            let reason = unsafe { text(libc::dlerror()) };
            return Err(failed(reason.unwrap_or_else(|| "the system does not say why".into())));
        }
        Ok(Library(loaded))
    }

    /// Unloads it. A library that asks the loader to stay does.
    pub fn unload(self) -> Result<(), CallError> {
        // SAFETY: it was loaded once by this.
        succeeded("dlclose", unsafe { libc::dlclose(self.0) })
    }

    /// Versions that it has.
    pub fn versions(&self) -> Versions {
        let found = |kind: &str, known: std::ops::RangeInclusive<u32>| {
            known.filter(|version| self.symbol(&format!("{kind}_v{version}")).is_some()).collect()
        };
        Versions {
            net: found("ncclNetPlugin", NET_VERSIONS),
            coll: found("ncclCollNetPlugin", NET_VERSIONS),
            tuner: found("ncclTunerPlugin", TUNER_VERSIONS),
        }
    }

    /// The net interface of a version from 8 to 12, after `init`.
    pub fn net(&self, version: u32) -> Result<Net, CallError> {
        let slots = match version {
            8 => 19,
            9 | 10 => 20,
            _ => 22,
        };
        Net::begin(self.table(&format!("ncclNetPlugin_v{version}"), slots)?, version)
    }

    /// The CollNet interface of a version from 8 to 12, after `init`.
    pub fn coll(&self, version: u32) -> Result<Coll, CallError> {
        let slots = match version {
            8 => 17,
            9 | 10 => 18,
            _ => 19,
        };
        Coll::begin(self.table(&format!("ncclCollNetPlugin_v{version}"), slots)?, version)
    }

    /// The tuner interface of a version from 4 to 6, after `init` for this number of nodes of one rank each.
    pub fn tuner(&self, version: u32, nodes: usize) -> Result<Tuner, CallError> {
        let slots = if version == 6 { 5 } else { 4 };
        let table = self.table(&format!("ncclTunerPlugin_v{version}"), slots)?;
        Tuner::begin(table, version, nodes)
    }

    fn table(&self, name: &str, slots: usize) -> Result<Table, CallError> {
        let first = self.symbol(name).ok_or_else(|| CallError::NoTable(name.to_owned()))?;
        Ok(Table { first: first.cast(), slots, name: name.to_owned() })
    }

    fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the library is loaded.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// A table of functions.
#[derive(Debug)]
pub(crate) struct Table {
    first: *const usize,
    slots: usize,
    name: String,
}

impl Table {
    /// The function in a slot.
    ///
    /// # Safety
    ///
    /// `F` has the published arguments of that function. It is called by C's convention.
    pub(crate) unsafe fn function<F: Signature>(&self, slot: usize) -> Result<F::C, CallError> {
        assert!(slot < self.slots, "{} has {} slots", self.name, self.slots);
        // SAFETY: the table has this many slots.
        let address = unsafe { *self.first.add(slot) };
        if address == 0 {
            return Err(CallError::NoFunction { table: self.name.clone(), slot });
        }
        // SAFETY: the caller's.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    /// Name of the plug-in, in slot 0.
    pub(crate) fn plugin_name(&self) -> String {
        // SAFETY: the first slot is a text, or null.
        unsafe { text(*self.first as *const c_char) }.unwrap_or_default()
    }
}

/// A text of C. `None` for null.
///
/// # Safety
///
/// It is null, or ends with a zero byte.
pub(crate) unsafe fn text(from: *const c_char) -> Option<String> {
    // SAFETY: the caller's.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}
