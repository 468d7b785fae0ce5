//! Which regions of which kernels take the time. (To come.)
