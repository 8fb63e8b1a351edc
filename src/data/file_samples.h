// data/file_samples.h: fingerprints of files, to find machines whose files differ.
#pragma once

#include <string>
#include <vector>

#include "io/file_system.h"

namespace weft {

struct FileSampling {
  int64_t blocks = 32;  // of 4 kB, at even distances over the whole file
  size_t files = 64;    // that are read
};

// A line for each file: its name without folders, its size and a hash of some of its bytes. Of many
// files, and of those behind URIs, most lines have no hash. Equal files have equal lines wherever
// they are.
std::string describe_files(const std::vector<FileInfo>& files, const FileSampling& sampling = {});

// The same with a hash of every byte of every file, read by `num_threads`. RunError where a file
// cannot be read.
std::string describe_whole_files(const std::vector<FileInfo>& files, size_t num_threads);

// Of those bytes of the local files alone: equal for files that were renamed or copied.
uint64_t hash_samples(const std::vector<FileInfo>& files);

// What tells a file of this machine from every other, also from one of the same name, size and
// time: for keys of caches.
std::string identity_of(const FileInfo& file);

}  // namespace weft
