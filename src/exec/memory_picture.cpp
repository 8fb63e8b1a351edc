// exec/memory_picture.cpp: boxes, axes and labels of the picture, as SVG text.
#include "exec/memory_picture.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "exec/dump.h"
#include "exec/memory_parts.h"

namespace weft {
namespace {

struct Style {
  const char* label;
  const char* color;
};
constexpr Style kBufferStyles[] = {{"activations", "#5b9bd5"},
                                   {"gradients of activations", "#f2a541"},
                                   {"gradients of parameters", "#d1495b"},
                                   {"communication", "#8e6bbf"},
                                   {"scratch", "#b9c0ca"}};
constexpr Style kKeptStyles[] = {{"parameters", "#3a9d6e"},
                                 {"gradients", "#d1495b"},
                                 {"optimizer states", "#2f6f8f"},
                                 {"inputs, tables, results", "#8a929e"}};
constexpr const char* kInk = "#22262f";
constexpr const char* kSoft = "#707886";
constexpr double kWidth = 1200, kLeft = 84, kRight = 24, kTop = 106, kHeight = 500;
constexpr double kBarTop = kTop + kHeight + 96, kBarHeight = 34, kPage = kBarTop + kBarHeight + 40;
constexpr double kPlot = kWidth - kLeft - kRight;

std::string escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string show_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  const bool is_whole = value >= 100 || value == static_cast<double>(static_cast<int64_t>(value));
  return is_whole ? fmt::format("{:.0f} {}", value, kUnits[unit])
                  : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

// The power of two that gives four to eight lines.
int64_t grid_step(int64_t bytes) {
  int64_t step = 1;
  while (bytes / step > 8) step *= 2;
  return step;
}

int grid_step_nodes(int nodes) {
  for (int step = 1;; step *= 10) {
    for (int factor : {1, 2, 5}) {
      if (nodes / (step * factor) <= 15) return step * factor;
    }
  }
}

BufferKind kind_of(const Value& v, bool is_communication) {
  if (is_communication) return BufferKind::kCommunication;
  if (v.kind == ValueKind::kGradient) return BufferKind::kParameterGradient;
  return v.name.starts_with("d.") ? BufferKind::kActivationGradient : BufferKind::kActivation;
}

size_t kept_style(ValueKind kind) {
  if (kind == ValueKind::kParameter) return 0;
  if (kind == ValueKind::kGradient) return 1;
  return kind == ValueKind::kState ? 2 : 3;
}

class Picture {
 public:
  Picture(const Plan& plan, const std::string& title)
      : plan_(plan), buffers_(step_buffers(plan)), title_(title) {
    for (const auto* list : {&plan.graph.pass, &plan.graph.finish}) {
      for (const Node& n : *list) nodes_.push_back(&n);
    }
    find_fullest();
  }

  std::string draw() {
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        kWidth, kPage);
    draw_heading();
    draw_grid();
    for (const Buffer& b : buffers_) draw_box(b);
    draw_phases();
    draw_fullest();
    draw_kept();
    return svg_ + "</svg>\n";
  }

 private:
  int num_nodes() const { return std::max<int>(1, static_cast<int>(nodes_.size())); }
  double x_of(int node) const { return kLeft + kPlot * node / num_nodes(); }
  double y_of(int64_t offset) const {
    const auto all = static_cast<double>(std::max<int64_t>(1, plan_.memory.step_bytes));
    return kTop + kHeight * (1 - static_cast<double>(offset) / all);
  }

