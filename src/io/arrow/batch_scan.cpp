// io/arrow/batch_scan.cpp: cells of record batches as text.
#include <arrow/array.h>
#include <arrow/record_batch.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>
#include <arrow/util/float16.h>
#include <arrow/util/key_value_metadata.h>
#include <arrow/util/ree_util.h>

#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "io/arrow/arrow_files.h"

namespace weft {
namespace {

using arrow::Type;

template <typename ArrayType>
const ArrayType& as(const arrow::Array& array) {
  return static_cast<const ArrayType&>(array);
}

std::string number_text(double v, std::string text) {
  if (std::isfinite(v) && text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// The bytes of a string or binary value; nothing for other types.
std::optional<std::string_view> bytes_of(const arrow::Array& array, int64_t i) {
  switch (array.type_id()) {
    case Type::STRING:
    case Type::BINARY:
      return as<arrow::BinaryArray>(array).GetView(i);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return as<arrow::LargeBinaryArray>(array).GetView(i);
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return as<arrow::BinaryViewArray>(array).GetView(i);
    case Type::FIXED_SIZE_BINARY:
      return as<arrow::FixedSizeBinaryArray>(array).GetView(i);
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> integer_of(const arrow::Array& array, int64_t i) {
  switch (array.type_id()) {
    case Type::INT8:
      return as<arrow::Int8Array>(array).Value(i);
    case Type::INT16:
      return as<arrow::Int16Array>(array).Value(i);
    case Type::INT32:
      return as<arrow::Int32Array>(array).Value(i);
    case Type::INT64:
      return as<arrow::Int64Array>(array).Value(i);
    case Type::UINT8:
      return as<arrow::UInt8Array>(array).Value(i);
    case Type::UINT16:
      return as<arrow::UInt16Array>(array).Value(i);
    case Type::UINT32:
      return as<arrow::UInt32Array>(array).Value(i);
    default:
      return std::nullopt;
  }
}

std::optional<std::string> float_text(const arrow::Array& array, int64_t i) {
  switch (array.type_id()) {
    case Type::DOUBLE: {
      const double v = as<arrow::DoubleArray>(array).Value(i);
      return number_text(v, fmt::format("{}", v));
    }
    case Type::FLOAT: {
      const float v = as<arrow::FloatArray>(array).Value(i);
      return number_text(v, fmt::format("{}", v));
    }
    case Type::HALF_FLOAT: {
      const uint16_t bits = as<arrow::HalfFloatArray>(array).Value(i);
      const float v = arrow::util::Float16::FromBits(bits).ToFloat();
      return number_text(v, fmt::format("{}", v));
    }
    default:
      return std::nullopt;
  }
}

Json json_of(const arrow::Array& array, int64_t i);

Json list_of(const arrow::Array& values, int64_t begin, int64_t end) {
  Json::Array list;
  for (int64_t i = begin; i < end; ++i) list.push_back(json_of(values, i));
  return list;
}

Json map_of(const arrow::MapArray& map, int64_t i) {
  Json out{Json::Object{}};
  for (int64_t k = map.value_offset(i); k < map.value_offset(i + 1); ++k) {
    const Json key = json_of(*map.keys(), k);
    out.as_object().emplace_back(key.is_string() ? key.as_string() : key.dump(),
                                 json_of(*map.items(), k));
  }
  return out;
}

Json struct_of(const arrow::StructArray& array, int64_t i) {
  Json out{Json::Object{}};
  for (int f = 0; f < array.num_fields(); ++f) {
    out.as_object().emplace_back(array.struct_type()->field(f)->name(),
                                 json_of(*array.field(f), i));
  }
  return out;
}

std::optional<Json> nested_of(const arrow::Array& array, int64_t i) {
  switch (array.type_id()) {
    case Type::LIST: {
      const auto& list = as<arrow::ListArray>(array);
      return list_of(*list.values(), list.value_offset(i), list.value_offset(i + 1));
    }
    case Type::LARGE_LIST: {
      const auto& list = as<arrow::LargeListArray>(array);
      return list_of(*list.values(), list.value_offset(i), list.value_offset(i + 1));
    }
    case Type::FIXED_SIZE_LIST: {
      const auto& list = as<arrow::FixedSizeListArray>(array);
      return list_of(*list.values(), list.value_offset(i), list.value_offset(i + 1));
    }
    case Type::LIST_VIEW: {
      const auto& list = as<arrow::ListViewArray>(array);
      return list_of(*list.values(), list.value_offset(i),
                     list.value_offset(i) + list.value_length(i));
    }
    case Type::LARGE_LIST_VIEW: {
      const auto& list = as<arrow::LargeListViewArray>(array);
      return list_of(*list.values(), list.value_offset(i),
                     list.value_offset(i) + list.value_length(i));
    }
    case Type::MAP:
      return map_of(as<arrow::MapArray>(array), i);
    case Type::STRUCT:
      return struct_of(as<arrow::StructArray>(array), i);
    default:
      return std::nullopt;
  }
}

// Resolves dictionaries, runs and extensions to the array that holds the value.
struct ValuePlace {
  std::shared_ptr<arrow::Array> held;
  const arrow::Array* array;
  int64_t i;
  bool is_uuid = false;

  void go(std::shared_ptr<arrow::Array> inner, int64_t at) {
    array = inner.get();
    held = std::move(inner);
    i = at;
  }
};

ValuePlace find_value(const arrow::Array& outer, int64_t row) {
  ValuePlace at{nullptr, &outer, row};
  while (true) {
    if (at.array->type_id() == Type::DICTIONARY && at.array->IsValid(at.i)) {
      const auto& coded = as<arrow::DictionaryArray>(*at.array);
      const int64_t code = coded.GetValueIndex(at.i);
      require(code >= 0 && code < coded.dictionary()->length(),
              "a cell has the code {}, but its dictionary has {} values", code,
              coded.dictionary()->length());
      at.go(coded.dictionary(), code);
    } else if (at.array->type_id() == Type::EXTENSION) {
      const auto& extension = as<arrow::ExtensionArray>(*at.array);
      at.is_uuid = extension.extension_type()->extension_name() == "arrow.uuid";
      at.go(extension.storage(), at.i);
    } else if (at.array->type_id() == Type::RUN_END_ENCODED) {
      const auto& runs = as<arrow::RunEndEncodedArray>(*at.array);
      const int64_t run =
          arrow::ree_util::FindPhysicalIndex(arrow::ArraySpan(*runs.data()), at.i, runs.offset());
      require(run >= 0 && run < runs.values()->length(),
              "a cell is in run {}, but its column has {} runs", run, runs.values()->length());
      at.go(runs.values(), run);
    } else {
      return at;
    }
  }
}

// 8-4-4-4-12 hexadecimal digits.
std::string uuid_text(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<uint8_t>(bytes[i]));
  }
  return text;
}

// Dates, decimals and all other types, as Arrow prints them. A timestamp with a zone is printed in
// UTC with a trailing Z. A duration is printed with its unit.
std::string other_text(const arrow::Array& array, int64_t i) {
  if (array.type_id() == Type::DURATION) {
    const auto unit = static_cast<const arrow::DurationType&>(*array.type()).unit();
    constexpr const char* kUnits[] = {"s", "ms", "us", "ns"};
    return fmt::format("{}{}", as<arrow::DurationArray>(array).Value(i),
                       kUnits[static_cast<size_t>(unit)]);
  }
  const auto scalar = array.GetScalar(i);
  check_arrow(scalar.status(), array.type()->ToString(), "reading a value");
  return scalar.ValueOrDie()->ToString();
}

Json json_of(const arrow::Array& array, int64_t i) {
  const ValuePlace at = find_value(array, i);
  if (at.array->IsNull(at.i)) return Json();
  if (const auto bytes = bytes_of(*at.array, at.i))
    return at.is_uuid ? Json(uuid_text(*bytes)) : Json(*bytes);
  if (at.array->type_id() == Type::BOOL)
    return Json(as<arrow::BooleanArray>(*at.array).Value(at.i));
  if (const auto v = integer_of(*at.array, at.i)) return Json(*v);
  if (at.array->type_id() == Type::UINT64) {
    const uint64_t v = as<arrow::UInt64Array>(*at.array).Value(at.i);
    return v > INT64_MAX ? Json(Json::LargeInt{std::to_string(v)}) : Json(v);
  }
  if (at.array->type_id() == Type::DOUBLE) {
    return Json(as<arrow::DoubleArray>(*at.array).Value(at.i));
  }
  if (at.array->type_id() == Type::FLOAT) {
    return Json(double{as<arrow::FloatArray>(*at.array).Value(at.i)});
  }
  if (const auto nested = nested_of(*at.array, at.i)) return *nested;
  return Json(other_text(*at.array, at.i));
}

// `held` keeps the text where it is not the array's own.
Cell cell_of(const arrow::Array& array, int64_t i, std::string& held) {
  const ValuePlace at = find_value(array, i);
  if (at.array->IsNull(at.i)) return {};
  if (at.is_uuid) {
    held = uuid_text(*bytes_of(*at.array, at.i));
    return {held, Cell::Kind::kText};
  }
  // The array of a dictionary lives as long as its batch, so its bytes need no copy.
  if (const auto bytes = bytes_of(*at.array, at.i)) return {*bytes, Cell::Kind::kText};
  if (at.array->type_id() == Type::BOOL) {
    return {as<arrow::BooleanArray>(*at.array).Value(at.i) ? "true" : "false", Cell::Kind::kText};
  }
  if (const auto v = integer_of(*at.array, at.i)) {
    held = std::to_string(*v);
  } else if (at.array->type_id() == Type::UINT64) {
    held = std::to_string(as<arrow::UInt64Array>(*at.array).Value(at.i));
  } else if (auto text = float_text(*at.array, at.i)) {
    held = std::move(*text);
  } else if (const auto nested = nested_of(*at.array, at.i)) {
    held = nested->dump();
    return {held, Cell::Kind::kNested};
  } else {
    held = other_text(*at.array, at.i);
  }
  return {held, Cell::Kind::kText};
}

class BatchScan : public TableScan {
 public:
  BatchScan(FetchBatch fetch, std::vector<std::string> columns, int64_t skip, std::string path)
      : fetch_(std::move(fetch)),
        names_(std::move(columns)),
        held_(names_.size()),
        skip_(skip),
        path_(std::move(path)) {}

  bool next(std::vector<Cell>& cells) override {
    while (!batch_ || at_ >= batch_->num_rows()) {
      batch_ = fetch_();
      if (!batch_) return false;
      at_ = std::min(skip_, batch_->num_rows());
      skip_ -= at_;
      find_columns();
    }
    cells.resize(names_.size());
    for (size_t c = 0; c < names_.size(); ++c) cells[c] = cell_of(*arrays_[c], at_, held_[c]);
    ++at_;
    return true;
  }

 private:
  void find_columns() {
    arrays_.clear();
    for (const std::string& name : names_) {
      const std::shared_ptr<arrow::Array> array = batch_->GetColumnByName(name);
      require(array != nullptr, "{}: the column '{}' is missing or duplicate", path_, name);
      check_extension(name);
      arrays_.push_back(array);
    }
  }

  // Arrow returns the storage of an unknown extension type: pandas' periods are bare numbers. Text
  // and list storage needs no interpretation.
  void check_extension(const std::string& name) const {
    const auto field = batch_->schema()->GetFieldByName(name);
    if (!field || !field->metadata() || !arrow::is_primitive(field->type()->id())) return;
    const auto extension = field->metadata()->Get("ARROW:extension:name");
    if (!extension.ok()) return;
    throw UserError(fmt::format("{}: column '{}' has the type {}, which is not supported", path_,
                                name, *extension),
                    "convert the column to text (pandas: .astype(str)), or remove it");
  }

  FetchBatch fetch_;
  std::vector<std::string> names_;
  std::vector<std::string> held_;
  int64_t skip_;
  std::string path_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  int64_t at_ = 0;
};

}  // namespace

std::vector<TableColumn> columns_of(const arrow::Schema& schema) {
  std::vector<TableColumn> columns;
  for (const auto& field : schema.fields()) {
    columns.push_back({field->name(), field->type()->ToString()});
  }
  return columns;
}

std::unique_ptr<TableScan> scan_batches(FetchBatch fetch, std::vector<std::string> columns,
                                        int64_t skip, std::string path) {
  return std::make_unique<BatchScan>(std::move(fetch), std::move(columns), skip, std::move(path));
}

}  // namespace weft
