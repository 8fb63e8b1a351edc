// checkpoint/coverage.h: how much of what a reader wants a growing index holds.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/index.h"

namespace weft {

class Coverage {
 public:
  explicit Coverage(const std::vector<Slice>& wanted);

  // One more rank's part of the index.
  void add(const StoredTensors& part);
  // Whether each wanted element is in some part.
  bool is_complete() const { return num_missing_ == 0; }
  // "", or the first wanted tensor of which elements are missing, or in two parts.
  std::string fault() const;

 private:
  struct Wanted {
    std::string name;
    Region region;
    int64_t held = 0;  // elements
  };
  std::vector<Wanted> wanted_;  // by name
  int64_t num_missing_ = 0;     // elements
};

}  // namespace weft