  void text(double x, double y, const std::string& words, const char* more = "",
            const char* color = kInk) {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" {}>{}</text>\n", x, y, color,
                        more, escape(words));
  }
  void line(double x1, double y1, double x2, double y2, const char* color, const char* more = "") {
    svg_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" {}/>\n", x1,
        y1, x2, y2, color, more);
  }
  // A white rim separates neighbours; thin boxes have none.
  void box(double x, double y, double width, double height, const char* color,
           const std::string& title) {
    const double rim = std::min({0.6, width / 4, height / 4});
    svg_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" "
        "stroke=\"#ffffff\" stroke-width=\"{:.2f}\"><title>{}</title></rect>\n",
        x, y, width, height, color, rim, escape(title));
  }

  void find_fullest() {
    std::vector<int64_t> change(static_cast<size_t>(num_nodes()) + 1, 0);
    for (const Buffer& b : buffers_) {
      change[static_cast<size_t>(b.first)] += b.bytes;
      change[static_cast<size_t>(b.last) + 1] -= b.bytes;
    }
    int64_t live = 0;
    for (size_t t = 0; t < change.size(); ++t) {
      live += change[t];
      if (live <= most_) continue;
      most_ = live;
      fullest_ = static_cast<int>(t);
    }
  }

  void draw_heading() {
    text(kLeft, 34, "Memory over one step, rank 0: " + title_,
         "font-size=\"19\" font-weight=\"bold\"");
    std::string fullest = "empty";
    if (!buffers_.empty()) {
      fullest = fmt::format("peak at node {}, {} (dashed): {}", fullest_,
                            op_name(nodes_[static_cast<size_t>(fullest_)]->op), show_bytes(most_));
    }
    text(kLeft, 56,
         fmt::format("step region {}, {}; a box has its name as a tooltip",
                     show_bytes(plan_.memory.step_bytes), fullest),
         "", kSoft);
    double x = kLeft;
    for (size_t kind = 0; kind < std::size(kBufferStyles); ++kind) {
      const bool is_there = std::any_of(buffers_.begin(), buffers_.end(), [&](const Buffer& b) {
        return static_cast<size_t>(b.kind) == kind;
      });
      if (is_there) x = draw_key(x, 76, kBufferStyles[kind]);
    }
  }

  double draw_key(double x, double y, const Style& style) {
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{}\"/>\n", x,
        y - 10, style.color);
    text(x + 16, y, style.label);
    return x + 40 + 6.2 * static_cast<double>(std::string_view(style.label).size());
  }

  void draw_grid() {
    const int64_t step = grid_step(plan_.memory.step_bytes);
    for (int64_t at = 0; at <= plan_.memory.step_bytes; at += step) {
      line(kLeft, y_of(at), kLeft + kPlot, y_of(at), "#e4e7eb");
      text(kLeft - 8, y_of(at) + 4, show_bytes(at), "text-anchor=\"end\"", kSoft);
    }
    const int every = grid_step_nodes(num_nodes());
    for (int t = 0; t < num_nodes(); t += every) {
      const double x = (x_of(t) + x_of(t + 1)) / 2;
      line(x, kTop + kHeight, x, kTop + kHeight + 5, kSoft);
      text(x, kTop + kHeight + 19, std::to_string(t), "text-anchor=\"middle\"", kSoft);
    }
    text(kLeft + kPlot / 2, kTop + kHeight + 40, "node of the step (its number in --dump)",
         "text-anchor=\"middle\"", kSoft);
    const std::string turned = fmt::format(
        "text-anchor=\"middle\" transform=\"rotate(-90 18 {:.1f})\"", kTop + kHeight / 2);
    text(18, kTop + kHeight / 2, "bytes from the start of the step region", turned.c_str(), kSoft);
  }

  void draw_box(const Buffer& b) {
    const double x = x_of(b.first), width = x_of(b.last + 1) - x;
    const double y = y_of(b.offset + b.bytes), height = y_of(b.offset) - y;
    box(x, y, width, height, kBufferStyles[static_cast<size_t>(b.kind)].color,
        fmt::format("{}\n{} bytes at {}, nodes {} to {}", b.name, b.bytes, b.offset, b.first,
                    b.last));
    const std::string first = b.name.substr(0, b.name.find(','));
    if (height < 13 || width < 6.4 * static_cast<double>(first.size()) + 8) return;
    text(x + 5, y + std::min(height / 2 + 4, 15.0), first,
         "font-size=\"11\" pointer-events=\"none\"", "#ffffff");
  }

  // Where forward ends, backward ends, and the optimizer begins.
  void draw_phases() {
    const auto size = static_cast<int>(plan_.graph.pass.size());
    int backward = size;
    for (int t = 0; t < size && backward == size; ++t) {
      if (nodes_[static_cast<size_t>(t)]->op->traits.begins_backward) backward = t;
    }
    const auto phase = [&](int begin, int end, const char* name) {
      if (begin == end) return;
      if (begin > 0) line(x_of(begin), kTop - 16, x_of(begin), kTop + kHeight, kInk);
      if (x_of(end) - x_of(begin) < 56) return;
      text((x_of(begin) + x_of(end)) / 2, kTop - 6, name,
           "text-anchor=\"middle\" font-weight=\"bold\"", kSoft);
    };
    phase(0, backward, "forward");
    phase(backward, size, "backward");
    phase(size, static_cast<int>(nodes_.size()), "optimizer");
  }

  void draw_fullest() {
    if (buffers_.empty()) return;
    const double x = (x_of(fullest_) + x_of(fullest_ + 1)) / 2;
    line(x, kTop, x, kTop + kHeight, kInk, "stroke-dasharray=\"4 3\" pointer-events=\"none\"");
  }

  // One bar, sorted by kind; widths are bytes.
  void draw_kept() {
    const std::vector<std::string> names = unique_names(plan_.graph);
    const auto all = static_cast<double>(std::max<int64_t>(1, plan_.memory.persistent_bytes));
    text(kLeft, kBarTop - 30,
         fmt::format("Kept from step to step: {}", show_bytes(plan_.memory.persistent_bytes)),
         "font-weight=\"bold\"");
    double x = kLeft, key = kLeft;
    for (size_t style = 0; style < std::size(kKeptStyles); ++style) {
      int64_t sum = 0;
      for (size_t i = 0; i < names.size(); ++i) {
        const Place& p = plan_.memory.places[i];
        const Value& v = plan_.graph.values[i];
        if (p.region != Place::Region::kPersistent || kept_style(v.kind) != style) continue;
        const double width = kPlot * static_cast<double>(align_up(p.bytes)) / all;
        box(x, kBarTop, width, kBarHeight, kKeptStyles[style].color,
            fmt::format("{}\n{} {}, {} bytes", names[i], to_string(v.shape), dtype_name(v.dtype),
                        p.bytes));
        x += width;
        sum += align_up(p.bytes);
      }
      if (sum == 0) continue;
      const std::string label = fmt::format("{} {}", kKeptStyles[style].label, show_bytes(sum));
      key = draw_key(key, kBarTop - 10, {label.c_str(), kKeptStyles[style].color});
    }
  }

  const Plan& plan_;
  const std::vector<Buffer> buffers_;
  const std::string title_;
  std::vector<const Node*> nodes_;
  int64_t most_ = 0;
  int fullest_ = 0;
  std::string svg_;
};

}  // namespace

