// graph/graph.h: a step as values and nodes. No memory, no kernels: shapes and rules only.
//
// A value is written by exactly one node, except a parameter's gradient, which every use of the
// parameter adds to: the first writer of a pass stores (on the first pass) and the others add.
#pragma once

#include <any>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

struct Ref {
  int id = -1;
  explicit operator bool() const { return id >= 0; }
  bool operator==(const Ref&) const = default;
};

enum class ValueKind {
  kInput,       // filled by the caller before every pass: ids, targets, lengths
  kConstant,    // filled once: rope tables
  kParameter,   // lives as long as the run
  kGradient,    // of a parameter; lives over all passes of a step
  kState,       // optimizer state or master weights; lives as long as the run
  kCache,       // keys and values of earlier positions, for generation
  kActivation,  // lives from its node to its last reader, within one list
  kResult,      // read by the caller after the step: loss, gradient norm, loss scale
};

// Which elements of which tensor of the model a value holds: a box of it, or a flat range of that
// box in row-major order (the ZeRO cut).
struct Portion {
  std::string name;  // Hugging Face's; states have their suffix (#m, #v, #master)
  Shape shape;       // of the whole tensor
  Shape offset, extent;
  int64_t begin = 0, end = 0;  // within the box
};

struct Value {
  std::string name;
  Shape shape;
  Dtype dtype;
  ValueKind kind;
  Ref parameter = {};   // gradient or state: the parameter it belongs to
  bool frozen = false;  // parameter: no gradient, no state
  // Of parameters, gradients and states that are not the whole tensor of their name.
  std::optional<Portion> portion = {};
  // For values inside another one (a bucket): which, and at which element.
  Ref base = {};
  int64_t base_offset = 0;
  bool is_bucket = false;  // holds others, and is not itself a tensor of the model
  // Of parameters and states: this rank writes it into checkpoints; the first of several copies.
  bool is_saved = true;
  // Of gradients: this rank counts it in the norm. False on all but one of the ranks that hold the
  // same elements and sum their squares.
  bool is_counted = true;
  // Of parameters: the number of neighbouring ranks of the tensor axis that hold it. Of gradients:
  // the number of ranks with an addend each, which the optimizer sums.
  int copies = 1;
  // Of copies that some neighbours share and some do not (parallel/pieces.h): their group, 0 or 1;
  // there also kWholeAxisGroup, of copies on all ranks.
  int copy_group = -1;
  int64_t fill = 0;  // of inputs: what rows hold that a short batch lacks
};

struct OpRule;  // graph/op_rule.h
using Op = const OpRule*;

enum class Axis { kTensor, kData };

// What passes decide about nodes of any operation: when they run, and how they store.
struct NodeRun {
  bool first_writer = true;     // of a parameter's gradient: false: adds to what others wrote
  bool async = false;           // collectives: on the communication lane
  bool last_pass_only = false;  // collectives of gradients that all passes add to
  // Writers of gradients in exact mode: their accumulators (parallel/data_parallel.h).
  int slots = 0;
  int64_t slot_stride = 0;   // elements from one accumulator to the next
  int64_t group_leaves = 1;  // leaves that are added in order before the tree
};

struct Node {
  Op op;
  std::vector<Ref> inputs, outputs;  // an absent optional output is Ref{}
  std::any attr = {};                // of the operation's own type; empty where it has none
  int layer = -1;  // of the model, for dumps and buckets; -1: embedding, head, optimizer
  NodeRun run = {};

  // The attributes; BugError where the operation has others.
  template <typename T>
  const T& as() const {
    const T* found = std::any_cast<T>(&attr);
    if (!found) throw_other_attributes();
    return *found;
  }
  template <typename T>
  T& edit() {
    return const_cast<T&>(as<T>());
  }

 private:
  [[noreturn]] void throw_other_attributes() const;
};

// What the optimizer updates: a parameter, or this rank's part of one, with its gradient.
struct Update {
  Ref parameter, gradient;
};

// The two lists of a step: `pass` runs once per micro-batch, `finish` once after the last pass.
struct Graph {
  std::vector<Value> values;
  std::vector<Node> pass, finish;
  std::vector<Update> updates;

  const Value& operator[](Ref r) const { return values[static_cast<size_t>(r.id)]; }
  Value& operator[](Ref r) { return values[static_cast<size_t>(r.id)]; }
  Ref add(Value v);
  std::vector<Ref> of_kind(ValueKind kind) const;
  std::optional<Ref> find(const std::string& name) const;
  // The value that owns r's memory (itself, unless it is a view), and the byte offset in it.
  struct Storage {
    Ref root;
    int64_t offset_bytes = 0;
  };
  Storage storage_of(Ref r) const;
};

// The tensor elements that a parameter, gradient or state holds: its portion, or all of its name.
Portion portion_of(const Value& v);

const char* kind_name(ValueKind kind);
int64_t value_bytes(const Value& v);

}  // namespace weft
