// launch/node_messages.cpp: messages as JSON objects, read strictly.
#include "launch/node_messages.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "launch/message_fields.h"

namespace weft {
namespace {

using Fields = MessageFields;

constexpr uint32_t kMaxLine = 70 << 10, kMaxText = 64 << 10, kMaxStart = 4 << 20;

Json::Array array_of(const std::vector<std::string>& texts) {
  Json::Array all;
  for (const std::string& text : texts) all.emplace_back(text);
  return all;
}

Json::Object object_of(const std::map<std::string, std::string>& pairs) {
  Json::Object all;
  for (const auto& [key, value] : pairs) all.emplace_back(key, Json(value));
  return all;
}

}  // namespace

FrameBounds node_message_bounds() {
  const auto bound = [](NodeMessage kind, uint32_t bytes) {
    return FrameBounds::Bound{static_cast<uint8_t>(kind), bytes};
  };
  return {bound(NodeMessage::kHello, kMaxText),   bound(NodeMessage::kBeat, kMaxText),
          bound(NodeMessage::kLine, kMaxLine),    bound(NodeMessage::kEnded, kMaxText),
          bound(NodeMessage::kRefused, kMaxText), bound(NodeMessage::kSignal, 64),
          bound(NodeMessage::kStopping, 64),      bound(NodeMessage::kParked, kMaxText),
          bound(NodeMessage::kHung, kMaxText),    bound(NodeMessage::kDrop, kMaxText),
          bound(NodeMessage::kWelcome, 0),        bound(NodeMessage::kStart, kMaxStart),
          bound(NodeMessage::kKill, 64),          bound(NodeMessage::kStop, 64),
          bound(NodeMessage::kAlive, 0),          bound(NodeMessage::kLeave, kMaxText),
          bound(NodeMessage::kPark, kMaxText),    bound(NodeMessage::kResume, kMaxText),
          bound(NodeMessage::kForget, 0)};
}

void queue_message(Channel* to, NodeMessage kind, std::string_view payload) {
  to->queue(static_cast<uint8_t>(kind), payload);
}

std::string Hello::write() const {
  return dump_message({{"host", host},
                       {"pid", pid},
                       {"cores", cores},
                       {"is_first", is_first},
                       {"slots", slots},
                       {"id", id}});
}

Hello Hello::read(std::string_view text) {
  const Fields fields(text, "an agent's hello");
  if (fields.text("id").empty()) throw PeerError("an agent's hello without an id");
  return {fields.text("host"),
          fields.number("pid", 1, INT32_MAX),
          fields.number("cores", 1, 1 << 20),
          fields.flag("is_first"),
          fields.text("slots"),
          fields.text("id")};
}

std::string Drop::write() const { return dump_message({{"host", host}, {"pid", pid}}); }

Drop Drop::read(std::string_view text) {
  const Fields fields(text, "a report of a lost node");
  return {fields.text("host"), fields.number("pid", 1, INT32_MAX)};
}

std::string Beat::write() const {
  Json::Array all;
  for (const RankStatus& rank : ranks) {
    all.emplace_back(Json::Object{{"pid", int64_t{rank.pid}},
                                  {"is_running", rank.is_running},
                                  {"phase", static_cast<int64_t>(rank.sign.phase)},
                                  {"step", rank.sign.step},
                                  {"age_ms", rank.sign.at_ms},
                                  {"is_waiting", rank.sign.is_waiting},
                                  {"resident_bytes", rank.resident_bytes},
                                  {"anonymous_bytes", rank.anonymous_bytes}});
  }
  return dump_message({{"generation", generation},
                       {"step", step},
                       {"has_saved", has_saved},
                       {"is_finishing", is_finishing},
                       {"is_opened", is_opened},
                       {"shared_bytes", shared_bytes},
                       {"has_stepped", has_stepped},
                       {"segment_bytes", segment_bytes},
                       {"ranks", std::move(all)}});
}

Beat Beat::read(std::string_view text) {
  const Fields fields(text, "an agent's beat");
  Beat beat{fields.number("generation", 0, INT64_MAX),
            fields.number("step", 0, INT64_MAX),
            fields.flag("has_saved"),
            fields.flag("is_finishing"),
            fields.flag("is_opened"),
            fields.number("shared_bytes", 0, INT64_MAX),
            fields.flag("has_stepped"),
            fields.number("segment_bytes", 0, INT64_MAX)};
  for (const Json& one : fields.items("ranks")) {
    const Fields rank(one, "a rank of an agent's beat");
    RankStatus status;
    status.pid = static_cast<pid_t>(rank.number("pid", -1, INT32_MAX));
    status.is_running = rank.flag("is_running");
    status.sign.phase =
        static_cast<Phase>(rank.number("phase", 0, static_cast<int64_t>(Phase::kRecovering)));
    status.sign.step = rank.number("step", 0, INT64_MAX);
    status.sign.at_ms = rank.number("age_ms", 0, INT64_MAX / 2);
    status.sign.is_waiting = rank.flag("is_waiting");
    status.resident_bytes = rank.number("resident_bytes", 0, INT64_MAX);
    status.anonymous_bytes = rank.number("anonymous_bytes", 0, INT64_MAX);
    beat.ranks.push_back(status);
  }
  return beat;
}

std::string OutputLine::write() const {
  return fmt::format("{} {} ", rank, is_error ? 'e' : 'o') + text;
}

OutputLine OutputLine::read(std::string_view text) {
  const size_t first = text.find(' ');
  const bool is_whole = first != std::string_view::npos && text.size() >= first + 3 &&
                        (text[first + 1] == 'o' || text[first + 1] == 'e') &&
                        text[first + 2] == ' ';
  if (!is_whole) throw PeerError("an agent's line has no rank or stream");
  const int64_t rank = read_number(text.substr(0, first));
  if (rank < 0 || rank >= kMaxRanks) throw PeerError("an agent's line of an impossible rank");
  return {rank, text[first + 1] == 'e', std::string(text.substr(first + 3))};
}

std::string RankEnd::write() const {
  return dump_message({{"generation", generation},
                       {"rank", rank},
                       {"exit_code", exit_code},
                       {"signal", signal},
                       {"was_killed", was_killed},
                       {"words", shortened(words)},
                       {"has_waited", has_waited}});
}

RankEnd RankEnd::read(std::string_view text) {
  const Fields fields(text, "a rank's end");
  return {fields.number("generation", 0, INT64_MAX),
          fields.number("rank", 0, kMaxRanks - 1),
          static_cast<int>(fields.number("exit_code", 0, 255)),
          static_cast<int>(fields.number("signal", 0, 127)),
          fields.flag("was_killed"),
          fields.text("words"),
          fields.flag("has_waited")};
}

std::string Verdict::write() const {
  return dump_message(
      {{"generation", generation}, {"exit_code", exit_code}, {"words", shortened(words)}});
}

Verdict Verdict::read(std::string_view text) {
  const Fields fields(text, "a verdict");
  return {fields.number("generation", 0, INT64_MAX),
          static_cast<int>(fields.number("exit_code", 0, 255)), fields.text("words")};
}

std::string NodeStart::write() const {
  return dump_message({{"generation", generation},
                       {"node", node},
                       {"num_nodes", num_nodes},
                       {"ranks_per_node", ranks_per_node},
                       {"threads", threads},
                       {"deadline_ms", deadline_ms},
                       {"argv", array_of(argv)},
                       {"env", object_of(env)},
                       {"directory", directory},
                       {"files", object_of(files)},
                       {"marker", marker},
                       {"marker_text", marker_text},
                       {"store", store},
                       {"has_saved", has_saved},
                       {"has_snapshots", has_snapshots},
                       {"step", step},
                       {"last_step", last_step},
                       {"copies_at", copies_at},
                       {"is_from_previous", is_from_previous}});
}

NodeStart NodeStart::read(std::string_view text) {
  const Fields fields(text, "a node's start");
  NodeStart start;
  start.generation = fields.number("generation", 0, INT64_MAX);
  start.num_nodes = fields.number("num_nodes", 1, kMaxNodes);
  start.node = fields.number("node", 0, start.num_nodes - 1);
  start.ranks_per_node = fields.number("ranks_per_node", 1, kMaxRanks / start.num_nodes);
  start.threads = fields.number("threads", 0, 1 << 20);
  start.deadline_ms = fields.number("deadline_ms", 1, INT64_MAX);
  start.argv = fields.texts("argv");
  start.env = fields.pairs("env");
  start.directory = fields.text("directory");
  start.files = fields.pairs("files");
  start.marker = fields.text("marker");
  start.marker_text = fields.text("marker_text");
  start.store = fields.text("store");
  start.has_saved = fields.flag("has_saved");
  start.has_snapshots = fields.flag("has_snapshots");
  start.step = fields.number("step", -1, INT64_MAX);
  start.last_step = fields.number("last_step", 0, INT64_MAX);
  start.copies_at = fields.text("copies_at");
  start.is_from_previous = fields.flag("is_from_previous");
  if (start.argv.empty()) throw PeerError("a node's start without a command");
  return start;
}

std::string write_number(int64_t number) { return std::to_string(number); }

int64_t read_number(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size())
    throw PeerError("a message that should be a number is none");
  return value;
}

}  // namespace weft
