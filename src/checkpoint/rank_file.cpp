// checkpoint/rank_file.cpp: slices one after another behind a safetensors header.
#include "checkpoint/rank_file.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/block_writer.h"
#include "base/error.h"
#include "base/hash.h"

namespace weft {
namespace {

// The name of a slice in its file: the logical one; name@1, name@2 for more slices of a tensor.
std::string name_in_file(const std::string& name, std::set<std::string>& taken) {
  std::string unique = name;
  for (int i = 1; !taken.insert(unique).second; ++i) unique = fmt::format("{}@{}", name, i);
  return unique;
}

TensorInfo info_of(const Slice& s, std::string name) {
  const Region region = region_of(s);
  const std::string fault = region_fault(region, s.shape);
  ensure(fault.empty(), fmt::format("slice of \"{}\": {}", s.name, fault));
  const bool is_box = region.size() == num_elements(s.extent);
  return {std::move(name), s.dtype, is_box ? s.extent : Shape{region.size()}, 0, 0};
}

// Fills blocks in the order of the file and queues each when it is full.
class BlockStream {
 public:
  explicit BlockStream(BlockWriter* writer) : writer_(writer) {}

  // fill(to, begin, size) produces bytes [begin, begin + size) of what is added.
  template <typename Fill>
  void add(size_t bytes, const Fill& fill) {
    for (size_t at = 0; at < bytes;) {
      if (!block_) block_ = writer_->take_buffer();
      const size_t size = std::min(bytes - at, BlockWriter::kBlock - filled_);
      fill(block_ + filled_, at, size);
      at += size;
      filled_ += size;
      if (filled_ == BlockWriter::kBlock) flush();
    }
  }
  void flush() {
    if (!block_) return;
    writer_->write(offset_, block_, filled_);
    offset_ += filled_;
    filled_ = 0;
    block_ = nullptr;
  }

 private:
  BlockWriter* writer_;
  std::byte* block_ = nullptr;
  size_t offset_ = 0, filled_ = 0;
};

void read_bytes(const RankFile::Read& read, void* to, const void* from, size_t size) {
  if (read) {
    read(to, from, size);
  } else if (size > 0) {
    std::memcpy(to, from, size);
  }
}

}  // namespace

RankFile::RankFile(std::vector<Slice> slices, int rank)
    : slices_(std::move(slices)), name_(rank_file(rank)) {
  std::vector<TensorInfo> infos;
  std::set<std::string> taken;
  for (size_t i = 0; i < slices_.size(); ++i) {
    infos.push_back(info_of(slices_[i], name_in_file(slices_[i].name, taken)));
    by_name_[infos.back().name] = i;
  }
  plan_ = plan_safetensors(std::move(infos), {{"format", "pt"}});
}

void RankFile::copy_to(std::byte* image, const Read& read) const {
  std::memcpy(image, plan_.header.data(), plan_.header.size());
  std::byte* data = image + plan_.header.size();
  for (const TensorInfo& info : plan_.tensors)
    read_bytes(read, data + info.begin, slice_of(info).data, info.end - info.begin);
}

IndexPart RankFile::index() const {
  const size_t start = plan_.header.size();
  IndexPart part;
  for (const TensorInfo& info : plan_.tensors) {
    const Slice& s = slice_of(info);
    StoredTensors one;
    one[s.name] = {s.shape, s.dtype, {{name_, start + info.begin, start + info.end, region_of(s)}}};
    merge_tensors(part.tensors, std::move(one));
  }
  return part;
}

void RankFile::add_to_index(const TensorInfo& info, SliceHash* hash, IndexPart* part) const {
  const Slice& s = slice_of(info);
  const size_t start = plan_.header.size();
  SliceChecksums checksums = hash->finish();
  StoredTensors one;
  one[s.name] = {s.shape,
                 s.dtype,
                 {{name_, start + info.begin, start + info.end, region_of(s), checksums.checksum,
                   std::move(checksums.blocks)}}};
  merge_tensors(part->tensors, std::move(one));
}

IndexPart RankFile::write_image(const std::filesystem::path& folder, const std::byte* image) const {
  DirectFile file(folder / name_, bytes());
  BlockWriter writer(&file);
  for (size_t at = 0; at < bytes(); at += BlockWriter::kBlock)
    writer.write(at, image + at, std::min(BlockWriter::kBlock, bytes() - at));
  IndexPart part;
  for (const TensorInfo& info : plan_.tensors) {
    const std::byte* data = image + plan_.header.size() + info.begin;
    SliceHash hash(info.end - info.begin);
    hash.add(data, info.end - info.begin);
    add_to_index(info, &hash, &part);
  }
  writer.finish();
  file.sync();
  part.headers[name_] = {plan_.header.size(), hash_text(plan_.header)};
  return part;
}

IndexPart RankFile::write(const std::filesystem::path& folder, const Read& read) const {
  DirectFile file(folder / name_, bytes());
  BlockWriter writer(&file);
  BlockStream stream(&writer);
  stream.add(plan_.header.size(), [&](std::byte* to, size_t begin, size_t size) {
    std::memcpy(to, plan_.header.data() + begin, size);
  });
  IndexPart part;
  for (const TensorInfo& info : plan_.tensors) {
    const auto* data = static_cast<const std::byte*>(slice_of(info).data);
    SliceHash hash(info.end - info.begin);
    stream.add(info.end - info.begin, [&](std::byte* to, size_t begin, size_t size) {
      read_bytes(read, to, data + begin, size);
      hash.add(to, size);
    });
    add_to_index(info, &hash, &part);
  }
  stream.flush();
  writer.finish();
  file.sync();
  part.headers[name_] = {plan_.header.size(), hash_text(plan_.header)};
  return part;
}

}  // namespace weft
