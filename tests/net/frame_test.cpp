// tests/net/frame_test.cpp: frames that were sent arrive; everything else is found.
#include "net/frame.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "tests/hex.h"
#include "tests/io/temporary_folder.h"

namespace weft::testing {
namespace {

const FrameBounds kFrameBounds = {{7, 1000}, {8, 1 << 20}, {9, 0}};

Digest key_of(uint8_t first) {
  Digest key;
  for (uint8_t& byte : key) byte = first++;
  return key;
}

struct Pair {
  FrameWriter writer{key_of(0), kFrameBounds};
  FrameReader reader{key_of(0), kFrameBounds};
};

std::string frame_complaint(FrameReader* reader, std::string_view bytes) {
  try {
    reader->feed(bytes);
    while (reader->next()) continue;
  } catch (const PeerError& e) {
    return e.what();
  }
  return "";
}

// Computed with Python's hmac module, and its integers for Poly1305.
TEST(Frame, BytesOfAnotherImplementation) {
  FrameWriter writer(key_of(0), kFrameBounds);
  EXPECT_EQ(hex(writer.write(7, "hello")), "050000000768656c6c6f21f2cd5dbe458857ec39d62712fae1a4");
  EXPECT_EQ(hex(writer.write(9, "")), "000000000925a453c5ad0123d76ee41dcd05382e66");
}

TEST(Frame, ArriveInOrderInAnyPieces) {
  std::mt19937 random(1);
  for (const size_t piece : std::initializer_list<size_t>{1, 2, 5, 21, 1000, 1 << 20}) {
    Pair pair;
    std::string wire;
    std::vector<std::string> sent;
    for (int i = 0; i < 50; ++i) {
      sent.emplace_back(random() % 1001, static_cast<char>(i));
      wire += pair.writer.write(i % 2 == 0 ? 7 : 8, sent.back());
    }
    size_t received = 0;
    for (size_t at = 0; at < wire.size(); at += piece) {
      pair.reader.feed(std::string_view(wire).substr(at, piece));
      while (const auto frame = pair.reader.next()) {
        ASSERT_LT(received, sent.size());
        EXPECT_EQ(frame->kind, received % 2 == 0 ? 7 : 8);
        EXPECT_EQ(frame->payload, sent[received++]);
      }
    }
    EXPECT_EQ(received, sent.size());
    EXPECT_EQ(pair.reader.buffered_bytes(), 0U);
  }
}

TEST(Frame, EveryChangedBitIsFound) {
  const std::string first = FrameWriter(key_of(0), kFrameBounds).write(7, "a message");
  for (size_t bit = 0; bit < 8 * first.size(); ++bit) {
    Pair pair;
    std::string wire = pair.writer.write(7, "a message");
    ASSERT_EQ(wire, first);
    wire[bit / 8] = static_cast<char>(wire[bit / 8] ^ (1 << (bit % 8)));
    wire += pair.writer.write(8, std::string(2000, 'x'));  // a longer length is waited for
    EXPECT_NE(frame_complaint(&pair.reader, wire), "") << bit;
  }
}

TEST(Frame, RepeatedLostSwappedAndReflectedFramesAreFound) {
  const std::string wrong = "a message that the peer has not sent, or not now: its tag is wrong";
  {
    Pair pair;
    const std::string frame = pair.writer.write(7, "once");
    EXPECT_EQ(frame_complaint(&pair.reader, frame), "");
    EXPECT_EQ(frame_complaint(&pair.reader, frame), wrong);
  }
  {
    Pair pair;
    const std::string lost = pair.writer.write(7, "lost");
    EXPECT_EQ(frame_complaint(&pair.reader, pair.writer.write(7, "next")), wrong);
  }
  {
    Pair pair;
    const std::string a = pair.writer.write(7, "a"), b = pair.writer.write(7, "b");
    EXPECT_EQ(frame_complaint(&pair.reader, b + a), wrong);
  }
  FrameWriter here(key_of(0), kFrameBounds);
  FrameReader own(key_of(1), kFrameBounds);  // the other direction has another key
  EXPECT_EQ(frame_complaint(&own, here.write(7, "back")), wrong);
}

TEST(Frame, AfterAFailureNothingIsRead) {
  Pair pair;
  const std::string good = pair.writer.write(7, "good");
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  EXPECT_NE(frame_complaint(&pair.reader, bad), "");
  EXPECT_NE(frame_complaint(&pair.reader, good), "");
  EXPECT_EQ(pair.reader.buffered_bytes(), 0U);
}

// Refused at the header: no byte of it is waited for, no memory taken.
TEST(Frame, LengthsAndKindsOutsideTheBoundsAreRefusedAtOnce) {
  const std::pair<std::string, std::string> cases[] = {
      {std::string("\xff\xff\xff\xff\x07", 5),
       "a message of kind 7 with 4294967295 bytes, 1000 at most"},
      {std::string("\xe9\x03\0\0\x07", 5), "a message of kind 7 with 1001 bytes, 1000 at most"},
      {std::string("\x01\0\0\0\x09", 5), "a message of kind 9 with 1 bytes, 0 at most"},
      {std::string("\0\0\0\0\x01", 5), "a message of unknown kind 1"},
      {"GET / HTTP/1.1\r\n\r\n", "a message of unknown kind 47"},
  };
  for (const auto& [bytes, wanted] : cases) {
    Pair pair;
    EXPECT_EQ(frame_complaint(&pair.reader, bytes), wanted);
  }
  Pair pair;
  EXPECT_THROW(std::ignore = pair.writer.write(7, std::string(1001, 'x')), BugError);
  EXPECT_THROW(std::ignore = pair.writer.write(1, ""), BugError);
}

TEST(Frame, RandomBytesAreNeverAFrame) {
  std::mt19937 random(2);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    // Half of them with a header that is in bounds.
    if (bytes.size() >= 5 && i % 2 == 0) {
      const size_t length = bytes.size() < 21 ? 0 : bytes.size() - 21;
      bytes.replace(0, 5, {static_cast<char>(length), static_cast<char>(length >> 8), 0, 0, 7});
    }
    Pair pair;
    pair.reader.feed(bytes);
    try {
      EXPECT_EQ(pair.reader.next(), std::nullopt);
    } catch (const PeerError&) {
      continue;
    }
  }
}

// Its frames would have the numbers of those that the other one writes.
TEST(Frame, AWriterThatWasMovedFromWritesNoMore) {
  FrameWriter first(key_of(0), kFrameBounds), other(key_of(1), kFrameBounds);
  FrameReader reader(key_of(0), kFrameBounds);
  std::vector<FrameWriter*> moved = {&first};
  reader.feed(first.write(7, "one"));
  FrameWriter second = std::move(first);
  moved.push_back(&second);
  reader.feed(second.write(7, "two"));
  other = std::move(second);
  reader.feed(other.write(7, "three"));
  for (const char* text : {"one", "two", "three"}) EXPECT_EQ(reader.next(), (Frame{7, text}));
  for (FrameWriter* from : moved) {
    const std::string error = error_of<BugError>([&] { static_cast<void>(from->write(7, "x")); });
    EXPECT_NE(error.find("moved from"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace weft::testing
