//! Workers, endpoints, messages and writes.
#![allow(unsafe_code)]

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI8, Ordering};

use ferroce_dynlib::Buffer;

use crate::abi::{
    API, ContextParameters, EndpointParameters, IN_PROGRESS, LAST_STATUS, MemoryParameters, OK,
    Pointer, RequestParameters, Status, WorkerParameters,
};
use crate::library::{CallError, Library};

/// What an endpoint does when a lane of it fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorMode {
    /// Errors are not handled.
    None = 0,
    /// The endpoint fails, and so do its requests.
    Peer = 1,
    /// The endpoint goes on with the lanes that are left. From UCX 1.22 on.
    Failover = 2,
}

/// A send, receive, write or flush that is under way.
#[derive(Debug)]
pub struct Request {
    call: &'static str,
    /// Null once it is complete.
    pointer: Pointer,
}

/// A connection to another worker.
#[derive(Debug)]
pub struct Endpoint {
    pointer: Pointer,
    /// Why it has failed. It is never freed, since the library keeps its address.
    failure: &'static AtomicI8,
}

/// Memory that others may write into.
#[derive(Debug)]
pub struct Region {
    /// The memory.
    pub buffer: Buffer,
    handle: Pointer,
}

/// Memory of another worker's process.
#[derive(Debug)]
pub struct RemoteRegion {
    address: u64,
    key: Pointer,
}

/// A context with one worker, for one thread.
#[derive(Debug)]
pub struct Worker {
    library: Library,
    context: Pointer,
    worker: Pointer,
}

/// Any 64 bits of a tag must match.
const WHOLE_TAG: u64 = u64::MAX;

extern "C" fn on_error(argument: Pointer, _: Pointer, status: Status) {
    // SAFETY: the argument of `connect`, which is never freed.
    let failure = unsafe { &*argument.cast_const().cast::<AtomicI8>() };
    failure.store(status, Ordering::Relaxed);
}

impl Worker {
    /// Makes a worker for this number of endpoints, with the settings of the environment.
    ///
    /// # Errors
    ///
    /// Returns an error if a function of the library fails: for instance, without a device.
    pub fn new(library: Library, endpoints: usize) -> Result<Self, CallError> {
        let functions = &library.functions;
        let mut config = ptr::null_mut();
        // SAFETY: no prefix, no file, and a place for the result.
        let status = unsafe { (functions.read_config)(ptr::null(), ptr::null(), &raw mut config) };
        library.check("ucp_config_read", status)?;
        let parameters = ContextParameters {
            mask: ContextParameters::FEATURES | ContextParameters::ENDPOINTS,
            features: ContextParameters::TAG_AND_RMA,
            unused: [0; 5],
            endpoints,
            rest: [0; 24],
        };
        let (mut context, mut worker) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: parameters of this interface, a configuration that was read, a place for the result.
        // The configuration is not used again.
        let status = unsafe {
            let context = &raw mut context;
            let status = (functions.init)(API.0, API.1, &raw const parameters, config, context);
            (functions.release_config)(config);
            status
        };
        library.check("ucp_init", status)?;
        let parameters = WorkerParameters {
            mask: 0,
            rest: [0; 40],
        };
        // SAFETY: a context, parameters of this interface, a place for the result.
        let status =
            unsafe { (functions.create_worker)(context, &raw const parameters, &raw mut worker) };
        library.check("ucp_worker_create", status)?;
        Ok(Self {
            library,
            context,
            worker,
        })
    }

