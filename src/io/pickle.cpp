// io/pickle.cpp: the stack machine, with opaque objects where Python would run code.
#include "io/pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "io/pickle_opcodes.h"

namespace weft {

namespace {

constexpr size_t kMaxValues = size_t{1} << 24;
constexpr const char* kHint =
    "only files written by torch.save and torch.distributed.checkpoint are read; in Python, load "
    "the file and save its tensors again";

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    if (!c.valid) return false;
    at += c.length;
  }
  return true;
}

}  // namespace

class PickleReader {
 public:
  using Kind = Pickle::Kind;
  using Node = Pickle::Node;

  PickleReader(std::string_view bytes, Pickle& out) : bytes_(bytes), out_(out) {}

  void read() {
    check(!bytes_.empty() && static_cast<Op>(bytes_[0]) == Op::kProto,
          "does not begin as a pickle");
    while (!stopped_) {
      at_ = next_;
      step(static_cast<Op>(number(1)));
    }
    check(next_ == bytes_.size(), "has bytes after its end");
    check(stack_.size() == 1 && marks_.empty(), "ends with another number of values than one");
    out_.root_ = stack_[0];
  }

 private:
  void check(bool ok, const std::string& message) const {
    if (!ok) throw UserError(fmt::format("{}: byte {}: {}", out_.what_, at_, message), kHint);
  }

  // Little-endian.
  uint64_t number(size_t bytes) {
    const std::string_view text = take(bytes);
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(text[i]);
    return value;
  }
  std::string_view take(uint64_t bytes) {
    check(bytes <= bytes_.size() - next_, "the pickle ends in the middle of an instruction");
    const std::string_view text = bytes_.substr(next_, static_cast<size_t>(bytes));
    next_ += static_cast<size_t>(bytes);
    return text;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', next_);
    check(end != std::string_view::npos, "a name has no end");
    const std::string_view text = take(end - next_);
    ++next_;
    return text;
  }

  void push(Node node) {
    check(out_.nodes_.size() < kMaxValues, fmt::format("has more than {} values", kMaxValues));
    stack_.push_back(static_cast<uint32_t>(out_.nodes_.size()));
    out_.nodes_.push_back(std::move(node));
  }
  void push_items(Kind kind, std::vector<uint32_t> items) {
    Node node;
    node.kind = kind;
    node.items = std::move(items);
    push(std::move(node));
  }
  void push_text(Kind kind, std::string_view text) {
    check(kind != Kind::kString || is_utf8(text), "a string is not UTF-8");
    Node node;
    node.kind = kind;
    node.text = text;
    push(std::move(node));
  }
  void push_bits(Kind kind, int64_t bits) {
    Node node;
    node.kind = kind;
    node.bits = bits;
    push(std::move(node));
  }

