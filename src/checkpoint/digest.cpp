// checkpoint/digest.cpp: hashes of every tensor's bytes, then of those lines.
#include "checkpoint/digest.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/hash_stream.h"
#include "base/new_threads.h"
#include "checkpoint/checkpoint.h"

namespace weft {
namespace {

std::string digest_line(const LogicalTensor& t) {
  HashStream hash;
  const int64_t n = num_elements(t.shape), width = dtype_bytes(t.dtype);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(n, kPieceElements) * width));
  for (int64_t at = 0; at < n; at += kPieceElements) {
    const int64_t end = std::min(n, at + kPieceElements);
    t.read(at, end, buffer.data());
    hash.add(buffer.data(), static_cast<size_t>((end - at) * width));
  }
  std::string shape;  // without blanks, so that a line is four words
  for (int64_t extent : t.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ",", extent);
  return fmt::format("{} [{}] {} {}", t.name, shape, dtype_name(t.dtype), hash_hex(hash.value()));
}

std::string digest_list(const std::vector<LogicalTensor>& tensors,
                        std::vector<std::string>& lines) {
  std::vector<std::string> made(tensors.size());
  run_on_new_threads(kReadThreads, tensors.size(),
                     [&](size_t i) { made[i] = digest_line(tensors[i]); });
  std::string text;
  for (const std::string& line : made) text += line + "\n";
  lines.insert(lines.end(), made.begin(), made.end());
  return hash_hex(hash_text(text));
}

}  // namespace

ModelDigest digest_model(const LogicalModel& model) {
  ModelDigest digest;
  digest.weights = digest_list(model.weights, digest.lines);
  if (!model.states.empty()) digest.states = digest_list(model.states, digest.lines);
  std::sort(digest.lines.begin(), digest.lines.end());
  return digest;
}

}  // namespace weft
