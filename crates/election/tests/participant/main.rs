//! The participant's machine: its rules one by one, by hand; then all of them at once, against a
//! reference store, with bad networks, bad clocks and pauses.

mod beliefs;
mod bench;
mod hand_over;
mod news;
mod offices;
mod plan;
mod real;
mod rules;
mod sessions;
mod simulation;
mod store;
mod world;
