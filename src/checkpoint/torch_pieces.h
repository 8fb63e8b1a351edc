// checkpoint/torch_pieces.h: logical tensors whose elements lie in files of torch.save.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/logical.h"
#include "io/torch_file.h"

namespace weft {

std::shared_ptr<const TorchArchive> open_torch_archive(const std::filesystem::path& path);

// Elements [begin, end) of a tensor, in its row-major order.
struct TorchPiece {
  std::shared_ptr<const MappedFile> map;
  size_t archive_begin = 0;
  TorchTensor tensor;
  int64_t begin = 0, end = 0;
  Dtype dtype() const { return tensor.dtype; }
  void read(int64_t from, int64_t to, void* out) const {
    read_torch(*map, archive_begin, tensor, from, to, out);
  }
};
// All of a value that is a tensor; the archive may then be closed. UserError where it is none, or
// cannot be read.
TorchPiece whole_piece(const TorchArchive& archive, const PickleValue& value,
                       const std::string& name);

// The pieces one after the other; what they hold beyond the shape is padding. UserError where they
// hold less, or are of several dtypes.
LogicalTensor join_pieces(std::string name, Shape shape, std::vector<TorchPiece> pieces);

// Floating tensors in fp32, others as they are.
LogicalTensor in_fp32(LogicalTensor tensor);

// config.json of the first of these folders that has one, with the tokenizer there.
void find_config(LogicalModel& model, const std::vector<std::filesystem::path>& folders);
// Sorts both lists by name, and drops copies of a tied embedding.
void finish_foreign(LogicalModel& model);

}  // namespace weft
