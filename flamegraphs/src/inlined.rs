//! The functions that were inlined at an address, from the program's debug information. Without
//! them a picture of optimised code has one large frame.

use crate::names;
use addr2line::Loader;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

/// A program with its debug information.
pub struct Inlined {
    loader: Loader,
    file_name: String,
    known: RefCell<HashMap<u64, Vec<String>>>,
}

impl Inlined {
    /// Reads the program's debug information.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn of(program: &Path) -> Result<Self, String> {
        let loader = Loader::new(program).map_err(|error| format!("{}: {error}", program.display()))?;
        let file_name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        Ok(Self { loader, file_name, known: RefCell::default() })
    }

    /// Our own functions that were inlined at an address, the outermost first: not the one that the
    /// address lies in. Empty for objects other than the program.
    pub fn at(&self, object: &str, address: u64) -> Vec<String> {
        // The program ran from a copy whose name may be shorter.
        let name = object.rsplit('/').next().unwrap_or_default();
        if name.is_empty() || !self.file_name.starts_with(name) {
            return Vec::new();
        }
        self.known.borrow_mut().entry(address).or_insert_with(|| self.look_up(address)).clone()
    }

    fn look_up(&self, address: u64) -> Vec<String> {
        let mut frames = Vec::new();
        let Ok(mut found) = self.loader.find_frames(address) else { return frames };
        while let Ok(Some(frame)) = found.next() {
            let name =
                frame.function.and_then(|function| function.demangle().ok().map(|name| name.into_owned()));
            frames.push(name.unwrap_or_default());
        }
        // The last is the function itself.
        frames.pop();
        frames.retain(|name| names::is_ours(name));
        frames.reverse();
        frames
    }
}
