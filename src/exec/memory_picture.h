// exec/memory_picture.h: the arena over a step, drawn: lifetimes to the right, addresses upwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/plan.h"

namespace weft {

enum class BufferKind {
  kActivation,
  kActivationGradient,
  kParameterGradient,
  kCommunication,
  kScratch,
};

// One piece of memory of the step region, from its first node to its last.
struct Buffer {
  BufferKind kind;
  std::string name;  // of several values that share it (in place): all, separated by commas
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;  // nodes, of pass and then finish
};
std::vector<Buffer> step_buffers(const Plan& plan);

// The step region's buffers as boxes (x: nodes, y: bytes from the region's start), and below them
// the kept values as one bar. A self-contained SVG; each box has its name, size and nodes as a
// tooltip.
std::string draw_memory(const Plan& plan, const std::string& title);

}  // namespace weft
