// base/mapped_files.h: what happens when a file that we have mapped is cut short by someone else.
//
// Reading a page that the file no longer has raises SIGBUS, which ends a process without a word.
// Here its handler finds the mapping of the address, puts zeros in the place of its rest, notes
// that the file is lost and lets the reader go on; who reads calls check_mapped_files() before it
// believes what it read. The signal of any other address does what it would have done.
#pragma once

#include <cstddef>
#include <filesystem>

namespace weft {

// From here on [at, at + size) is watched; the handler is set by the first call. May be called from
// several threads.
void watch_mapping(const void* at, size_t size, const std::filesystem::path& path);
void unwatch_mapping(const void* at);  // before munmap; nothing where it is not watched

// RunError (exit 1) naming a mapped file that became shorter, or whose disk failed, while it was
// read.
void check_mapped_files();
// The same where the file that is mapped at this address is such a one.
void check_mapped_file(const void* at);
// For tests, which lose files on purpose.
void forget_lost_files();

}  // namespace weft
