"""The Python half of a kernel: it runs in the kernel's process, behind the wall."""
