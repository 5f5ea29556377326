//! Connections, sends and receives of NCCL's InfiniBand transport.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};
use std::ptr;

use ferroce_dynlib::Buffer;
use thiserror::Error;

use crate::library::Library;
use crate::table::{Code, Config, Interface, Merged, Pointer, Properties, Table};

/// Buffers are in host memory.
const HOST_MEMORY: c_int = 1;
/// What the library calls a call that is to be repeated.
const IN_PROGRESS: Code = 7;

/// A function of the library failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{call}: {name} ({code})", name = self.name())]
pub struct CallError {
    /// Name of the function in NCCL's interface.
    pub call: &'static str,
    /// A `ncclResult_t`.
    pub code: i32,
}

impl CallError {
    /// The name that NCCL's header gives to the code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.code {
            1 => "ncclUnhandledCudaError",
            2 => "ncclSystemError",
            3 => "ncclInternalError",
            4 => "ncclInvalidArgument",
            5 => "ncclInvalidUsage",
            6 => "ncclRemoteError",
            IN_PROGRESS => "ncclInProgress",
            _ => "unknown result",
        }
    }
}

fn check(call: &'static str, code: Code) -> Result<(), CallError> {
    match code {
        0 | IN_PROGRESS => Ok(()),
        code => Err(CallError { call, code }),
    }
}

/// What one end must know to connect to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle(pub [u8; Self::BYTES]);

impl Handle {
    /// `NCCL_NET_HANDLE_MAXSIZE`.
    pub const BYTES: usize = 128;
}

/// An end that another one may connect to.
#[derive(Debug)]
pub struct Accepting(Pointer);

/// The sending end of a connection.
#[derive(Debug)]
pub struct Sender(Pointer);

/// The receiving end of a connection.
#[derive(Debug)]
pub struct Receiver(Pointer);

/// A buffer that is registered with a connection, whose end must be closed before the buffer goes.
#[derive(Debug)]
pub struct Registered {
    /// The buffer.
    pub buffer: Buffer,
    handle: Pointer,
}

/// A send or receive that is under way.
#[derive(Debug)]
pub struct Request(Pointer);

/// The transport of a library that is initialised, in one process.
#[derive(Debug)]
pub struct Net {
    loaded: Library,
    context: Pointer,
    /// Where it stays: the library keeps its address.
    config: Box<UnsafeCell<Config>>,
}

extern "C" fn no_profiler(_: *mut Pointer, _: c_int, _: Pointer, _: i64, _: Pointer) -> Code {
    0
}

impl Net {
    /// Initialises the transport, which looks for devices.
    ///
    /// # Errors
    ///
    /// Returns an error if the library cannot be initialised.
    pub fn init(library: Library, communicator: u64) -> Result<Self, CallError> {
        let config = Box::new(UnsafeCell::new(Config::UNDEFINED));
        let mut net = Self {
            loaded: library,
            context: ptr::null_mut(),
            config,
        };
        let (init, log, config) = (net.table().init, library.log, net.config.get());
        // SAFETY: the table is of this interface; the arguments stay valid as long as the process.
        let code = unsafe {
            match library.interface() {
                Interface::V8 | Interface::V9 => (init.v8)(log),
                Interface::V10 => (init.v10)(log, no_profiler),
                Interface::V11 | Interface::V12 => {
                    (init.v11)(&raw mut net.context, communicator, config, log, no_profiler)
                }
            }
        };
        check("init", code)?;
        Ok(net)
    }

    fn table(&self) -> &Table {
        // SAFETY: the symbol of this name is a constant table of functions, and stays loaded.
        unsafe { &*self.loaded.table }
    }

