// checkpoint/torch_pieces.cpp: reads that go from piece to piece.
#include "checkpoint/torch_pieces.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/deepspeed_files.h"
#include "checkpoint/foreign.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// starts[i]: the place of piece i's first element in the tensor.
struct Pieces {
  std::vector<TorchPiece> list;
  std::vector<int64_t> starts;

  void read(int64_t begin, int64_t end, std::byte* out) const {
    size_t i = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), begin) -
                                   starts.begin() - 1);
    const int64_t width = list.empty() ? 1 : dtype_bytes(list[0].dtype());
    while (begin < end) {
      const TorchPiece& piece = list[i];
      const int64_t from = piece.begin + begin - starts[i];
      const int64_t count = std::min(end - begin, piece.end - from);
      piece.read(from, from + count, out);
      out += count * width;
      begin += count;
      ++i;
    }
  }
};

}  // namespace

std::shared_ptr<const TorchArchive> open_torch_archive(const fs::path& path) {
  const auto map = std::make_shared<const MappedFile>(path);
  return std::make_shared<const TorchArchive>(map, 0, map->size(), path.string());
}

TorchPiece whole_piece(const TorchArchive& archive, const PickleValue& value,
                       const std::string& name) {
  TorchPiece piece{archive.map(), archive.map_begin(), archive.tensor(value), 0, 0};
  require(piece.tensor.fault.empty(), "tensor \"{}\" {}", printable_line(name), piece.tensor.fault);
  piece.end = num_elements(piece.tensor.shape);
  return piece;
}

LogicalTensor join_pieces(std::string name, Shape shape, std::vector<TorchPiece> pieces) {
  std::erase_if(pieces, [](const TorchPiece& p) { return p.begin >= p.end; });
  const Dtype dtype = pieces.empty() ? Dtype::kF32 : pieces[0].dtype();
  require(checked_bytes(shape, dtype).has_value(), "tensor \"{}\" has shape {}",
          printable_line(name), to_string(shape));
  const auto joined = std::make_shared<Pieces>();
  int64_t held = 0;
  for (TorchPiece& p : pieces) {
    require(p.dtype() == dtype, "the parts of tensor \"{}\" are of {} and {}", printable_line(name),
            dtype_name(dtype), dtype_name(p.dtype()));
    joined->starts.push_back(held);
    held += p.end - p.begin;  // each within a file: no overflow
    joined->list.push_back(std::move(p));
  }
  require(held >= num_elements(shape), "the parts of tensor \"{}\" hold {} of {} elements",
          printable_line(name), held, num_elements(shape));
  auto read = [joined](int64_t begin, int64_t end, void* out) {
    joined->read(begin, end, static_cast<std::byte*>(out));
  };
  return {std::move(name), std::move(shape), dtype, std::move(read)};
}

LogicalTensor in_fp32(LogicalTensor t) {
  if (t.dtype != Dtype::kBf16 && t.dtype != Dtype::kF16 && t.dtype != Dtype::kF64) return t;
  auto read = [from = t.dtype, read = std::move(t.read)](int64_t begin, int64_t end, void* out) {
    std::vector<std::byte> stored(static_cast<size_t>((end - begin) * dtype_bytes(from)));
    read(begin, end, stored.data());
    convert_elements(stored.data(), from, out, Dtype::kF32, end - begin);
  };
  return {std::move(t.name), std::move(t.shape), Dtype::kF32, std::move(read)};
}

// The folder of a step has that of the run above it.
std::vector<fs::path> config_folders(const fs::path& folder) {
  const fs::path place = is_dcp(folder) ? folder : deepspeed_step_folder(folder);
  const fs::path whole = fs::absolute(place).lexically_normal();
  const fs::path here = whole.has_filename() ? whole : whole.parent_path();
  std::vector<fs::path> folders = {here, here.parent_path()};
  if (!is_dcp(folder)) folders.push_back(here.parent_path().parent_path());
  return folders;
}

void find_config(LogicalModel& model, const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    if (!fs::exists(folder / "config.json")) continue;
    return use_config_of(model, folder);
  }
}

void finish_foreign(LogicalModel& model) {
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(model.weights.begin(), model.weights.end(), by_name);
  std::sort(model.states.begin(), model.states.end(), by_name);
  for (const auto* list : {&model.weights, &model.states}) {
    for (size_t i = 1; i < list->size(); ++i)
      require((*list)[i - 1].name != (*list)[i].name, "{}: two tensors are named \"{}\"",
              model.path.string(), printable_line((*list)[i].name));
  }
  drop_tied_copies(model);
}

}  // namespace weft
