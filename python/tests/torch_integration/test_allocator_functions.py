# SPDX-License-Identifier: Apache-2.0
"""The C functions that PyTorch calls: which tenant is charged and credited, and that they do not take Python's lock."""

import ctypes
import threading

import gpushare
import gpushare.torch
import pytest
from gpushare import _core

MIB = 1 << 20


@pytest.fixture
def functions(gpu):
    _core._torch_attach(gpu)
    library = ctypes.CDLL(gpushare.torch.allocator_path())
    alloc, free = (getattr(library, name) for name in gpushare.torch.ALLOCATOR_FUNCTIONS)
    alloc.argtypes, alloc.restype = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    free.argtypes, free.restype = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p], None
    return alloc, free


def used(device):
    return device.stats().memory_used


def test_the_stream_decides_then_the_scope_then_the_default(gpu, functions):
    alloc, free = functions
    a, b = gpu.virtual_device("a", memory="64MiB"), gpu.virtual_device("b", memory="64MiB")
    stream = a.stream()
    with gpushare.tenant_scope(b.tenant):
        first, second = alloc(MIB, 0, stream.ptr), alloc(2 * MIB, 0, 0x1234560)
    assert (used(a), used(b)) == (MIB, 2 * MIB)
    third = alloc(4 * MIB, 0, None)
    default = gpu.resolve()
    assert default.tenant_name == "default" and used(default) == 4 * MIB
    for pointer in (first, second, third):
        free(pointer, 0, 0, None)
    assert (used(a), used(b), used(default)) == (0, 0, 0)


def test_whoever_frees_the_one_who_allocated_is_credited(gpu, functions):
    alloc, free = functions
    a, b = gpu.virtual_device("a", memory="64MiB"), gpu.virtual_device("b", memory="64MiB")
    mine, stream = a.stream(), b.stream()
    pointer = alloc(MIB, 0, mine.ptr)
    assert (used(a), used(b)) == (MIB, 0)

    def elsewhere():
        with gpushare.tenant_scope(b.tenant):
            free(pointer, MIB, 0, stream.ptr)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert (used(a), used(b)) == (0, 0)
    free(pointer, MIB, 0, None)  # a second free has no effect


def test_over_the_quota_is_null_and_says_why_once(gpu, functions):
    alloc, free = functions
    a = gpu.virtual_device("a", memory="64MiB")
    stream = a.stream()
    assert alloc(65 * MIB, 0, stream.ptr) is None
    assert "65 MiB asked, 64 MiB left of its memory quota of 64 MiB" in _core._torch_refusal("a")
    assert _core._torch_refusal("a") is None
    pointer = alloc(64 * MIB, 0, stream.ptr)
    assert pointer and alloc(1, 0, stream.ptr) is None
    free(pointer, 0, 0, None)
    assert used(a) == 0


@pytest.mark.parametrize("size, device", [(0, 0), (-1, 0), (1, 1), (1, -1)])
def test_nonsense_is_null(functions, size, device):
    alloc, free = functions
    assert alloc(size, device, None) is None
    free(None, 0, 0, None)
    free(0x1234, 0, 0, None)  # not an allocation of ours


def test_memory_outlives_all_handles(gpu, functions):
    alloc, free = functions
    a = gpu.virtual_device("a", memory="64MiB")
    stream = a.stream()
    pointer = alloc(MIB, 0, stream.ptr)
    simulation = gpushare.Simulation(gpu.runtime)
    assert simulation.memory_used() == MIB
    gpu.runtime.close_all()
    assert alloc(MIB, 0, None) is None  # no GPU is attached any more
    free(pointer, MIB, 0, None)
    assert simulation.memory_used() == 0


def test_freeing_takes_no_lock_of_python(gpu, functions):
    """A thread that is not Python's frees, while this thread holds the interpreter's lock and waits for it."""
    alloc, _ = functions
    a = gpu.virtual_device("a", memory="64MiB")
    stream = a.stream()
    pointer = alloc(MIB, 0, stream.ptr)
    assert used(a) == MIB
    libc = ctypes.PyDLL(None)  # keeps the lock during calls
    free = ctypes.cast(getattr(ctypes.CDLL(gpushare.torch.allocator_path()), "gpushare_torch_free"), ctypes.c_void_p)
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, free, ctypes.c_void_p(pointer)) == 0
    assert libc.pthread_join(thread, None) == 0
    assert used(a) == 0


def test_a_forked_child_has_none_of_it(run_python):
    done = run_python("""
        import ctypes, os, gpushare, gpushare.torch
        from gpushare import _core
        gpu = gpushare.Gpu(gpushare.Runtime("sim"))
        device = gpu.virtual_device("a", memory="64MiB")
        _core._torch_attach(gpu)
        library = ctypes.CDLL(gpushare.torch.allocator_path())
        alloc, free = library.gpushare_torch_alloc, library.gpushare_torch_free
        alloc.argtypes, alloc.restype = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        free.argtypes, free.restype = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p], None
        stream = device.stream()
        pointer = alloc(1 << 20, 0, stream.ptr)
        child = os.fork()
        if child == 0:
            free(pointer, 0, 0, None)
            refused = alloc(1 << 20, 0, None) is None
            try:
                gpushare.torch.tenant(device)
            except gpushare.ForkedError:
                os._exit(0 if refused else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert device.stats().memory_used == 1 << 20
        free(pointer, 0, 0, None)
        assert device.stats().memory_used == 0
        print("done")
    """)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("holds", [False, True], ids=["without the lock", "with Python's lock"])
def test_borrowers_are_asked_on_another_thread(gpu, functions, holds):
    """The caller holds the lock of PyTorch's cache, for which the thread with the interpreter's lock may wait."""
    owner = gpu.virtual_device("owner", memory="4GiB")
    borrower = gpu.virtual_device("borrower", memory="1GiB", memory_cap="100%")
    held, asked, told = [borrower.alloc(borrower.memory[0])], [], threading.Event()

    def give(nbytes):
        asked.append(threading.get_ident())
        if held:
            held.pop().close()
        told.set()
        return True

    borrower.on_reclaim(give)
    library = (ctypes.PyDLL if holds else ctypes.CDLL)(gpushare.torch.allocator_path())
    alloc = getattr(library, gpushare.torch.ALLOCATOR_FUNCTIONS[0])
    alloc.argtypes, alloc.restype = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    with gpushare.tenant_scope(owner.tenant):
        pointer = alloc(1 << 30, 0, None)
        if holds:  # no other thread can run meanwhile: the function is called, and not waited for
            assert pointer is None
            assert told.wait(20)
            pointer = alloc(1 << 30, 0, None)
        assert pointer
    assert asked and threading.get_ident() not in asked
    functions[1](pointer, 0, 0, None)
