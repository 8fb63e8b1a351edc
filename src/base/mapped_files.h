// base/mapped_files.h: what happens when another process truncates a file that we have mapped.
//
// Reading a page that the file no longer has raises SIGBUS, which kills a process silently. Our
// handler finds the mapping of the address, maps zeros over the rest of it, marks the file as lost
// and lets the reader continue; readers call check_mapped_files() before they trust what they read.
// A SIGBUS at any other address is handled as before.
#pragma once

#include <cstddef>
#include <filesystem>

namespace weft {

// Starts watching [at, at + size); the first call installs the handler. Thread-safe.
void watch_mapping(const void* at, size_t size, const std::filesystem::path& path);
void unwatch_mapping(const void* at);  // before munmap; no-op where it is not watched

// RunError (exit 1) naming a mapped file that was truncated, or whose disk failed, while it was
// read.
void check_mapped_files();
// The same for the file that is mapped at this address.
void check_mapped_file(const void* at);
// For tests, which truncate files on purpose.
void forget_lost_files();

}  // namespace weft
