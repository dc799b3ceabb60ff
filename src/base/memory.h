// How the process deals with freed memory.
#pragma once

namespace trefoil {

// From now on blocks of a megabyte and more go back to the system when they are freed, so that what is resident is what
// is in use and a memory budget means something. Each such block then costs the system call and the zeroing of its
// pages. Does nothing where the C library has no such setting.
void return_freed_memory();

}  // namespace trefoil
