// data/file_samples.cpp: hashes evenly spaced blocks of a bounded number of files, or every byte.
#include "data/file_samples.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/hash.h"
#include "base/new_threads.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kPiece = 16 << 20;  // bytes that a thread hashes at a time

// What cannot be read is left out: whoever needs it will say so.
uint64_t hash_of_blocks(const FileInfo& info, int64_t num_blocks) {
  std::ifstream file(info.path, std::ios::binary);
  std::string block(kBlock, '\0');
  uint64_t hash = 0;
  const int64_t last = std::max<int64_t>(0, info.size - kBlock);
  for (int64_t i = 0; i < num_blocks && file; ++i) {
    file.seekg(last * i / (num_blocks - 1));
    file.read(block.data(), kBlock);
    hash = hash_bytes(block.data(), static_cast<size_t>(file.gcount()), hash);
    file.clear(file.rdstate() & ~(std::ios::eofbit | std::ios::failbit));
    if (last == 0) break;
  }
  return hash;
}

// Every how many-th file is read. Without overflow where `files` is the largest number.
size_t stride_of(size_t num_files, const FileSampling& sampling) {
  return num_files == 0 ? 1 : (num_files - 1) / sampling.files + 1;
}

std::string name_and_size(const FileInfo& info) {
  return fmt::format("{}, {} bytes", std::filesystem::path(info.path).filename().string(),
                     info.size);
}

struct Piece {
  const FileInfo* file;
  int64_t begin, end;
  uint64_t hash = 0;
};

void hash_piece(Piece& piece) {
  std::ifstream file(piece.file->path, std::ios::binary);
  std::vector<char> bytes(static_cast<size_t>(piece.end - piece.begin));
  file.seekg(piece.begin);
  file.read(bytes.data(), piece.end - piece.begin);
  if (!file && piece.end > piece.begin)
    throw RunError(
        fmt::format("cannot read {}: bytes {} to {}", piece.file->path, piece.begin, piece.end));
  piece.hash = hash_bytes(bytes.data(), bytes.size());
}

}  // namespace

std::string describe_files(const std::vector<FileInfo>& files, const FileSampling& sampling) {
  std::string text;
  const size_t stride = stride_of(files.size(), sampling);
  for (size_t i = 0; i < files.size(); ++i) {
    text += name_and_size(files[i]);
    if (i % stride == 0 && !is_uri(files[i].path))
      text += ", " + hash_hex(hash_of_blocks(files[i], sampling.blocks));
    text += "\n";
  }
  return text;
}

std::string describe_whole_files(const std::vector<FileInfo>& files, size_t num_threads) {
  std::vector<Piece> pieces;
  for (const FileInfo& file : files) {
    for (int64_t begin = 0; begin < std::max<int64_t>(file.size, 1); begin += kPiece)
      pieces.push_back({&file, begin, std::min(file.size, begin + kPiece)});
  }
  run_on_new_threads(num_threads, pieces.size(), [&](size_t i) { hash_piece(pieces[i]); });
  std::string text;
  auto piece = pieces.begin();
  for (const FileInfo& file : files) {
    uint64_t hash = 0;
    for (; piece != pieces.end() && piece->file == &file; ++piece)
      hash = hash_bytes(&piece->hash, sizeof piece->hash, hash);
    text += fmt::format("{}, {}\n", name_and_size(file), hash_hex(hash));
  }
  return text;
}

uint64_t hash_samples(const std::vector<FileInfo>& files) {
  uint64_t hash = 0;
  const FileSampling sampling;
  const size_t stride = stride_of(files.size(), sampling);
  for (size_t i = 0; i < files.size(); i += stride) {
    const uint64_t of_file = is_uri(files[i].path) ? 0 : hash_of_blocks(files[i], sampling.blocks);
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
