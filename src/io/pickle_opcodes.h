// io/pickle_opcodes.h: the instructions of pickles, protocols 2 to 5, that are read; and the names
// of those that are not.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace weft {

enum class Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinFloat = 'G',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

// Python's name of an instruction that is not read.
inline std::string opcode_name(Op op) {
  constexpr std::pair<uint8_t, const char*> kRefused[] = {
      {'0', "POP"},          {'1', "POP_MARK"},
      {'2', "DUP"},          {'F', "FLOAT"},
      {'I', "INT"},          {'L', "LONG"},
      {'P', "PERSID"},       {'S', "STRING"},
      {'T', "BINSTRING"},    {'U', "SHORT_BINSTRING"},
      {'V', "UNICODE"},      {'d', "DICT"},
      {'g', "GET"},          {'i', "INST"},
      {'l', "LIST"},         {'o', "OBJ"},
      {'p', "PUT"},          {0x82, "EXT1"},
      {0x83, "EXT2"},        {0x84, "EXT4"},
      {0x8b, "LONG4"},       {0x92, "NEWOBJ_EX"},
      {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"}};
  for (const auto& [code, name] : kRefused) {
    if (code == static_cast<uint8_t>(op)) return name;
  }
  return fmt::format("0x{:02x}, which Python does not know either", static_cast<uint8_t>(op));
}

}  // namespace weft