    /// What others need to connect to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn address(&self) -> Result<Vec<u8>, CallError> {
        let (mut address, mut length) = (ptr::null_mut(), 0);
        let functions = &self.library.functions;
        // SAFETY: a worker, and places for the results.
        let status = unsafe { (functions.address)(self.worker, &raw mut address, &raw mut length) };
        self.library.check("ucp_worker_get_address", status)?;
        // SAFETY: the library's memory of this length, which is given back afterwards.
        Ok(unsafe {
            let bytes = std::slice::from_raw_parts(address, length).to_vec();
            (functions.release_address)(self.worker, address);
            bytes
        })
    }

    /// Drives everything; whether anything moved.
    pub fn progress(&self) -> bool {
        // SAFETY: a worker, which only this thread uses.
        unsafe { (self.library.functions.progress)(self.worker) != 0 }
    }

    /// Connects to the worker with this address.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails: for instance, because a release has no such
    /// error mode.
    pub fn connect(&self, address: &[u8], errors: ErrorMode) -> Result<Endpoint, CallError> {
        let failure: &'static AtomicI8 = Box::leak(Box::new(AtomicI8::new(OK)));
        let parameters = EndpointParameters {
            mask: EndpointParameters::ALL,
            address: address.as_ptr(),
            error_mode: errors as i32,
            on_error: Some(on_error),
            argument: ptr::from_ref(failure).cast_mut().cast(),
            rest: [0; 24],
        };
        let mut pointer = ptr::null_mut();
        let create = self.library.functions.create_endpoint;
        // SAFETY: a worker, parameters of this interface with an address of a worker, a place for the
        // result.
        let status = unsafe { create(self.worker, &raw const parameters, &raw mut pointer) };
        self.library.check("ucp_ep_create", status)?;
        Ok(Endpoint { pointer, failure })
    }

    /// Why an endpoint has failed, if it has.
    ///
    /// # Errors
    ///
    /// Returns the reason.
    pub fn check(&self, endpoint: &Endpoint) -> Result<(), CallError> {
        match endpoint.failure.load(Ordering::Relaxed) {
            OK => Ok(()),
            status => Err(self.library.error("ucp_err_handler", status)),
        }
    }

    /// Sends a whole buffer. Until the request is complete, the buffer must stay as it is.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails at once.
    pub fn send(&self, to: &Endpoint, from: &Buffer, tag: u64) -> Result<Request, CallError> {
        let send = self.library.functions.send;
        let (data, bytes) = (from.address().cast_const(), from.bytes());
        // SAFETY: an endpoint, and memory of this length, which the caller keeps.
        let pointer = unsafe { send(to.pointer, data, bytes, tag, &RequestParameters::PLAIN) };
        self.request("ucp_tag_send_nbx", pointer)
    }

    /// Receives into a whole buffer. Until the request is complete, the buffer must stay.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails at once.
    pub fn receive(&self, into: &Buffer, tag: u64) -> Result<Request, CallError> {
        let receive = self.library.functions.receive;
        let (data, bytes) = (into.address(), into.bytes());
        let plain = &RequestParameters::PLAIN;
        // SAFETY: a worker, and memory of this length, which the caller keeps.
        let pointer = unsafe { receive(self.worker, data, bytes, tag, WHOLE_TAG, plain) };
        self.request("ucp_tag_recv_nbx", pointer)
    }

    /// Lets others write into a buffer.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn share(&self, buffer: Buffer) -> Result<Region, CallError> {
        let parameters = MemoryParameters {
            mask: MemoryParameters::ADDRESS_AND_LENGTH,
            address: buffer.address().cast(),
            length: buffer.bytes(),
            rest: [0; 16],
        };
        let mut handle = ptr::null_mut();
        let map = self.library.functions.map;
        // SAFETY: a context, and memory that is kept with its registration.
        let status = unsafe { map(self.context, &raw const parameters, &raw mut handle) };
        self.library.check("ucp_mem_map", status)?;
        Ok(Region { buffer, handle })
    }

    /// What others need to write into a region.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn key(&self, region: &Region) -> Result<Vec<u8>, CallError> {
        let (mut packed, mut length) = (ptr::null_mut(), 0);
        let functions = &self.library.functions;
        let pack = functions.pack_key;
        let places = (&raw mut packed, &raw mut length);
        // SAFETY: a registration with this context, and places for the results.
        let status = unsafe { pack(self.context, region.handle, places.0, places.1) };
        self.library.check("ucp_rkey_pack", status)?;
        let mut bytes = (region.buffer.address() as u64).to_le_bytes().to_vec();
        // SAFETY: the library's memory of this length, which is given back afterwards.
        unsafe {
            bytes.extend_from_slice(std::slice::from_raw_parts(packed, length));
            (functions.release_key)(packed);
        }
        Ok(bytes)
    }

    /// The region at the other end of an endpoint of which this is the key.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    ///
    /// # Panics
    ///
    /// Panics if `key` is too short to be one.
    pub fn remote(&self, endpoint: &Endpoint, key: &[u8]) -> Result<RemoteRegion, CallError> {
        let (address, packed) = key
            .split_first_chunk()
            .expect("a key begins with an address");
        let mut unpacked = ptr::null_mut();
        let unpack = self.library.functions.unpack_key;
        // SAFETY: an endpoint, a key that the other end packed, a place for the result.
        let status = unsafe { unpack(endpoint.pointer, packed.as_ptr(), &raw mut unpacked) };
        self.library.check("ucp_ep_rkey_unpack", status)?;
        Ok(RemoteRegion {
            address: u64::from_le_bytes(*address),
            key: unpacked,
        })
    }

    /// Writes a whole buffer into a region, from a byte of it on. Until the request is complete, the
    /// buffer must stay as it is.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails at once.
    pub fn put(
        &self,
        to: &Endpoint,
        from: &Buffer,
        region: &RemoteRegion,
        at: usize,
    ) -> Result<Request, CallError> {
        let put = self.library.functions.put;
        let (data, bytes) = (from.address().cast_const(), from.bytes());
        let (place, plain) = (region.address + at as u64, &RequestParameters::PLAIN);
        // SAFETY: an endpoint with the key of its other end, and memory of this length, which the
        // caller keeps.
        let pointer = unsafe { put(to.pointer, data, bytes, place, region.key, plain) };
        self.request("ucp_put_nbx", pointer)
    }

    /// Completes once all that was written before is at the other end.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails at once.
    pub fn flush(&self, endpoint: &Endpoint) -> Result<Request, CallError> {
        // SAFETY: an endpoint.
        let pointer =
            unsafe { (self.library.functions.flush)(endpoint.pointer, &RequestParameters::PLAIN) };
        self.request("ucp_ep_flush_nbx", pointer)
    }

    /// Closes an endpoint at once, whatever is under way.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails at once.
    pub fn close(&self, endpoint: Endpoint) -> Result<Request, CallError> {
        // SAFETY: an endpoint that is not used again.
        let pointer = unsafe {
            (self.library.functions.close_endpoint)(endpoint.pointer, &RequestParameters::FORCE)
        };
        self.request("ucp_ep_close_nbx", pointer)
    }

    fn request(&self, call: &'static str, pointer: Pointer) -> Result<Request, CallError> {
        let number = pointer as isize;
        if (LAST_STATUS..0).contains(&number) {
            // Between -100 and -1.
            return Err(self.library.error(call, number as Status));
        }
        Ok(Request { call, pointer })
    }

    /// Whether a request is complete.
    ///
    /// # Errors
    ///
    /// Returns an error if the request has failed.
    pub fn is_complete(&self, request: &mut Request) -> Result<bool, CallError> {
        if request.pointer.is_null() {
            return Ok(true);
        }
        let functions = &self.library.functions;
        // SAFETY: a request that was not given back yet.
        let status = unsafe { (functions.status)(request.pointer) };
        if status == IN_PROGRESS {
            return Ok(false);
        }
        let pointer = mem::replace(&mut request.pointer, ptr::null_mut());
        // SAFETY: the same; its place is null from now on.
        unsafe { (functions.free)(pointer) };
        self.library.check(request.call, status)?;
        Ok(true)
    }

    /// Ends the worker and its context. All of its endpoints must be closed.
    pub fn destroy(self) {
        let functions = &self.library.functions;
        // SAFETY: both are not used again.
        unsafe {
            (functions.destroy_worker)(self.worker);
            (functions.cleanup)(self.context);
        }
    }
}