    /// How many devices there are.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn devices(&self) -> Result<i32, CallError> {
        let mut count = 0;
        // SAFETY: a valid place for the result.
        let code = unsafe { (self.table().devices)(&raw mut count) };
        check("devices", code)?;
        Ok(count)
    }

    /// The name of a device.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn name(&self, device: i32) -> Result<String, CallError> {
        let mut properties = Properties {
            name: ptr::null_mut(),
            pci_path: ptr::null_mut(),
            guid: 0,
            rest: [0; 64],
        };
        // SAFETY: more room than the properties of any version take.
        let code = unsafe { (self.table().properties)(device, &raw mut properties) };
        check("getProperties", code)?;
        if properties.name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: a C string of the library.
        let name = unsafe { CStr::from_ptr(properties.name) };
        Ok(name.to_string_lossy().into_owned())
    }

    /// Merges devices into one more, whose number is returned. Releases before 2.24 merge devices by
    /// themselves.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn merge(&self, devices: &[i32]) -> Result<i32, CallError> {
        let mut merged = Merged {
            count: devices.len() as c_int,
            devices: [0; 8],
        };
        for (place, device) in merged.devices.iter_mut().zip(devices) {
            *place = *device;
        }
        if self.loaded.interface() == Interface::V8 {
            return Ok(0);
        }
        let mut number = 0;
        // SAFETY: both places are valid; the interface is one with this function.
        let code = unsafe { (self.table().merge)(&raw mut number, &raw mut merged) };
        check("makeVDevice", code)?;
        Ok(number)
    }

    /// Lets one other end connect.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn listen(&self, device: i32) -> Result<(Accepting, Handle), CallError> {
        // Some versions write more than they send.
        let mut room = [0_u8; 1024];
        let mut end = ptr::null_mut();
        let (listen, handle) = (self.table().listen, room.as_mut_ptr().cast());
        // SAFETY: the function of this interface, and room for a handle.
        let code = unsafe {
            match self.loaded.interface() {
                Interface::V8 | Interface::V9 | Interface::V10 => {
                    (listen.v8)(device, handle, &raw mut end)
                }
                Interface::V11 | Interface::V12 => {
                    (listen.v11)(self.context, device, handle, &raw mut end)
                }
            }
        };
        check("listen", code)?;
        let mut handle = Handle([0; Handle::BYTES]);
        handle.0.copy_from_slice(&room[..Handle::BYTES]);
        Ok((Accepting(end), handle))
    }

    /// Connects to another end; `None` as long as that takes.
    ///
    /// The library keeps the state of the attempt in the handle, so the same one must be passed again.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn connect(&self, device: i32, to: &mut Handle) -> Result<Option<Sender>, CallError> {
        let (mut end, mut of_device) = (ptr::null_mut(), ptr::null_mut());
        let (connect, handle) = (self.table().connect, to.0.as_mut_ptr().cast());
        let (end_place, device_place) = (&raw mut end, &raw mut of_device);
        // SAFETY: the function of this interface, and a handle of its full size.
        let code = unsafe {
            match self.loaded.interface() {
                Interface::V8 | Interface::V9 => {
                    (connect.v8)(device, handle, end_place, device_place)
                }
                Interface::V10 => {
                    let config = self.config.get();
                    (connect.v10)(device, config, handle, end_place, device_place)
                }
                Interface::V11 | Interface::V12 => {
                    (connect.v11)(self.context, device, handle, end_place, device_place)
                }
            }
        };
        check("connect", code)?;
        Ok((!end.is_null()).then_some(Sender(end)))
    }

    /// Accepts the other end; `None` as long as it has not connected.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn accept(&self, at: &Accepting) -> Result<Option<Receiver>, CallError> {
        let (mut end, mut of_device) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: an end that listens, and valid places for the results.
        let code = unsafe { (self.table().accept)(at.0, &raw mut end, &raw mut of_device) };
        check("accept", code)?;
        Ok((!end.is_null()).then_some(Receiver(end)))
    }

    /// Registers a buffer to send from.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn register_with_sender(
        &self,
        sender: &Sender,
        buffer: Buffer,
    ) -> Result<Registered, CallError> {
        self.register(sender.0, buffer)
    }

    /// Registers a buffer to receive into.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn register_with_receiver(
        &self,
        receiver: &Receiver,
        buffer: Buffer,
    ) -> Result<Registered, CallError> {
        self.register(receiver.0, buffer)
    }

    fn register(&self, end: Pointer, buffer: Buffer) -> Result<Registered, CallError> {
        let mut handle = ptr::null_mut();
        let (address, bytes) = (buffer.address().cast(), buffer.bytes());
        // SAFETY: memory of this length, which is kept with its registration.
        let code =
            unsafe { (self.table().register)(end, address, bytes, HOST_MEMORY, &raw mut handle) };
        check("regMr", code)?;
        Ok(Registered { buffer, handle })
    }

    /// Sends a buffer with a tag; `None` if the other end has not posted a receive for it yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn send(
        &self,
        sender: &Sender,
        from: &Registered,
        tag: i32,
    ) -> Result<Option<Request>, CallError> {
        let mut request = ptr::null_mut();
        let (send, end, place) = (self.table().send, sender.0, &raw mut request);
        let (data, bytes, handle) = (
            from.buffer.address().cast(),
            from.buffer.bytes(),
            from.handle,
        );
        // SAFETY: the function of this interface; the buffer is registered with this end and stays.
        let code = unsafe {
            match self.loaded.interface() {
                Interface::V8 => (send.v8)(end, data, bytes as c_int, tag, handle, place),
                Interface::V9 => (send.v9)(end, data, bytes, tag, handle, place),
                _ => (send.v10)(end, data, bytes, tag, handle, ptr::null_mut(), place),
            }
        };
        check("isend", code)?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Receives into several buffers at once, each for a tag; `None` if there is no room for a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn receive(
        &self,
        receiver: &Receiver,
        into: &[(&Registered, i32)],
    ) -> Result<Option<Request>, CallError> {
        let mut request = ptr::null_mut();
        let (receive, end, place) = (self.table().receive, receiver.0, &raw mut request);
        let count = into.len() as c_int;
        let mut data: Vec<Pointer> = Vec::new();
        let (mut sizes, mut small) = (Vec::<usize>::new(), Vec::<c_int>::new());
        let (mut tags, mut handles) = (Vec::<c_int>::new(), Vec::<Pointer>::new());
        for (registered, tag) in into {
            data.push(registered.buffer.address().cast());
            sizes.push(registered.buffer.bytes());
            small.push(registered.buffer.bytes() as c_int);
            tags.push(*tag);
            handles.push(registered.handle);
        }
        let mut profilers = vec![ptr::null_mut(); into.len()];
        let (data, tags) = (data.as_mut_ptr(), tags.as_mut_ptr());
        let (handles, sizes) = (handles.as_mut_ptr(), sizes.as_mut_ptr());
        // SAFETY: the function of this interface; arrays of `count` values each; the buffers are
        // registered with this end and stay.
        let code = unsafe {
            match self.loaded.interface() {
                Interface::V8 => {
                    let sizes = small.as_mut_ptr();
                    (receive.v8)(end, count, data, sizes, tags, handles, place)
                }
                Interface::V9 => (receive.v9)(end, count, data, sizes, tags, handles, place),
                _ => {
                    let profilers = profilers.as_mut_ptr();
                    (receive.v10)(end, count, data, sizes, tags, handles, profilers, place)
                }
            }
        };
        check("irecv", code)?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Drives a request. Once it is complete, its sizes: of a receive, one for each buffer. It must not
    /// be tested again then.
    ///
    /// # Errors
    ///
    /// Returns an error if the request has failed.
    pub fn test(&self, request: &Request) -> Result<Option<[i32; 8]>, CallError> {
        let (mut done, mut sizes) = (0, [0; 8]);
        // SAFETY: a request that is under way, and room for as many sizes as a group can have.
        let code = unsafe { (self.table().test)(request.0, &raw mut done, sizes.as_mut_ptr()) };
        check("test", code)?;
        Ok((done != 0).then_some(sizes))
    }

    /// Removes the registration of a buffer to send from, and returns the buffer.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn deregister_from_sender(
        &self,
        sender: &Sender,
        registered: Registered,
    ) -> Result<Buffer, CallError> {
        self.deregister(sender.0, registered)
    }

    /// Removes the registration of a buffer to receive into, and returns the buffer.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn deregister_from_receiver(
        &self,
        receiver: &Receiver,
        registered: Registered,
    ) -> Result<Buffer, CallError> {
        self.deregister(receiver.0, registered)
    }

    fn deregister(&self, end: Pointer, registered: Registered) -> Result<Buffer, CallError> {
        // SAFETY: a registration with this end, which is not used again.
        let code = unsafe { (self.table().deregister)(end, registered.handle) };
        check("deregMr", code)?;
        Ok(registered.buffer)
    }

    /// Closes a sending end.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn close_sender(&self, sender: Sender) -> Result<(), CallError> {
        // SAFETY: an end that is not used again.
        check("closeSend", unsafe {
            (self.table().close_sender)(sender.0)
        })
    }

    /// Closes a receiving end.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn close_receiver(&self, receiver: Receiver) -> Result<(), CallError> {
        // SAFETY: an end that is not used again.
        let code = unsafe { (self.table().close_receiver)(receiver.0) };
        check("closeRecv", code)
    }

    /// Stops listening.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn close_listener(&self, at: Accepting) -> Result<(), CallError> {
        // SAFETY: an end that is not used again.
        check("closeListen", unsafe {
            (self.table().close_listener)(at.0)
        })
    }

    /// Ends the use of the transport, where the interface has a function for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the library's function fails.
    pub fn finalize(self) -> Result<(), CallError> {
        if self.loaded.interface() < Interface::V11 {
            return Ok(());
        }
        // SAFETY: the context of `init`, which is not used again.
        check("finalize", unsafe { (self.table().finalize)(self.context) })
    }
}
