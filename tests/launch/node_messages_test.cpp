// tests/launch/node_messages_test.cpp: messages of agents and supervisors are read as they were
// written, and refused where they are not whole.
#include "launch/node_messages.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace weft {
namespace {

NodeStart some_start() {
  NodeStart start;
  start.generation = 3;
  start.node = 1;
  start.num_nodes = 2;
  start.ranks_per_node = 4;
  start.threads = 2;
  start.deadline_ms = 30'000;
  start.argv = {"weft", "train", "a \"run\".yaml"};
  start.env = {{"A", "1"}, {"B", ""}};
  start.directory = "/shared/dir";
  start.files = {{"run.yaml", "0123456789abcdef"}};
  start.marker = "/runs/x/.nodes";
  start.marker_text = "abc";
  start.store = "10.0.0.1:4711";
  start.has_saved = true;
  start.step = 40;
  start.is_from_previous = true;
  return start;
}

TEST(NodeMessages, AStartIsReadAsItWasWritten) {
  const NodeStart sent = some_start(), got = NodeStart::read(sent.write());
  EXPECT_EQ(got.write(), sent.write());
  EXPECT_EQ(got.argv, sent.argv);
  EXPECT_EQ(got.env, sent.env);
  EXPECT_EQ(got.files, sent.files);
  EXPECT_EQ(got.node, 1);
  EXPECT_TRUE(got.has_saved);
  EXPECT_TRUE(got.is_from_previous);
}

TEST(NodeMessages, OtherMessagesAreReadAsTheyWereWritten) {
  const Hello hello = Hello::read(Hello{"node7", 4711, 8, true, "10.0.0.7:99", "a1b2"}.write());
  EXPECT_EQ(hello.host, "node7");
  EXPECT_EQ(hello.pid, 4711);
  EXPECT_TRUE(hello.is_first);
  EXPECT_EQ(hello.slots, "10.0.0.7:99");
  EXPECT_EQ(hello.id, "a1b2");
  const Drop drop = Drop::read(Drop{"node7", 4711}.write());
  EXPECT_EQ(drop.host, "node7");
  EXPECT_EQ(drop.pid, 4711);
  EXPECT_THROW(Drop::read(R"({"host": "node7", "pid": 0})"), PeerError);
  Beat sent{2, 77, true, false, true, 4096, true, 1024};
  sent.ranks.resize(2);
  sent.ranks[0].resident_bytes = sent.ranks[0].anonymous_bytes = 0;
  sent.ranks[1] = {4712, true, {Phase::kSaving, 76, 0, 20, true}, "", 8192, 4096};
  const Beat beat = Beat::read(sent.write());
  EXPECT_EQ(beat.write(), sent.write());
  ASSERT_EQ(beat.ranks.size(), 2u);
  EXPECT_EQ(beat.ranks[1].pid, 4712);
  EXPECT_EQ(beat.ranks[1].sign.phase, Phase::kSaving);
  EXPECT_EQ(beat.ranks[1].sign.at_ms, 20);
  EXPECT_EQ(beat.ranks[1].resident_bytes, 8192);
  EXPECT_EQ(beat.step, 77);
  EXPECT_TRUE(beat.has_saved);
  EXPECT_FALSE(beat.is_finishing);
  EXPECT_TRUE(beat.has_stepped);
  const RankEnd end = RankEnd::read(RankEnd{2, 5, 0, 9, true, "gone", true}.write());
  EXPECT_EQ(end.rank, 5);
  EXPECT_EQ(end.signal, 9);
  EXPECT_TRUE(end.was_killed);
  EXPECT_EQ(end.words, "gone");
  EXPECT_TRUE(end.has_waited);
  const Verdict verdict = Verdict::read(Verdict{1, 2, "storage is not shared"}.write());
  EXPECT_EQ(verdict.exit_code, 2);
  EXPECT_EQ(read_number(write_number(-15)), -15);
}

TEST(NodeMessages, ALineMayHoldAnyBytes) {
  const std::string bytes("\xff\0 \x80 tail", 9);
  const OutputLine line = OutputLine::read(OutputLine{12, true, bytes}.write());
  EXPECT_EQ(line.rank, 12);
  EXPECT_TRUE(line.is_error);
  EXPECT_EQ(line.text, bytes);
  for (const char* bad : {"", "1", "1 x text", "-1 o text", "1048576 o text", "a o text", "1 o"})
    EXPECT_THROW(OutputLine::read(bad), PeerError) << bad;
}

// Every field matters: without it, or with a value of another type or out of range.
TEST(NodeMessages, AMessageThatIsNotWholeIsRefused) {
  const Json whole = parse_json(some_start().write(), "start");
  for (const auto& [key, value] : whole.as_object()) {
    Json::Object without, other;
    for (const auto& [name, field] : whole.as_object()) {
      if (name != key) without.emplace_back(name, field);
      other.emplace_back(name, name == key ? Json(1.5) : field);
    }
    EXPECT_THROW(NodeStart::read(Json(without).dump()), PeerError) << key;
    EXPECT_THROW(NodeStart::read(Json(other).dump()), PeerError) << key;
  }
  NodeStart outside = some_start();
  outside.node = 2;
  EXPECT_THROW(NodeStart::read(outside.write()), PeerError);
  outside = some_start();
  outside.ranks_per_node = kMaxRanks;
  EXPECT_THROW(NodeStart::read(outside.write()), PeerError);
  for (const char* bad : {"", "{", "[]", "null", "{\"generation\":-1}"}) {
    EXPECT_THROW(NodeStart::read(bad), PeerError) << bad;
    EXPECT_THROW(Hello::read(bad), PeerError) << bad;
    EXPECT_THROW(Beat::read(bad), PeerError) << bad;
    EXPECT_THROW(RankEnd::read(bad), PeerError) << bad;
    EXPECT_THROW(Verdict::read(bad), PeerError) << bad;
  }
  for (const char* bad : {"", "a", "1 ", "0x1", "99999999999999999999"})
    EXPECT_THROW(read_number(bad), PeerError) << bad;
}

TEST(NodeMessages, LongWordsAreCutToWholeCharacters) {
  std::string words;
  while (words.size() < 9000) words += "\xC3\xA4";
  const std::string cut = Verdict::read(Verdict{0, 1, words}.write()).words;
  EXPECT_EQ(cut.size(), 8192u);
  EXPECT_TRUE(words.starts_with(cut));
}

}  // namespace
}  // namespace weft
