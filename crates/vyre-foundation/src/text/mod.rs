//! The text form. (To come.)
