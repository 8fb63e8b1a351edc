// checkpoint/index.h: index.json: which file holds which part of which logical tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/region.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

struct StoredSlice {
  std::string file;
  size_t begin = 0, end = 0;  // bytes of the file
  Region region;
  uint64_t checksum = 0;  // hash_bytes of those bytes, or of `blocks` where it has any
  // Of every kCheckedBlock bytes, the last block shorter: a part can be checked without the rest.
  // Empty where the slice is not larger than one block, or an older weft wrote it.
  std::vector<uint64_t> blocks = {};
};
// 0.007 % of a state are then checksums, and a range that is read has at most 512 KiB at its ends
// that are not needed (docs/design/0014-reading.md).
inline constexpr size_t kCheckedBlock = size_t{256} << 10;
struct StoredTensor {
  Shape shape;
  Dtype dtype = Dtype::kF32;
  std::vector<StoredSlice> slices;
};
// The bytes of a file before its first slice: length and header, for programs that read the file
// without the index.
struct StoredHeader {
  size_t bytes = 0;
  uint64_t checksum = 0;
};
using StoredHeaders = std::map<std::string, StoredHeader>;  // by file; empty for an older weft's
using StoredTensors = std::map<std::string, StoredTensor>;  // logical name to tensor
// What one rank contributes to the index.
struct IndexPart {
  StoredTensors tensors;
  StoredHeaders headers;
};

Json index_to_json(const StoredTensors& tensors, const StoredHeaders& headers, int num_ranks);
// UserError where the index is not of this version's format.
void check_index_format(const Json& index, std::string_view what);
// Every number is checked; UserError names `what`, the tensor and the error.
StoredTensors index_from_json(const Json& index, std::string_view what);
StoredHeaders headers_from_json(const Json& index, std::string_view what);

// Adds the tensors of one rank's part; BugError where two ranks disagree about a shape or dtype.
void merge_tensors(StoredTensors& all, StoredTensors part);
// "" where the slices cover every element of every tensor once; else the first error.
std::string coverage_fault(const StoredTensors& tensors);

// The names of a checkpoint's own files.
inline constexpr const char* kIndexFile = "index.json";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kCommittedFile = "COMMITTED";
std::string rank_file(int rank);  // rank-00003.safetensors
std::string part_file(int rank);  // index-rank-00003.json, deleted on commit
bool is_own_file(std::string_view name);
std::filesystem::path writing_folder(const std::filesystem::path& folder);

}  // namespace weft