std::vector<Buffer> step_buffers(const Plan& plan) {
  const std::vector<std::string> names = unique_names(plan.graph);
  const std::set<int> communication = communication_values(plan);
  std::map<std::tuple<int64_t, int, int>, Buffer> found;  // values that share memory share these
  for (size_t i = 0; i < names.size(); ++i) {
    const Place& p = plan.memory.places[i];
    if (p.region != Place::Region::kStep || p.bytes == 0) continue;
    const bool is_communication = communication.contains(static_cast<int>(i));
    const auto [at, is_new] = found.try_emplace(
        {p.offset, p.first, p.last}, Buffer{kind_of(plan.graph.values[i], is_communication),
                                            names[i], p.offset, 0, p.first, p.last});
    Buffer& b = at->second;
    b.bytes = std::max(b.bytes, align_up(p.bytes));
    if (!is_new) b.name += ", " + names[i];
  }
  std::vector<Buffer> buffers;
  for (auto& [place, buffer] : found) buffers.push_back(std::move(buffer));
  for (size_t t = 0; t < plan.memory.scratch.size(); ++t) {
    const Place& p = plan.memory.scratch[t];
    if (p.region == Place::Region::kNone) continue;
    buffers.push_back({BufferKind::kScratch, fmt::format("scratch of node {}", t), p.offset,
                       align_up(p.bytes), p.first, p.last});
  }
  return buffers;
}

std::string draw_memory(const Plan& plan, const std::string& title) {
  return Picture(plan, title).draw();
}

}  // namespace weft
