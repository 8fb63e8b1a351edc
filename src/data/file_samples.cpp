// data/file_samples.cpp: blocks at even distances, of a bounded number of files.
#include "data/file_samples.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/hash.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 4096, kBlocks = 32;
constexpr size_t kFiles = 64;  // that are read

// What cannot be read is left out: whoever needs it will say so.
uint64_t hash_of_blocks(const FileInfo& info) {
  std::ifstream file(info.path, std::ios::binary);
  std::string block(kBlock, '\0');
  uint64_t hash = 0;
  const int64_t last = std::max<int64_t>(0, info.size - kBlock);
  for (int64_t i = 0; i < kBlocks && file; ++i) {
    file.seekg(last * i / (kBlocks - 1));
    file.read(block.data(), kBlock);
    hash = hash_bytes(block.data(), static_cast<size_t>(file.gcount()), hash);
    file.clear(file.rdstate() & ~(std::ios::eofbit | std::ios::failbit));
    if (last == 0) break;
  }
  return hash;
}

}  // namespace

std::string describe_files(const std::vector<FileInfo>& files) {
  std::string text;
  const size_t stride = (files.size() + kFiles - 1) / kFiles;
  for (size_t i = 0; i < files.size(); ++i) {
    const FileInfo& info = files[i];
    text += std::filesystem::path(info.path).filename().string() + ", " +
            std::to_string(info.size) + " bytes";
    if (i % stride == 0 && !is_uri(info.path)) text += ", " + hash_hex(hash_of_blocks(info));
    text += "\n";
  }
  return text;
}

uint64_t hash_samples(const std::vector<FileInfo>& files) {
  uint64_t hash = 0;
  const size_t stride = (files.size() + kFiles - 1) / kFiles;
  for (size_t i = 0; i < files.size(); i += stride) {
    const uint64_t of_file = is_uri(files[i].path) ? 0 : hash_of_blocks(files[i]);
    hash = hash_bytes(&of_file, sizeof of_file, hash);
  }
  return hash;
}

std::string identity_of(const FileInfo& file) {
  std::error_code none;
  const std::filesystem::path whole = std::filesystem::absolute(file.path, none);
  return fmt::format("{} {} {} {} {}", is_uri(file.path) ? file.path : whole.string(), file.size,
                     file.time_ns, file.inode, file.status_time_ns);
}

}  // namespace weft
