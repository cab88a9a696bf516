//! Copies between host and device, and buffers that come from elsewhere than a program.

use crate::abi::{
    BufferCopyToDeviceArgs, BufferCopyToMemoryArgs, BufferFromHostBufferArgs, BufferToHostBufferArgs,
    CreateUninitializedBufferArgs, Error, RetrieveBufferArgs, dense_bytes, slice,
};
use crate::{counters, device_memory, errors, interposer};

/// Replaces `PJRT_Client_BufferFromHostBuffer`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn buffer_from_host_buffer(args: *mut BufferFromHostBufferArgs) -> *mut Error {
    errors::guarded("PJRT_Client_BufferFromHostBuffer", || {
        // SAFETY: valid by the contract of the interface.
        let bytes = unsafe { dense_bytes((*args).element_type, slice((*args).dims, (*args).num_dims)) }.unwrap_or(0);
        if let Err(error) = device_memory::check(bytes) {
            return error;
        }
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        if error.is_null() {
            counters::HOST_TO_DEVICE.add(1);
            counters::HOST_TO_DEVICE_BYTES.add(bytes);
            // SAFETY: the call has just made this buffer.
            unsafe { device_memory::add_measured((*args).buffer, bytes) };
        }
        error
    })
}

/// Replaces `PJRT_Buffer_ToHostBuffer`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn buffer_to_host_buffer(args: *mut BufferToHostBufferArgs) -> *mut Error {
    errors::guarded("PJRT_Buffer_ToHostBuffer", || {
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        // SAFETY: valid by the contract of the interface.
        let (destination, bytes) = unsafe { ((*args).destination, (*args).destination_size) };
        if error.is_null() && !destination.is_null() {
            counters::DEVICE_TO_HOST.add(1);
            counters::DEVICE_TO_HOST_BYTES.add(bytes as u64);
        }
        error
    })
}

/// Replaces `PJRT_Client_CreateUninitializedBuffer`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn create_uninitialized_buffer(args: *mut CreateUninitializedBufferArgs) -> *mut Error {
    errors::guarded("PJRT_Client_CreateUninitializedBuffer", || {
        // SAFETY: valid by the contract of the interface.
        let bytes = unsafe { dense_bytes((*args).element_type, slice((*args).dims, (*args).num_dims)) }.unwrap_or(0);
        if let Err(error) = device_memory::check(bytes) {
            return error;
        }
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        if error.is_null() {
            // SAFETY: the call has just made this buffer.
            unsafe { device_memory::add_measured((*args).buffer, bytes) };
        }
        error
    })
}

/// Replaces `PJRT_Buffer_CopyToDevice`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn copy_to_device(args: *mut BufferCopyToDeviceArgs) -> *mut Error {
    errors::guarded("PJRT_Buffer_CopyToDevice", || {
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        if error.is_null() {
            // SAFETY: the call has just made this buffer.
            unsafe { device_memory::add_measured((*args).copy, 0) };
        }
        error
    })
}

/// Replaces `PJRT_Buffer_CopyToMemory`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn copy_to_memory(args: *mut BufferCopyToMemoryArgs) -> *mut Error {
    errors::guarded("PJRT_Buffer_CopyToMemory", || {
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        if error.is_null() {
            // SAFETY: the call has just made this buffer.
            unsafe { device_memory::add_measured((*args).copy, 0) };
        }
        error
    })
}

/// Replaces `PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer`: the whole buffer counts as one copy from the host.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn retrieve_buffer(args: *mut RetrieveBufferArgs) -> *mut Error {
    errors::guarded("PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer", || {
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        // SAFETY: valid by the contract of the interface; the call has just made this buffer.
        unsafe {
            if error.is_null() && !(*args).buffer.is_null() {
                let bytes = device_memory::size_on_device((*args).buffer).unwrap_or(0);
                counters::HOST_TO_DEVICE.add(1);
                counters::HOST_TO_DEVICE_BYTES.add(bytes);
                device_memory::add((*args).buffer, bytes);
            }
        }
        error
    })
}
