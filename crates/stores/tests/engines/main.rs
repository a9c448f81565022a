//! Engines on real servers: the contract of registers, that of stores over the lease, and what a killed server must not take back.
//!
//! One file for each engine, compiled with its feature. Servers come from `crates/servers`.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[cfg(feature = "engine")]
mod clients;
#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "engine")]
mod cuts;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "engine")]
mod elections;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "engine")]
mod judge;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "object")]
mod object;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redlock")]
mod redlock;
#[cfg(feature = "engine")]
mod relay;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;
#[cfg(feature = "zookeeper")]
mod zookeeper_sessions;
