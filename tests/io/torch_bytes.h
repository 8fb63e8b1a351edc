// tests/io/torch_bytes.h: small pickles, zip archives and files of torch.save, byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft::testing {

inline std::string little_endian(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

// The members of a zip archive, stored, with a zip64 end record as torch.save writes it.
class ZipBytes {
 public:
  struct Member {
    std::string name, data;
    uint16_t method = 0, flags = 0x808;
    size_t header = 0;
    uint32_t checksum = 0;
  };
  ZipBytes& add(std::string name, std::string data) {
    members.push_back({std::move(name), std::move(data)});
    return *this;
  }
  std::string bytes() {
    std::string out;
    for (Member& m : members) {
      m.header = out.size();
      // Padding as an extra field, so that the data is aligned.
      const size_t pad = (64 - (out.size() + 34 + m.name.size()) % 64) % 64;
      out += "PK\x03\x04" + little_endian(0, 2) + little_endian(m.flags, 2) +
             little_endian(m.method, 2) + std::string(16, '\0') + little_endian(m.name.size(), 2) +
             little_endian(pad + 4, 2) + m.name + "FB" + little_endian(pad, 2) +
             std::string(pad, 'Z') + m.data;
    }
    const size_t directory = out.size();
    for (const Member& m : members) {
      out += "PK\x01\x02" + little_endian(0, 4) + little_endian(m.flags, 2) +
             little_endian(m.method, 2) + std::string(4, '\0') + little_endian(m.checksum, 4) +
             little_endian(m.data.size(), 4) + little_endian(m.data.size(), 4) +
             little_endian(m.name.size(), 2) + std::string(12, '\0') + little_endian(m.header, 4) +
             m.name;
    }
    const size_t end = out.size(), size = end - directory, n = members.size();
    out += "PK\x06\x06" + little_endian(44, 8) + little_endian(0x2d031e, 4) + little_endian(0, 8) +
           little_endian(n, 8) + little_endian(n, 8) + little_endian(size, 8) +
           little_endian(directory, 8);
    out += "PK\x06\x07" + little_endian(0, 4) + little_endian(end, 8) + little_endian(1, 4);
    out += "PK\x05\x06" + little_endian(0, 4) + little_endian(n, 2) + little_endian(n, 2) +
           little_endian(size, 4) + little_endian(directory, 4) + little_endian(0, 2);
    return out;
  }
  std::vector<Member> members;
};

// Expressions of pickles, protocol 2, without their beginning and end.
namespace pickled {
inline std::string text(const std::string& s) { return "X" + little_endian(s.size(), 4) + s; }
inline std::string number(int64_t n) { return "J" + little_endian(static_cast<uint64_t>(n), 4); }
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& p : parts) out += p;
  return out;
}
inline std::string tuple(const std::vector<std::string>& parts) { return "(" + join(parts) + "t"; }
inline std::string list(const std::vector<std::string>& parts) { return "](" + join(parts) + "e"; }
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "}(";
  for (const auto& [key, value] : entries) out += text(key) + value;
  return out + "u";
}
inline std::string numbers(const std::vector<int64_t>& values) {
  std::vector<std::string> parts;
  for (const int64_t v : values) parts.push_back(number(v));
  return tuple(parts);
}
inline std::string call(const std::string& module, const std::string& name,
                        const std::string& arguments) {
  return global(module, name) + arguments + "R";
}
inline std::string ordered(const std::string& dict_text) {  // an OrderedDict of the same entries
  return call("collections", "OrderedDict", ")") + dict_text.substr(1);
}
inline std::string size(const std::vector<int64_t>& values) {
  return call("torch", "Size", tuple({numbers(values)}));
}
inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

inline std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}
}  // namespace pickled

// A file of torch.save: the storages are numbered as they are added.
class TorchBytes {
 public:
  // A tensor of a new storage that holds these bytes.
  std::string tensor(const std::string& data, const std::vector<int64_t>& shape,
                     const std::string& type = "FloatStorage") {
    storages.push_back(data);
    return view(storages.size() - 1, 0, shape, pickled::row_major(shape), type);
  }
  static std::string view(size_t storage, int64_t offset, const std::vector<int64_t>& shape,
                          const std::vector<int64_t>& strides,
                          const std::string& type = "FloatStorage") {
    const std::string id = pickled::tuple({pickled::text("storage"), pickled::global("torch", type),
                                           pickled::text(std::to_string(storage)),
                                           pickled::text("cpu"), pickled::number(0)}) +
                           "Q";
    return pickled::call("torch._utils", "_rebuild_tensor_v2",
                         pickled::tuple({id, pickled::number(offset), pickled::numbers(shape),
                                         pickled::numbers(strides), "\x89",
                                         pickled::call("collections", "OrderedDict", ")")}));
  }
  std::string file(const std::string& value) const {
    ZipBytes zip;
    zip.add("archive/data.pkl", pickled::whole(value)).add("archive/byteorder", "little");
    for (size_t i = 0; i < storages.size(); ++i)
      zip.add("archive/data/" + std::to_string(i), storages[i]);
    return zip.add("archive/version", "3\n").bytes();
  }
  std::vector<std::string> storages;
};

inline std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace weft::testing
