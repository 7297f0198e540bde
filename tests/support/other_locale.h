// SPDX-License-Identifier: Apache-2.0
// Gives the program German's locale, which writes 1,5 for 1.5, for as long as it lives. The library is loaded into programs that
// have such locales, and what it writes and reads must be the same there.
//
//   const OtherLocale german;
//   if (!german.is_set()) GTEST_SKIP() << "this machine has no locale but C, and no localedef to make one";
#ifndef GPUSHARE_TESTS_SUPPORT_OTHER_LOCALE_H_
#define GPUSHARE_TESTS_SUPPORT_OTHER_LOCALE_H_

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace gpushare::test {

class OtherLocale {
 public:
  OtherLocale() {
    if (Set()) return;
    std::string folder = std::filesystem::temp_directory_path() / "gpushare-locale-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return;
    made_ = folder;
    const std::string make =
        "localedef -i de_DE -f UTF-8 " + folder + "/de_DE.UTF-8 >/dev/null 2>&1";
    setenv("LOCPATH", folder.c_str(), 1);
    if (std::system(make.c_str()) == 0) Set();
  }
  ~OtherLocale() {
    std::setlocale(LC_ALL, "C");
    if (made_.empty()) return;
    unsetenv("LOCPATH");
    std::filesystem::remove_all(made_);
  }
  OtherLocale(const OtherLocale&) = delete;
  OtherLocale& operator=(const OtherLocale&) = delete;

  bool is_set() const { return set_; }

 private:
  bool Set() { return set_ = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr; }

  bool set_ = false;
  std::filesystem::path made_;  // the folder of the locale that was made; empty: none was
};

}  // namespace gpushare::test

#endif  // GPUSHARE_TESTS_SUPPORT_OTHER_LOCALE_H_
