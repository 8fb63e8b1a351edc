// io/pickle.h: Python's pickles read as plain values; nothing in them is ever executed.
//
// A pickle is a program for a stack machine. This reader knows the instructions that torch.save and
// torch.distributed.checkpoint write and refuses all others by name. Where Python would import a
// class and call it, the result here is an opaque `object`: the class's name, the arguments and the
// state, as values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class PickleValue;

class Pickle {
 public:
  enum class Kind : uint8_t {
    kNull,
    kBool,
    kInt,
    kLargeInt,  // beyond 64 bits: its bytes
    kFloat,
    kString,
    kBytes,
    kList,
    kTuple,
    kDict,  // collections.OrderedDict too
    kSet,
    kClass,       // module and name, not imported
    kObject,      // what a class or function would have made
    kPersistent,  // a reference to something outside: torch's storages
  };

  // `bytes` must outlive the pickle: texts are views of it. `what` names it in messages. Bounded:
  // 16 million values, nesting over 100 levels, a value that contains itself, and sharing that
  // would unfold to more than 64 million values are refused, so that a walk over the values ends.
  Pickle(std::string_view bytes, std::string_view what);

  PickleValue root() const;
  const std::string& what() const { return what_; }

 private:
  friend class PickleValue;
  friend class PickleReader;
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    Kind kind = Kind::kNull;
    uint32_t state = kNone;       // of an object or a dict: what BUILD gave it
    uint32_t entries = kNone;     // of an object: a list or dict of what was added to it
    int64_t bits = 0;             // of a bool, an int, a float
    std::string_view text, name;  // a string's or bytes' text; a class's module and name
    std::vector<uint32_t> items;  // of a dict key, value, key, value; of an object class, arguments
  };
  void check_walk() const;

  std::string what_;
  std::vector<Node> nodes_;
  uint32_t root_ = 0;
};

// One value; valid as long as its Pickle. Access as another kind is a UserError that names both.
class PickleValue {
 public:
  PickleValue(const Pickle* owner, uint32_t at) : owner_(owner), at_(at) {}

  Pickle::Kind kind() const { return node().kind; }
  bool is_null() const { return kind() == Pickle::Kind::kNull; }
  bool is_dict() const { return kind() == Pickle::Kind::kDict; }
  bool is_int() const { return kind() == Pickle::Kind::kInt; }
  bool is_string() const { return kind() == Pickle::Kind::kString; }
  bool is_list() const {  // or a tuple
    return kind() == Pickle::Kind::kList || kind() == Pickle::Kind::kTuple;
  }
  const char* kind_name() const;

  int64_t as_int() const;
  std::string_view as_string() const;
  // Elements of a list, tuple or set.
  size_t size() const;
  PickleValue operator[](size_t i) const;  // UserError where there are fewer

  // Entries of a dict, in order; a later entry of the same key replaces an earlier one.
  size_t num_entries() const;
  PickleValue key(size_t i) const;
  PickleValue value(size_t i) const;
  std::optional<PickleValue> find(std::string_view key) const;  // absent too where this is no dict
  PickleValue at(std::string_view key) const;                   // UserError naming the key

  // "module.name" of a class, or of an object's class; "" for other values.
  std::string class_name() const;
  bool is_object(std::string_view class_name) const;
  PickleValue arguments() const;             // of an object: its tuple; of a persistent id: the id
  std::optional<PickleValue> state() const;  // what BUILD gave it

 private:
  const Pickle::Node& node() const { return owner_->nodes_[at_]; }
  const Pickle::Node& class_node() const;
  PickleValue other(uint32_t at) const { return {owner_, at}; }
  void want(bool ok, const char* wanted) const;
  const Pickle* owner_;
  uint32_t at_;
};

}  // namespace weft
