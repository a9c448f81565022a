//! Tests of what is read from files, without any server.
