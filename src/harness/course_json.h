// SPDX-License-Identifier: Apache-2.0
// The JSON of a course in a line of results (results.h).
//
//   {"question":"share","of":"used","window_ms":1000,"begins_ms":1000,"step_ms":10,
//    "tenants":[{"name":"a","share":75,"windows":[75.1,74.9],"least":74.9,"most":75.1},
//               {"name":"b","priority":"high","low":[20,21],"high":[30,29],"requests":512,"latency_us":[...],"alone_us":[...]}]}
#ifndef GPUSHARE_HARNESS_COURSE_JSON_H_
#define GPUSHARE_HARNESS_COURSE_JSON_H_

#include <nlohmann/json_fwd.hpp>

#include "harness/course.h"

namespace gpushare::harness {

nlohmann::ordered_json CourseJson(const Course& course);
// Throws the JSON library's exceptions if something is missing or has another type, and std::invalid_argument if there is more
// than a course may have.
Course ReadCourse(const nlohmann::ordered_json& from);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_COURSE_JSON_H_
