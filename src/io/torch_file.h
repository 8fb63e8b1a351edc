// io/torch_file.h: what torch.save wrote: a zip archive of one pickle and the storages it names.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/pickle.h"
#include "io/tensor_file.h"

namespace weft {

// A view of a storage. `fault` says why it cannot be read (a dtype that weft does not have, a view
// that repeats elements, a sparse tensor); then nothing else is meaningful.
struct TorchTensor {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::vector<int64_t> strides;  // in elements
  size_t begin = 0;              // byte of the archive where the first element is
  std::string fault;
  bool is_contiguous() const;  // in row-major order, without gaps
};

class TorchArchive {
 public:
  // `archive` must outlive it; `what` names it in messages. UserError where it is no archive of
  // torch.save, in an order of bytes that is not this machine's, or its pickle has another checksum
  // than the archive states. Those of the storages are checked by verify_torch_file alone.
  TorchArchive(std::string_view archive, std::string_view what);
  // Bytes [begin, end) of a mapped file.
  TorchArchive(std::shared_ptr<const MappedFile> map, size_t begin, size_t end,
               std::string_view what);
  PickleValue root() const { return pickle_->root(); }
  const std::string& what() const { return what_; }

  static bool is_tensor(const PickleValue& value);
  // Checked against its storage: UserError where it goes beyond it.
  TorchTensor tensor(const PickleValue& value) const;
  // Elements [begin, end) in row-major order. Thread-safe.
  void read(const TorchTensor& tensor, int64_t begin, int64_t end, void* out) const;
  const std::byte* data(const TorchTensor& tensor) const;  // of a contiguous one
  // Of an archive in a mapped file: the file, and the archive's first byte there.
  const std::shared_ptr<const MappedFile>& map() const { return map_; }
  size_t map_begin() const { return map_begin_; }

 private:
  struct Range {
    size_t begin, end;
  };
  void open();
  Range storage(std::string_view key) const;

  std::shared_ptr<const MappedFile> map_;  // null: the bytes belong to the caller
  size_t map_begin_ = 0;
  std::string_view archive_;
  std::string what_, root_;  // root_: the folder inside the archive
  std::map<std::string, Range, std::less<>> members_;
  std::unique_ptr<const Pickle> pickle_;
};

// TorchArchive::read of an archive that begins at `archive_begin` and need not be open any more.
void read_torch(const MappedFile& map, size_t archive_begin, const TorchTensor& tensor,
                int64_t begin, int64_t end, void* out);

// Every tensor of nested dicts and lists, under its keys joined by dots; one of a kind that is not
// read (sparse, quantized) has a fault. UserError where two would have the same name.
std::map<std::string, TorchTensor> named_tensors(const TorchArchive& archive,
                                                 const PickleValue& value);

// The same as a file of tensors: pytorch_model.bin. A tensor that is not contiguous is copied when
// data() is called for it.
class TorchFile final : public TensorFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
  const std::byte* data(const TensorInfo& info) const override;
  void read(const TensorInfo& info, int64_t begin, int64_t end, void* out) const override;
  void drop_pages() const override { map_->drop_pages(); }

 private:
  const TorchTensor& tensor_of(const TensorInfo& info) const;
  std::shared_ptr<const MappedFile> map_;
  TorchArchive archive_;
  std::vector<TorchTensor> views_;  // in the order of tensors()
  mutable std::mutex mutex_;
  mutable std::map<const TorchTensor*, std::vector<std::byte>> copies_;
};

// Whether the file is a whole zip archive with a pickle of torch.save.
bool is_torch_file(const std::filesystem::path& path);

// Reads every member and compares its checksum: UserError where one differs. torch may leave them
// out.
struct CheckedBytes {
  uint64_t checked = 0, without_checksum = 0;
};
CheckedBytes verify_torch_file(const std::filesystem::path& path);

// UserError that says what else the file is, where it is not a zip archive: torch's older formats.
void require_torch_zip(std::string_view file, const std::string& what);

// {1, 2, 3}: a torch.Size, a tuple or a list of ints, none negative.
Shape shape_of(const PickleValue& value);
// weft's dtype of "torch.float32"; none where it has none.
std::optional<Dtype> find_torch_dtype(std::string_view name);
const char* torch_dtype_name(Dtype dtype);    // "torch.float32"
const char* torch_storage_name(Dtype dtype);  // "torch.FloatStorage"
Shape row_major_strides(const Shape& shape);  // in elements

}  // namespace weft
