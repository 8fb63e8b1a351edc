// data/file_samples.h: fingerprints of files, to find machines whose files differ.
#pragma once

#include <string>
#include <vector>

#include "io/file_system.h"

namespace weft {

struct FileSampling {
  int64_t blocks = 32;  // of 4 kB each, evenly spaced over the whole file
  size_t files = 64;    // the most files that are sampled
};

// A line for each file: its name without folders, its size and a hash of some of its bytes. Of many
// files, and of those behind URIs, most lines have no hash. Equal files have equal lines wherever
// they are.
std::string describe_files(const std::vector<FileInfo>& files, const FileSampling& sampling = {});

// Lines like those of describe_files(), but each hash covers every byte of its file. `num_threads`
// threads compute the hashes. RunError where a file cannot be read.
std::string describe_whole_files(const std::vector<FileInfo>& files, size_t num_threads);

// Hash of the sampled bytes of local files only: equal for files that were renamed or copied.
uint64_t hash_samples(const std::vector<FileInfo>& files);

// Identifies a file of this machine, also among files of the same name, size and time. Used in
// cache keys.
std::string identity_of(const FileInfo& file);

}  // namespace weft
