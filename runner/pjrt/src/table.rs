//! A plugin's function table: copied whole, read and replaced entry by entry, never beyond its own size.

use crate::abi::{Entry, TABLE_HEADER_BYTES};

const WORD: usize = size_of::<usize>();

/// No real table comes near this size; a larger one is not a table.
const MAX_TABLE_BYTES: usize = 1 << 20;

/// A copy of a `PJRT_Api` struct of any version, as machine words.
pub struct Table {
    words: Box<[usize]>,
    bytes: usize,
}

/// Why a table cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum TableProblem {
    /// The plugin returned no table.
    Null,
    /// The size that the table declares is impossible.
    Size(usize),
    /// The table has another major version.
    Major(i32),
}

impl std::fmt::Display for TableProblem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => write!(formatter, "its GetPjrtApi returned no table"),
            Self::Size(bytes) => write!(formatter, "its table declares an impossible size of {bytes} bytes"),
            Self::Major(major) => write!(formatter, "its PJRT major version is {major}, expected 0"),
        }
    }
}

impl Table {
    /// Copies exactly as many bytes as the table at `source` declares.
    ///
    /// # Safety
    /// `source` must be null or point at a `PJRT_Api` struct, of which as many bytes are readable as its first word says.
    pub unsafe fn copy(source: *const usize) -> Result<Self, TableProblem> {
        if source.is_null() {
            return Err(TableProblem::Null);
        }
        // SAFETY: every version of the struct starts with its size.
        let bytes = unsafe { source.read() };
        if !(TABLE_HEADER_BYTES..=MAX_TABLE_BYTES).contains(&bytes) {
            return Err(TableProblem::Size(bytes));
        }
        let mut words = vec![0_usize; bytes.div_ceil(WORD)].into_boxed_slice();
        // SAFETY: `words` holds at least `bytes` bytes, `source` has them by its own word, and the two cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(source.cast::<u8>(), words.as_mut_ptr().cast::<u8>(), bytes) };
        let table = Self { words, bytes };
        match table.version() {
            (0, _) => Ok(table),
            (major, _) => Err(TableProblem::Major(major)),
        }
    }

    /// A table of `entries` entries that all hold `function`.
    pub fn filled(entries: usize, minor_version: i32, function: usize) -> Self {
        let bytes = TABLE_HEADER_BYTES + entries * WORD;
        let mut words = vec![function; bytes / WORD].into_boxed_slice();
        words[..TABLE_HEADER_BYTES / WORD].fill(0);
        words[0] = bytes;
        words[2] = 24;
        words[4] = usize::from_ne_bytes(join_version(0, minor_version));
        Self { words, bytes }
    }

    /// The major and minor version that the plugin was built against.
    pub fn version(&self) -> (i32, i32) {
        let [a, b, c, d, e, f, g, h] = self.words[4].to_ne_bytes();
        (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]))
    }

    /// How many whole entries the table has.
    pub fn entries(&self) -> usize {
        (self.bytes - TABLE_HEADER_BYTES) / WORD
    }

    /// The address in an entry; `None` where the table ends before it or holds null.
    pub fn address(&self, entry: Entry) -> Option<usize> {
        let position = self.position(entry)?;
        Some(self.words[position]).filter(|address| *address != 0)
    }

    /// Replaces an entry that the plugin has; what it lacks stays lacking. Tells whether it did.
    pub fn replace(&mut self, entry: Entry, address: usize) -> bool {
        match self.position(entry) {
            Some(position) if self.words[position] != 0 => {
                self.words[position] = address;
                true
            }
            _ => false,
        }
    }

    /// The table as C sees it.
    pub fn as_ptr(&self) -> *const usize {
        self.words.as_ptr()
    }

    fn position(&self, entry: Entry) -> Option<usize> {
        let index = entry as usize;
        (index < self.entries()).then_some(TABLE_HEADER_BYTES / WORD + index)
    }
}

fn join_version(major: i32, minor: i32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&major.to_ne_bytes());
    bytes[4..].copy_from_slice(&minor.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page followed by one that must not be read: a read past the end of what stands before the border is a crash.
    struct Border {
        start: *mut u8,
        page: usize,
    }

    impl Border {
        fn new() -> Self {
            // SAFETY: plain system calls on memory of this test alone.
            unsafe {
                let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
                let start = libc::mmap(
                    std::ptr::null_mut(),
                    2 * page,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                assert_ne!(start, libc::MAP_FAILED);
                assert_eq!(libc::mprotect(start.add(page), page, libc::PROT_NONE), 0);
                Self { start: start.cast(), page }
            }
        }

        fn place(&self, words: &[usize]) -> *const usize {
            let bytes = size_of_val(words);
            // SAFETY: the words fit in the page and end at its border, which is aligned.
            unsafe {
                let target = self.start.add(self.page - bytes).cast::<usize>();
                std::ptr::copy_nonoverlapping(words.as_ptr(), target, words.len());
                target
            }
        }
    }

    fn words(entries: usize) -> Vec<usize> {
        let table = Table::filled(entries, 81, 0x1000);
        table.words.to_vec()
    }

    #[test]
    fn a_short_table_is_copied_up_to_its_own_size_and_not_a_byte_further() {
        let border = Border::new();
        let source = border.place(&words(21));
        // SAFETY: a whole table by its own size.
        let table = unsafe { Table::copy(source) }.expect("a valid table");
        assert_eq!(table.entries(), 21);
        assert_eq!(table.version(), (0, 81));
        assert_eq!(table.address(Entry::ClientCompile), Some(0x1000));
        assert_eq!(table.address(Entry::BufferFromHostBuffer), None);
    }

    #[test]
    fn what_the_plugin_lacks_is_not_added() {
        let mut short = Table::filled(21, 81, 0x1000);
        assert!(short.replace(Entry::ClientCompile, 7));
        assert!(!short.replace(Entry::LoadedExecutableExecute, 7));
        let mut holes = Table::filled(21, 81, 0);
        assert!(!holes.replace(Entry::ClientCompile, 7));
    }

    #[test]
    fn entries_newer_than_this_library_are_passed_through() {
        let mut source = words(200);
        source[5 + 199] = 0xabcd;
        // SAFETY: a whole table by its own size.
        let table = unsafe { Table::copy(source.as_ptr()) }.expect("a valid table");
        assert_eq!(table.entries(), 200);
        assert_eq!(table.words[5 + 199], 0xabcd);
    }

    #[test]
    fn nonsense_is_refused() {
        // SAFETY: null, or enough words for what the size says.
        unsafe {
            assert_eq!(Table::copy(std::ptr::null()).err(), Some(TableProblem::Null));
            assert_eq!(Table::copy([8_usize, 0, 0, 0, 0].as_ptr()).err(), Some(TableProblem::Size(8)));
            assert_eq!(Table::copy([usize::MAX].as_ptr()).err(), Some(TableProblem::Size(usize::MAX)));
            assert_eq!(Table::copy([40_usize, 0, 24, 0, 1].as_ptr()).err(), Some(TableProblem::Major(1)));
        }
    }
}
