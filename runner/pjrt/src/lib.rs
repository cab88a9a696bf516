//! PJRT interposer.
