// tests/io/pickle_test.cpp: the values of pickles, and pickles that lie.
#include "io/pickle.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/torch_bytes.h"

namespace weft {
namespace {

using testing::pickled::call;
using testing::pickled::dict;
using testing::pickled::global;
using testing::pickled::list;
using testing::pickled::number;
using testing::pickled::ordered;
using testing::pickled::text;
using testing::pickled::tuple;
using testing::pickled::whole;
using namespace std::string_literals;
using testing::error_of;
using Kind = Pickle::Kind;

std::string pickle_refusal(const std::string& bytes) {
  return error_of<UserError>([&] { Pickle(bytes, "lie.pkl"); });
}
void expect_refused(const std::string& bytes, const std::string& reason) {
  EXPECT_NE(pickle_refusal(bytes).find(reason), std::string::npos) << pickle_refusal(bytes);
}

TEST(PickleReader, PlainValues) {
  const std::string bytes = whole(
      list({"N", "\x88", "\x89", number(-5), "K\xff", "M\xff\xff", "\x8a\x01\xfe"s, "\x8a\x00"s,
            "\x8a\x09" + std::string(9, '\x01'), "G\x3f\xf8" + std::string(6, '\0'), text("näme"),
            "C\x02" + "\xff\x00"s, "\x8f(" + number(1) + "\x90", tuple({number(1), number(2)})}));
  const Pickle pickle(bytes, "values");
  const PickleValue v = pickle.root();
  const std::vector<Kind> kinds = {Kind::kNull,     Kind::kBool,  Kind::kBool,   Kind::kInt,
                                   Kind::kInt,      Kind::kInt,   Kind::kInt,    Kind::kInt,
                                   Kind::kLargeInt, Kind::kFloat, Kind::kString, Kind::kBytes,
                                   Kind::kSet,      Kind::kTuple};
  ASSERT_EQ(v.size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(v[i].kind(), kinds[i]) << i;
  EXPECT_EQ(v[3].as_int(), -5);
  EXPECT_EQ(v[4].as_int(), 255);
  EXPECT_EQ(v[5].as_int(), 65535);
  EXPECT_EQ(v[6].as_int(), -2);
  EXPECT_EQ(v[7].as_int(), 0);
  EXPECT_EQ(v[10].as_string(), "näme");
  EXPECT_EQ(v[13][1].as_int(), 2);
  EXPECT_NE(error_of<UserError>([&] {
              static_cast<void>(v[10].as_int());
            }).find("found a str, wanted an int"),
            std::string::npos);
  EXPECT_NE(error_of<UserError>([&] { static_cast<void>(v[13][2]); }).find("of 2 elements"),
            std::string::npos);
}

TEST(PickleReader, DictsAndTheirKeys) {
  const std::string bytes =
      whole("}(" + text("a") + number(1) + number(7) + number(2) + text("a") + number(3) + "u");
  const Pickle pickle(bytes, "dict");
  const PickleValue d = pickle.root();
  ASSERT_EQ(d.num_entries(), 3u);
  EXPECT_EQ(d.key(1).as_int(), 7);
  EXPECT_EQ(d.at("a").as_int(), 3);  // the last one wins, as in Python
  EXPECT_FALSE(d.find("b").has_value());
  EXPECT_NE(error_of<UserError>([&] { static_cast<void>(d.at("b")); }).find("no \"b\""),
            std::string::npos);
}

// Where Python would import and call, there is a value that names what would have been called.
TEST(PickleReader, NothingIsCalled) {
  const std::string bytes =
      whole(list({call("posix", "system", tuple({text("echo")})),
                  ordered(dict({{"k", number(1)}})) + dict({{"_metadata", "N"}}) + "b",
                  global("some", "Class") + ")\x81" + dict({{"x", number(4)}}) + "b"}));
  const Pickle pickle(bytes, "objects");
  const PickleValue v = pickle.root();
  EXPECT_EQ(v[0].class_name(), "posix.system");
  EXPECT_TRUE(v[0].is_object("posix.system"));
  EXPECT_FALSE(v[0].is_object("posix_system"));
  EXPECT_EQ(v[0].arguments()[0].as_string(), "echo");
  EXPECT_TRUE(v[1].is_dict());
  EXPECT_EQ(v[1].at("k").as_int(), 1);
  EXPECT_EQ(v[2].class_name(), "some.Class");
  EXPECT_EQ(v[2].state()->at("x").as_int(), 4);
}

// Protocol 4, as torch.distributed.checkpoint writes: frames, short strings, an implicit memo.
TEST(PickleReader, ProtocolFour) {
  const std::string body = "\x8c\x01m\x94\x8c\x01N\x94\x93\x94)\x81\x94}\x94(h\x00h\x01ub."s;
  const std::string bytes = "\x80\x04\x95" + testing::little_endian(body.size(), 8) + body;
  const Pickle pickle(bytes, "four");
  EXPECT_EQ(pickle.root().class_name(), "m.N");
  EXPECT_EQ(pickle.root().state()->at("m").as_string(), "N");
  expect_refused("\x80\x04\x95" + testing::little_endian(body.size() + 1, 8) + body, "frame");
}

TEST(PickleReader, OtherInstructionsAreRefusedByName) {
  for (const auto& [code, name] :
       std::vector<std::pair<std::string, std::string>>{{"i", "INST"},
                                                        {"o", "OBJ"},
                                                        {"\x82", "EXT1"},
                                                        {"P", "PERSID"},
                                                        {"I", "INT"},
                                                        {"S", "STRING"},
                                                        {"0", "POP"},
                                                        {"2", "DUP"},
                                                        {"\x92", "NEWOBJ_EX"},
                                                        {"\x8b", "LONG4"},
                                                        {"\x97", "NEXT_BUFFER"},
                                                        {"\xfe", "0xfe"},
                                                        {"p", "PUT"}}) {
    expect_refused("\x80\x02N" + code + std::string(20, '\n') + ".", "instruction " + name);
  }
  expect_refused("\x80\x01N.", "protocol 1");
  expect_refused("\x80\x06N.", "protocol 6");
  expect_refused("(N.", "does not begin as a pickle");
}

TEST(PickleReader, TheStackIsRespected) {
  expect_refused("\x80\x02.", "another number of values");
  expect_refused("\x80\x02NN.", "another number of values");
  expect_refused("\x80\x02N(.", "another number of values");
  expect_refused("\x80\x02N.N", "bytes after its end");
  expect_refused("\x80\x02R.", "more values than there are");
  expect_refused("\x80\x02N(\x85.", "more values than there are");  // below the mark
  expect_refused("\x80\x02t.", "mark that was not set");
  expect_refused("\x80\x02h\x05.", "which was not stored");
  expect_refused("\x80\x02NNa.", "no such container");
  expect_refused("\x80\x02}(Nu.", "a key has no value");
  expect_refused("\x80\x02NNR.", "no class");
  expect_refused("\x80\x02N}b.", "plain value");
  expect_refused("\x80\x02}}b}b.", "second state");
  expect_refused(
      "\x80\x02"
      "cx\ny\nNR.",
      "no tuple");
  expect_refused("\x80\x02NN\x93.", "not a string");
  expect_refused("\x80\x02X\x01\x00\x00\x00\xff."s, "not UTF-8");
}

TEST(PickleReader, StatedLengthsAreNotBelieved) {
  expect_refused("\x80\x02X\xff\xff\xff\xff.", "middle of an instruction");
  expect_refused("\x80\x02\x8d" + std::string(8, '\xff') + ".", "middle of an instruction");
  expect_refused("\x80\x02\x96" + std::string(8, '\x7f') + ".", "middle of an instruction");
}

TEST(PickleReader, TruncatedAnywhereIsRefused) {
  testing::TorchBytes torch;
  const std::string bytes = whole(ordered(dict({{"w", torch.tensor("12345678", {2})}})));
  EXPECT_EQ(Pickle(bytes, "whole").root().num_entries(), 1u);
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_NE(pickle_refusal(bytes.substr(0, n)).find("lie.pkl"), std::string::npos) << n;
  }
}

TEST(PickleReader, CyclesAreRefused) {
  expect_refused(
      "\x80\x02]q\x00h\x00"
      "a."s,
      "contains itself");
  // x = []; x.append([x]); and with a tuple
  expect_refused(
      "\x80\x02]q\x00](h\x00"
      "ea."s,
      "contains itself");
  expect_refused(
      "\x80\x02]q\x00h\x00\x85q\x01"
      "a."s,
      "contains itself");
  // Control: the same list twice is no cycle.
  EXPECT_EQ(Pickle("\x80\x02]q\x00h\x00\x86."s, "twice").root().size(), 2u);
  // Through a state and through a dict's value.
  expect_refused(
      "\x80\x02"
      "cm\nC\n)Rq\x00h\x00"
      "b."s,
      "contains itself");
  expect_refused("\x80\x02}q\x00Nh\x00s."s, "contains itself");
}

TEST(PickleReader, DepthAndSharingAreBounded) {
  const auto nested = [](int levels) {
    return "\x80\x02N" + std::string(static_cast<size_t>(levels), '\x85') + ".";
  };
  EXPECT_EQ(Pickle(nested(50), "deep").root().size(), 1u);
  expect_refused(nested(200), "nested deeper");
  expect_refused(nested(1'000'000), "nested deeper");
  // Each level twice the one before: 40 levels would unfold to 2^40 values.
  const auto doubled = [](int levels) {
    std::string bytes = "\x80\x02Nq\x00"s;
    for (int i = 0; i < levels; ++i) bytes += "h"s + '\0' + "\x86q"s + '\0';
    return bytes + ".";
  };
  EXPECT_EQ(Pickle(doubled(10), "shared").root().size(), 2u);
  expect_refused(doubled(40), "unfold to more");
}

// Both take a byte of the file, and more of the memory.
TEST(PickleReader, StoredValuesAndMarksAreBounded) {
  EXPECT_EQ(Pickle("\x80\x04]\x94(N\x94N\x94"
                   "e."s,
                   "three")
                .root()
                .size(),
            2u);
  expect_refused("\x80\x04N\x94\x94.", "stores more values than it has");
  expect_refused(
      "\x80\x02Nr" + testing::little_endian(7, 4) + "r" + testing::little_endian(8, 4) + ".",
      "stores more values than it has");
  EXPECT_EQ(Pickle("\x80\x02Nq\x01q\x01."s, "again").root().kind(), Kind::kNull);
  expect_refused("\x80\x02N" + std::string((size_t{1} << 24) + 1, '(') + ".", "too many marks");
}

}  // namespace
}  // namespace weft
