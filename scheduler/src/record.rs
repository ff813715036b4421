//! The 32-byte form of inputs, effects and events.
