//! How messages become bytes and back.
//!
//! It differs from the codec that comes with tonic in two things. A message that cannot be read is
//! the caller's mistake and a definite no (`BAD_REQUEST`), not `INTERNAL`, which would mean that
//! something may have happened. And little is gathered before it is sent: an answer to a heartbeat
//! must not wait behind a batch.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::problem::{Code, Problem};

/// Bytes by which a buffer grows, and bytes that are gathered before they are sent.
const BUFFER_BYTES: (usize, usize) = (2 << 10, 2 << 10);

/// See the module.
#[derive(Clone, Debug)]
pub struct PlainCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for PlainCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Writes messages.
#[derive(Clone, Debug)]
pub struct Writer<T>(PhantomData<T>);

/// Reads messages.
#[derive(Clone, Debug)]
pub struct Reader<U>(PhantomData<U>);

impl<T, U> Codec for PlainCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Writer<T>;
    type Decoder = Reader<U>;

    fn encoder(&mut self) -> Writer<T> {
        Writer(PhantomData)
    }

    fn decoder(&mut self) -> Reader<U> {
        Reader(PhantomData)
    }
}

impl<T: Message> Encoder for Writer<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(to).map_err(|error| {
            Problem::new(Code::Internal, format!("the answer cannot be written: {error}")).into()
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES.0, BUFFER_BYTES.1)
    }
}

impl<U: Message + Default> Decoder for Reader<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(from).map(Some).map_err(|error| {
            Problem::new(Code::BadRequest, format!("the message cannot be read: {error}")).into()
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES.0, BUFFER_BYTES.1)
    }
}