  // Values below the last mark belong to whoever set it.
  void need(size_t values) const {
    check(stack_.size() - (marks_.empty() ? 0 : marks_.back()) >= values,
          "takes more values than there are");
  }
  uint32_t pop() {
    need(1);
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<uint32_t> pop_many(size_t count) {
    need(count);
    std::vector<uint32_t> items(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  std::vector<uint32_t> pop_mark() {
    check(!marks_.empty(), "refers to a mark that was not set");
    std::vector<uint32_t> items = pop_many(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  Node& top() {
    need(1);
    return out_.nodes_[stack_.back()];
  }

  // Appends to a container of that kind, or to the entries of an object.
  void extend(Kind kind, const std::vector<uint32_t>& items) {
    check(kind != Kind::kDict || items.size() % 2 == 0, "a key has no value");
    uint32_t target = (need(1), stack_.back());
    if (out_.nodes_[target].kind == Kind::kObject) {
      if (out_.nodes_[target].entries == Pickle::kNone) {
        push_items(kind, {});
        out_.nodes_[target].entries = pop();
      }
      target = out_.nodes_[target].entries;
    }
    Node& node = out_.nodes_[target];
    check(node.kind == kind, "adds to a value that is no such container");
    node.items.insert(node.items.end(), items.begin(), items.end());
  }

  void push_class(std::string_view module, std::string_view name) {
    check(!module.empty() && !name.empty() && is_utf8(module) && is_utf8(name),
          "a class has no name");
    Node node;
    node.kind = Kind::kClass;
    node.text = module;
    node.name = name;
    push(std::move(node));
  }
  void stack_global() {
    const uint32_t name = pop(), module = pop();
    for (const uint32_t part : {name, module})
      check(out_.nodes_[part].kind == Kind::kString, "a class's name is not a string");
    push_class(out_.nodes_[module].text, out_.nodes_[name].text);
  }
  // Nothing is called: the class and its arguments become a value.
  void make_object() {
    const uint32_t arguments = pop(), callee = pop();
    const Node& c = out_.nodes_[callee];
    // A nested class is itself the result of a call.
    check(c.kind == Kind::kClass || c.kind == Kind::kObject, "calls a value that is no class");
    check(out_.nodes_[arguments].kind == Kind::kTuple, "a class's arguments are no tuple");
    const bool ordered = c.text == "collections" && c.name == "OrderedDict";
    if (ordered && out_.nodes_[arguments].items.empty()) return push_items(Kind::kDict, {});
    push_items(Kind::kObject, {callee, arguments});
  }
  void build() {
    const uint32_t state = pop();
    Node& node = top();
    check(node.kind == Kind::kObject || node.kind == Kind::kDict, "gives a state to a plain value");
    check(node.state == Pickle::kNone, "gives a second state");
    node.state = state;
  }

  void put(uint64_t key) {
    need(1);
    memo_[key] = stack_.back();
    // Python stores a value once. A byte would suffice for an entry, which takes many.
    check(memo_.size() <= out_.nodes_.size(), "stores more values than it has");
  }
  void get(uint64_t key) {
    const auto found = memo_.find(key);
    check(found != memo_.end(), fmt::format("refers to value {}, which was not stored", key));
    stack_.push_back(found->second);
    // A reference costs two bytes; without a bound a short file could make a long list.
    check(stack_.size() <= kMaxValues, "has too many values");
  }
  void push_long(uint64_t bytes) {
    const std::string_view text = take(bytes);
    if (bytes > 8) return push_text(Kind::kLargeInt, text);
    uint64_t value = 0;
    for (size_t i = text.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(text[i]);
    if (bytes > 0 && bytes < 8 && (text.back() & 0x80) != 0) value |= ~uint64_t{0} << (8 * bytes);
    push_bits(Kind::kInt, static_cast<int64_t>(value));
  }
  void push_float() {
    const std::string_view text = take(8);
    uint64_t value = 0;
    for (const char c : text) value = value << 8 | static_cast<uint8_t>(c);  // big-endian
    push_bits(Kind::kFloat, static_cast<int64_t>(value));
  }

  void step(Op op) {
    if (!step_atom(op) && !step_container(op)) step_machine(op);
  }

  bool step_atom(Op op) {
    switch (op) {
      case Op::kNone:
        return push({}), true;
      case Op::kNewTrue:
      case Op::kNewFalse:
        return push_bits(Kind::kBool, op == Op::kNewTrue), true;
      case Op::kBinInt:
        return push_bits(Kind::kInt, static_cast<int32_t>(number(4))), true;
      case Op::kBinInt1:
        return push_bits(Kind::kInt, static_cast<int64_t>(number(1))), true;
      case Op::kBinInt2:
        return push_bits(Kind::kInt, static_cast<int64_t>(number(2))), true;
      case Op::kLong1:
        return push_long(number(1)), true;
      case Op::kBinFloat:
        return push_float(), true;
      case Op::kShortBinUnicode:
        return push_text(Kind::kString, take(number(1))), true;
      case Op::kBinUnicode:
        return push_text(Kind::kString, take(number(4))), true;
      case Op::kBinUnicode8:
        return push_text(Kind::kString, take(number(8))), true;
      case Op::kShortBinBytes:
        return push_text(Kind::kBytes, take(number(1))), true;
      case Op::kBinBytes:
        return push_text(Kind::kBytes, take(number(4))), true;
      case Op::kBinBytes8:
      case Op::kByteArray8:
        return push_text(Kind::kBytes, take(number(8))), true;
      default:
        return false;
    }
  }

  bool step_container(Op op) {
    switch (op) {
      case Op::kEmptyTuple:
        return push_items(Kind::kTuple, {}), true;
      case Op::kTuple1:
      case Op::kTuple2:
      case Op::kTuple3:
        return push_items(Kind::kTuple,
                          pop_many(static_cast<size_t>(op) - static_cast<size_t>(Op::kTuple1) + 1)),
               true;
      case Op::kTuple:
        return push_items(Kind::kTuple, pop_mark()), true;
      case Op::kEmptyList:
        return push_items(Kind::kList, {}), true;
      case Op::kAppend: {
        const auto items = pop_many(1);
        return extend(Kind::kList, items), true;
      }
      case Op::kAppends: {
        const auto items = pop_mark();
        return extend(Kind::kList, items), true;
      }
      case Op::kEmptyDict:
        return push_items(Kind::kDict, {}), true;
      case Op::kSetItem: {
        const auto items = pop_many(2);
        return extend(Kind::kDict, items), true;
      }
      case Op::kSetItems: {
        const auto items = pop_mark();
        return extend(Kind::kDict, items), true;
      }
      case Op::kEmptySet:
        return push_items(Kind::kSet, {}), true;
      case Op::kAddItems: {
        const auto items = pop_mark();
        return extend(Kind::kSet, items), true;
      }
      case Op::kFrozenSet:
        return push_items(Kind::kSet, pop_mark()), true;
      default:
        return false;
    }
  }

  void step_machine(Op op) {
    switch (op) {
      case Op::kProto: {
        const uint64_t version = number(1);
        return check(version >= 2 && version <= 5, fmt::format("protocol {}", version));
      }
      case Op::kFrame:
        return check(number(8) <= bytes_.size() - next_, "a frame goes beyond the pickle");
      case Op::kStop:
        stopped_ = true;
        return;
      case Op::kMark:
        check(marks_.size() < kMaxValues, "has too many marks");
        return marks_.push_back(stack_.size());
      case Op::kBinPut:
        return put(number(1));
      case Op::kLongBinPut:
        return put(number(4));
      case Op::kMemoize:
        return put(memo_.size());
      case Op::kBinGet:
        return get(number(1));
      case Op::kLongBinGet:
        return get(number(4));
      case Op::kGlobal: {
        const std::string_view module = line(), name = line();
        return push_class(module, name);
      }
      case Op::kStackGlobal:
        return stack_global();
      case Op::kReduce:
      case Op::kNewObj:
        return make_object();
      case Op::kBuild:
        return build();
      case Op::kBinPersId:
        return push_items(Kind::kPersistent, pop_many(1));
      default:
        check(false, fmt::format("holds the instruction {}, which is not read", opcode_name(op)));
    }
  }

  std::string_view bytes_;
  Pickle& out_;
  size_t at_ = 0, next_ = 0;  // of the instruction, and of the byte to read
  bool stopped_ = false;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint64_t, uint32_t> memo_;
};

Pickle::Pickle(std::string_view bytes, std::string_view what) : what_(printable_line(what)) {
  PickleReader(bytes, *this).read();
  check_walk();
}

}  // namespace weft
